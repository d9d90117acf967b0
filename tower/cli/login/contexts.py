"""The contexts of a login in a kubeconfig; all other entries are unchanged."""

from __future__ import annotations

import os
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from tower.errors import ConfigurationError
from tower.kube.rest.kubeconfig_files import KubeconfigFiles

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
    :ivar current: the current context; empty: none.
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
    current: str = "",
) -> WrittenContexts:
    """Make the file *path* have a context for each of *clusters*, and no other of this login.

    The file is replaced as a whole, under kubectl's lock, and keeps its mode; a new one has mode 0600.  Names
    that the user gave to contexts stay.  The current context is set only if the file had no context: if it is
    removed, its name stays as after ``kubectl config delete-context``, so commands fail until the user
    chooses another one.

    :param ca: CAs of *server*, PEM; empty: the system's.
    :param plugin: entry ``exec``, to which the cluster is added.
    :param current: the current context that kubectl has from other files; empty: none.
    :raise CommandFailed: the file is not a kubeconfig, cannot be written, or has a foreign context.
    """
    path = os.path.realpath(path)
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with _patiently_locked(path, sleep), draft_of(Path(path)) as draft:
            content, previous = read_config(path)
            is_first = not content["contexts"]
            editor = _Editor(content, server)
            names, removed = editor.replace(list(clusters), ca, user, plugin)
            current = str(content.get("current-context") or "") or current
            if names and is_first and not current:
                current = content["current-context"] = names[0]
            if names or removed:
                draft.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
                if previous is not None:
                    draft.resemble(previous)
                draft.put()
            return WrittenContexts(tuple(names), tuple(removed), current)
    except OSError as e:
        raise CommandFailed(f"kubeconfig {path}: {(e.strerror or str(e)).lower()}") from e
    except CannotMerge as e:
        raise CommandFailed(f"kubeconfig {path} {e}") from e


