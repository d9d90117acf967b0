"""``--merge``: entries of an issued kubeconfig in an existing file, such as ``~/.kube/config``."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tower.cli.client import CommandFailed
from tower.drafts import draft_of
from tower.kube.kubeconfig import FILE_LIMIT

#: Lists of a kubeconfig, and the key of their entries' content.
SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}

#: Name of the extension of a context that has the user's name.
EXTENSION = "tower.kubesphere.io"

_CA = "certificate-authority-data"


def default_file(environ: Mapping[str, str]) -> str:
    """Return the file that kubectl would change: the first of $KUBECONFIG, or ``~/.kube/config``."""
    listed = [path for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    return listed[0] if listed else os.path.join(os.path.expanduser("~"), ".kube", "config")


def merge(path: str, name: str, user: str, issue: Callable[[], dict[str, Any]]) -> str | None:
    """Add the entries of a new kubeconfig to the file *path*, as the context *name*; keep all others.

    Return the user of the context that was replaced; empty: unknown; None: the context is new.

    The file is replaced as a whole and keeps its mode; a new one has mode 0600.  A link to it stays.  A
    change by a program that does not use kubectl's lock is lost only during the last milliseconds.

    :param user: of the new kubeconfig.
    :param issue: returns a status with `kubeconfig` and `credential`; called once the file can be written.
    :raise CommandFailed: the file is not a kubeconfig, cannot be written, or has a foreign context *name*.
    """
    path = os.path.realpath(path)
    credential = ""
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with locked_file(path), draft_of(Path(path)) as draft:
            read_config(path)
            status = issue()
            credential = str(status["credential"])
            content, previous = read_config(path)
            issued = yaml.safe_load(status["kubeconfig"])
            _check_own(path, name, content, issued)
            replaced = _add(content, issued, name, user)
            draft.write(yaml.safe_dump(content, sort_keys=False, allow_unicode=True).encode())
            if previous is not None:
                draft.resemble(previous)
            draft.put()
            return replaced
    except OSError as e:
        raise CommandFailed(f"--merge {path}: {(e.strerror or str(e)).lower()}{_cure(credential)}") from e
    except CannotMerge as e:
        raise CommandFailed(f"--merge {path} {e}{_cure(credential)}") from e


class CannotMerge(Exception):
    """The file does not allow it; the text has the reason and the cure."""


def _cure(credential: str) -> str:
    return f"; revoke the issued credential: tower credential revoke {credential}" if credential else ""


class FileLocked(CannotMerge):
    """Another program has kubectl's lock."""


@contextmanager
def locked_file(path: str) -> Iterator[None]:
    """Hold kubectl's lock of the file *path*."""
    lock = f"{path}.lock"
    try:
        os.close(os.open(lock, os.O_CREAT | os.O_EXCL, 0))
    except FileExistsError:
        raise FileLocked(
            f"is locked by {lock}: another program is changing the file; if not, remove {lock}"
        ) from None
    try:
        yield
    finally:
        os.unlink(lock)


