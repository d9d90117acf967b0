"""The contexts of a login in a kubeconfig; all other entries are unchanged."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import yaml

from tower.cli.client import CommandFailed
from tower.cli.merging import (
    EXTENSION,
    SECTIONS,
    CannotMerge,
    FileLocked,
    entry_of,
    locked_file,
    read_config,
)
from tower.drafts import draft_of

#: Prefix of the contexts of the first Tower in a file.
PREFIX = "tower"

#: How often kubectl's lock is tried, and the pause, s.
ATTEMPTS = 20
PAUSE = 0.1


@attrs.frozen
class WrittenContexts:
    """Result of `write_contexts`.

    :ivar names: the contexts, in order.
    :ivar removed: contexts of clusters that the user cannot enter any more.
    :ivar current: whether the file's current context is one of these.
    """

    names: tuple[str, ...]
    removed: tuple[str, ...]
    current: str


def write_contexts(
    path: str,
    server: str,
    ca: str,
    user: str,
    clusters: Iterable[str],
    plugin: dict[str, Any],
    sleep: Callable[[float], object] = time.sleep,
) -> WrittenContexts:
    """Make the file *path* have a context for each of *clusters*, and no other of this login.

    The file is replaced as a whole, under kubectl's lock, and keeps its mode; a new one has mode 0600.

    :param ca: CAs of *server*, PEM; empty: the system's.
    :param plugin: entry ``exec``, to which the cluster is added.
    :raise CommandFailed: the file is not a kubeconfig, cannot be written, or has a foreign context.
    """
    import base64

    path = os.path.realpath(path)
    wanted = list(clusters)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with _patiently_locked(path, sleep), draft_of(Path(path)) as draft:
            content, previous = read_config(path)
            editor = _Editor(content, server)
            before = editor.own()
            prefix = editor.prefix(before)
            names = [f"{prefix}/{each}" for each in wanted]
            authority = {"certificate-authority-data": base64.b64encode(ca.encode()).decode()} if ca else {}
            for name, cluster in zip(names, wanted, strict=True):
                own = {**plugin, "args": [*plugin["args"], "--cluster", cluster]}
                editor.put(name, {"server": f"{server}/clusters/{cluster}", **authority}, {"exec": own}, user)
            removed = [name for name in before if name not in names]
            for name in removed:
                editor.drop(name)
            if not content.get("current-context") and names:
                content["current-context"] = names[0]
            if names or removed:
                draft.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
                if previous is not None:
                    draft.resemble(previous)
                draft.put()
            return WrittenContexts(tuple(names), tuple(removed), str(content.get("current-context") or ""))
    except OSError as e:
        raise CommandFailed(f"kubeconfig {path}: {(e.strerror or str(e)).lower()}") from e
    except CannotMerge as e:
        raise CommandFailed(f"kubeconfig {path} {e}") from e


@contextmanager
def _patiently_locked(path: str, sleep: Callable[[float], object]) -> Iterator[None]:
    """Hold kubectl's lock of a file, which other programs hold for a moment."""
    for left in reversed(range(ATTEMPTS)):
        try:
            with ExitStack() as stack:
                stack.enter_context(locked_file(path))
                kept = stack.pop_all()
            break
        except FileLocked:
            if not left:
                raise
            sleep(PAUSE)
    with kept:
        yield


class _Editor:
    """Changes the entries of one Tower in the content of a kubeconfig."""

    def __init__(self, content: dict[str, Any], server: str) -> None:
        self._content = content
        self._server = server

    def own(self) -> list[str]:
        """Return the names of the contexts of this login."""
        return [
            str(entry.get("name"))
            for entry in self._content["contexts"]
            if _login_of(entry.get("context")) == self._server
        ]

    def prefix(self, own: list[str]) -> str:
        """Return the prefix of its contexts: as before, else ``tower`` unless another Tower has that."""
        if own:
            return own[0].rpartition("/")[0] or PREFIX
        for entry in self._content["contexts"]:
            name = str(entry.get("name"))
            if name.startswith(f"{PREFIX}/") and not self._is_same(name):
                return urlsplit(self._server).netloc
        return PREFIX

    def put(self, name: str, cluster: dict[str, Any], user: dict[str, Any], owner: str) -> None:
        """Add or replace a context with its cluster and user.

        :raise CannotMerge: another program made the context.
        """
        old = {section: entry_of(self._content, section, name) for section in SECTIONS}
        context = (old["contexts"] or {}).get("context") or {}
        foreign = old["contexts"] is not None and (context.get("cluster"), context.get("user")) != (
            name,
            name,
        )
        if foreign or (old["clusters"] is not None and not self._is_same(name)):
            raise CannotMerge(
                f"has a context or cluster {name}, which is not of {self._server}: rename it with 'kubectl "
                f"config rename-context {name} NEW', or give --kubeconfig-file with another file"
            )
        kept = [each for each in context.get("extensions") or () if not _is_own(each)]
        extension = {"name": EXTENSION, "extension": {"user": owner, "login": self._server}}
        new = {
            "clusters": cluster,
            "users": user,
            "contexts": {**context, "cluster": name, "user": name, "extensions": [*kept, extension]},
        }
        for section, kind in SECTIONS.items():
            entry = old[section]
            if entry is None:
                self._content[section].append({"name": name, kind: new[section]})
            else:
                entry[kind] = new[section]

    def drop(self, name: str) -> None:
        """Remove a context with its cluster and user, unless another context uses these."""
        contexts = [each for each in self._content["contexts"] if each.get("name") != name]
        self._content["contexts"] = contexts
        for section, kind in (("clusters", "cluster"), ("users", "user")):
            if not any((each.get("context") or {}).get(kind) == name for each in contexts):
                entries = self._content[section]
                self._content[section] = [each for each in entries if each.get("name") != name]
        if self._content.get("current-context") == name:
            self._content["current-context"] = ""

    def _is_same(self, name: str) -> bool:
        """Return whether the cluster entry *name* leads to this Tower."""
        cluster = (entry_of(self._content, "clusters", name) or {}).get("cluster") or {}
        url = urlsplit(str(cluster.get("server", "")))
        return f"{url.scheme}://{url.netloc}" == self._server


def _is_own(extension: Any) -> bool:
    return isinstance(extension, dict) and extension.get("name") == EXTENSION


def _login_of(context: Any) -> str:
    """Return the Tower of a context that a login made; empty: of no login."""
    extensions = context.get("extensions") if isinstance(context, dict) else None
    for each in extensions if isinstance(extensions, list) else ():
        if _is_own(each) and isinstance(each.get("extension"), dict):
            return str(each["extension"].get("login", ""))
    return ""