def current_of_others(path: str, environ: Mapping[str, str]) -> str:
    """Return the current context that kubectl has from other files of ``$KUBECONFIG``; empty: none."""
    path = os.path.realpath(path)
    listed = [each for each in environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    others = [each for each in listed if os.path.realpath(each) != path]
    if len(others) == len(listed):
        return ""  # kubectl reads the file alone
    try:
        return KubeconfigFiles.of({"KUBECONFIG": os.pathsep.join(others)}).current()
    except ConfigurationError:
        return ""


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


@attrs.frozen
class _OwnContext:
    """A context that a login wrote; the user may have renamed it.

    :ivar cluster: name of the cluster in Tower.
    :ivar entry: name of its entries among the kubeconfig's clusters and users.
    """

    name: str
    cluster: str
    entry: str


class _Editor:
    """Changes the entries of one Tower in the content of a kubeconfig."""

    def __init__(self, content: dict[str, Any], server: str) -> None:
        self._content = content
        self._server = server

    def replace(
        self, clusters: Sequence[str], ca: str, user: str, plugin: dict[str, Any]
    ) -> tuple[list[str], list[str]]:
        """Replace the contexts of this login; return the names of those that it has now, and of removed ones.

        :raise CannotMerge: another program made one of them.
        """
        before = self._own()
        prefix = self._prefix(before)
        authority = {"certificate-authority-data": b64encode(ca.encode()).decode()} if ca else {}
        names: list[str] = []
        for cluster in clusters:
            leads_to = {"server": f"{self._server}/clusters/{cluster}", **authority}
            own_plugin = {**plugin, "args": [*plugin["args"], "--cluster", cluster]}
            name = f"{prefix}/{cluster}"
            known = [each for each in before if each.cluster == cluster]
            for each in known or [_OwnContext(name, cluster, name)]:
                self._put(each, leads_to, {"exec": own_plugin}, user)
                names.append(each.name)
        lost = [each for each in before if each.cluster not in clusters]
        for each in lost:
            self._drop(each)
        return names, [each.name for each in lost]

    def _own(self) -> list[_OwnContext]:
        """Return the contexts of this login: they have its extension, and are for a cluster of this Tower."""
        found = []
        for entry in self._content["contexts"]:
            context = entry.get("context")
            if _login_of(context) == self._server and context.get("cluster") == context.get("user"):
                name = str(context.get("cluster"))
                begin, _, cluster = self._server_of(name).partition("/clusters/")
                if begin == self._server and cluster:
                    found.append(_OwnContext(str(entry.get("name")), cluster, name))
        return found

    def _prefix(self, own: list[_OwnContext]) -> str:
        """Return the prefix of new contexts: as before, else the first free of ``tower``, HOST, HOST:PORT.

        It is that of the entries, because the user may have renamed the contexts.
        """
        for each in own:
            prefix = each.entry.removesuffix(f"/{each.cluster}")
            if prefix not in ("", each.entry):
                return prefix
        address = urlsplit(self._server)
        host = address.netloc.removesuffix(f":{address.port}")
        return next((each for each in (PREFIX, host) if self._is_free(each)), address.netloc)

    def _is_free(self, prefix: str) -> bool:
        """Return whether only entries of this Tower have names with *prefix*."""
        names = [str(entry.get("name")) for each in ("clusters", "contexts") for entry in self._content[each]]
        return all(self._is_same(name) for name in names if name.startswith(f"{prefix}/"))

    def _put(self, own: _OwnContext, cluster: dict[str, Any], user: dict[str, Any], owner: str) -> None:
        """Add or replace a context with its cluster and user.

        :raise CannotMerge: another program made the context.
        """
        names = {"clusters": own.entry, "users": own.entry, "contexts": own.name}
        old = {section: entry_of(self._content, section, name) for section, name in names.items()}
        context = (old["contexts"] or {}).get("context") or {}
        foreign = old["contexts"] is not None and (context.get("cluster"), context.get("user")) != (
            own.entry,
            own.entry,
        )
        if foreign or (old["clusters"] is not None and not self._is_same(own.entry)):
            raise CannotMerge(
                f"has a context or cluster {own.name}, which is not of {self._server}: rename it with "
                f"'kubectl config rename-context {own.name} NEW', or give --kubeconfig-file with another file"
            )
        kept = [each for each in context.get("extensions") or () if not _is_own(each)]
        extension = {"name": EXTENSION, "extension": {"user": owner, "login": self._server}}
        new = {
            "clusters": cluster,
            "users": user,
            "contexts": {
                **context,
                "cluster": own.entry,
                "user": own.entry,
                "extensions": [*kept, extension],
            },
        }
        for section, kind in SECTIONS.items():
            entry = old[section]
            if entry is None:
                self._content[section].append({"name": names[section], kind: new[section]})
            else:
                entry[kind] = new[section]

    def _drop(self, own: _OwnContext) -> None:
        """Remove a context with its cluster and user, unless another context uses these."""
        contexts = [each for each in self._content["contexts"] if each.get("name") != own.name]
        self._content["contexts"] = contexts
        for section, kind in (("clusters", "cluster"), ("users", "user")):
            if not any((each.get("context") or {}).get(kind) == own.entry for each in contexts):
                entries = self._content[section]
                self._content[section] = [each for each in entries if each.get("name") != own.entry]

    def _is_same(self, name: str) -> bool:
        """Return whether the cluster entry *name* leads to this Tower."""
        url = urlsplit(self._server_of(name))
        return f"{url.scheme}://{url.netloc}" == self._server

    def _server_of(self, name: str) -> str:
        """Return the URL of the cluster entry *name*; empty: there is none."""
        cluster = (entry_of(self._content, "clusters", name) or {}).get("cluster") or {}
        return str(cluster.get("server", ""))


def _is_own(extension: Any) -> bool:
    return isinstance(extension, dict) and extension.get("name") == EXTENSION


def _login_of(context: Any) -> str:
    """Return the Tower of a context that a login made; empty: of no login."""
    extensions = context.get("extensions") if isinstance(context, dict) else None
    for each in extensions if isinstance(extensions, list) else ():
        if _is_own(each) and isinstance(each.get("extension"), dict):
            return str(each["extension"].get("login", ""))
    return ""