class _PlainLoader(yaml.SafeLoader):
    """Keeps times as texts, which JSON has too: written as YAML times they get another form."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def read_config(path: str) -> tuple[dict[str, Any], os.stat_result | None]:
    """Return the kubeconfig at *path* and its status; an empty one and None if there is no file."""
    if not os.path.exists(path):
        return {"apiVersion": "v1", "kind": "Config", **{section: [] for section in SECTIONS}}, None
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise CannotMerge("is not a regular file: choose another name")
    if not os.access(path, os.W_OK):
        raise CannotMerge(f"is read-only: chmod u+w {shlex.quote(path)}, or choose another file")
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        data = file.read(FILE_LIMIT + 1)
    if len(data) > FILE_LIMIT:
        raise CannotMerge(f"is larger than {FILE_LIMIT} B: choose another file")
    try:
        content = yaml.load(data, _PlainLoader)  # noqa: S506 - a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise CannotMerge(f"is not YAML{line}: repair it, or choose another file") from e
    if content is None:
        content = {"apiVersion": "v1", "kind": "Config"}
    if not isinstance(content, dict):
        raise CannotMerge("is not a kubeconfig, it has no clusters and contexts: choose another file")
    for section in SECTIONS:
        entries = content.get(section) or []
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise CannotMerge(
                f"is not a kubeconfig, {section} is not a list of entries: repair it, or choose another file"
            )
        content[section] = entries
    return content, status


def _add(content: dict[str, Any], issued: dict[str, Any], name: str, user: str) -> str | None:
    """Put the only cluster, user and context of *issued* into *content*, all as *name*.

    An extension of the context has the *user*, because no entry is named after it.  Return the
    user of the earlier context; empty: unknown; None: there was none.
    """
    new = {section: dict(issued[section][0][kind]) for section, kind in SECTIONS.items()}
    new["contexts"] |= {"cluster": name, "user": name}
    old = {section: entry_of(content, section, name) for section in SECTIONS}
    replaced = None if old["contexts"] is None else _user_of(old["contexts"].get("context") or {})
    kept = [each for each in _extensions((old["contexts"] or {}).get("context") or {}) if not _is_own(each)]
    new["contexts"]["extensions"] = [*kept, {"name": EXTENSION, "extension": {"user": user}}]
    for section, kind in SECTIONS.items():
        entry = old[section]
        if entry is None:
            content[section].append({"name": name, kind: new[section]})
        elif section == "contexts":
            entry[kind] = {**(entry.get(kind) or {}), **new[section]}  # the user may have set a namespace
        else:
            entry[kind] = new[section]
    if not content.get("current-context"):
        content["current-context"] = name
    return replaced


def _extensions(context: dict[str, Any]) -> list[Any]:
    found = context.get("extensions")
    return found if isinstance(found, list) else []


def _is_own(extension: Any) -> bool:
    return isinstance(extension, dict) and extension.get("name") == EXTENSION


def _user_of(context: dict[str, Any]) -> str:
    """Return the user of the merged *context*, or empty."""
    own = next((each.get("extension") for each in _extensions(context) if _is_own(each)), None)
    return str(own.get("user", "")) if isinstance(own, dict) else ""


def _check_own(path: str, name: str, content: dict[str, Any], issued: dict[str, Any]) -> None:
    """Raise `CannotMerge` if the entries *name* are not those of an earlier merge for the same proxy."""
    old = {section: entry_of(content, section, name) for section in SECTIONS}
    config = f"kubectl config --kubeconfig {shlex.quote(path)}"
    cure = f"rename it with '{config} rename-context {name} NEW', or use --output"
    context = (old["contexts"] or {}).get("context") or {}
    if old["contexts"] is not None and (context.get("cluster"), context.get("user")) != (name, name):
        raise CannotMerge(f"has a context {name}, which was not made by --merge: {cure}")
    if old["users"] is not None and old["contexts"] is None and old["clusters"] is None:
        raise CannotMerge(
            f"has a user {name}, which was not made by --merge: delete it with '{config} delete-user "
            f"{name}', or use --output"
        )
    if old["clusters"] is not None:
        cluster = old["clusters"].get("cluster") or {}
        new = issued["clusters"][0]["cluster"]
        has_same_ca = cluster.get(_CA) is not None and cluster[_CA] == new.get(_CA)
        if cluster.get("server") != new["server"] and not has_same_ca:
            raise CannotMerge(
                f"has a cluster {name} for another server, {cluster.get('server')}, not "
                f"{new['server']}: delete it with '{config} delete-cluster {name}', or use --output"
            )


def entry_of(content: dict[str, Any], section: str, name: str) -> dict[str, Any] | None:
    """Return the first entry *name*, which kubectl uses."""
    found: dict[str, Any] | None = next(
        (entry for entry in content[section] if entry.get("name") == name), None
    )
    return found
