"""The kubeconfigs of a user: those of ``$KUBECONFIG``, merged as kubectl does, or ``~/.kube/config``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from attrs import frozen

from tower.kube.kubeconfig import KubeAccess, KubeconfigReader, load_kubeconfig, read_content

#: Path of a cluster at the front door, in the server of a user's context.
_CLUSTER_PATH = re.compile(r"/clusters/([^/]+)/?")

#: For each list: the key of an entry's content, and the keys in it whose values are paths.
_PATHS = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
    "contexts": ("context", ()),
}


def cluster_of(server: str) -> str | None:
    """Return the cluster of a server URL at the front door; None: it is not the URL of a cluster."""
    found = _CLUSTER_PATH.fullmatch(urlsplit(server).path)
    return found[1] if found else None


@frozen
class KubeconfigFiles:
    """Kubeconfigs that are merged.

    :ivar paths: of the files; if several have an entry with the same name, the first takes precedence.
    """

    paths: tuple[Path, ...]

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> KubeconfigFiles:
        """Return those that kubectl would read; files that do not exist are left out."""
        paths = [Path(path) for path in environ.get("KUBECONFIG", "").split(os.pathsep) if path]
        if not paths and environ.get("HOME"):
            paths = [Path(environ["HOME"], ".kube", "config")]
        return cls(tuple(path for path in paths if _may_exist(path)))

    def __str__(self) -> str:
        return os.pathsep.join(map(str, self.paths))

    def load(self, context: str | None) -> KubeAccess:
        """Return *context*, or the current one if it is None.  The caller runs its credential plugin.

        :raise ConfigurationError: one line with the file, the entry and the cure.
        """
        if len(self.paths) == 1:
            return load_kubeconfig(self.paths[0], context, allow_plugin=True)
        name = f"kubeconfig {self}"
        return KubeconfigReader(self._merged(), name, self.paths).access(context, allow_plugin=True)

    def current(self) -> str:
        """Return the name of the current context; empty: none.

        :raise ConfigurationError: a file cannot be read.
        """
        return str(self._merged()["current-context"])

    def clusters(self) -> dict[str, str]:
        """Return the cluster behind Tower for each context that has one, by the context's name.

        :raise ConfigurationError: a file cannot be read.
        """
        content = self._merged()
        servers: dict[object, str] = {}
        for entry in _entries(content["clusters"], "cluster"):
            servers.setdefault(str(entry["name"]), str(entry["cluster"].get("server", "")))
        found: dict[str, str] = {}
        seen: set[str] = set()
        for entry in _entries(content["contexts"], "context"):
            name = str(entry["name"])
            cluster = cluster_of(servers.get(str(entry["context"].get("cluster")), ""))
            if cluster is not None and name not in seen:
                found[name] = cluster
            seen.add(name)
        return found

    def _merged(self) -> dict[str, Any]:
        """Return the content of all files; the paths in it are absolute."""
        merged: dict[str, Any] = {"current-context": "", **{section: [] for section in _PATHS}}
        for path in self.paths:
            content = read_content(path)
            if not isinstance(content, dict):
                continue  # an empty file, or no kubeconfig
            merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
            directory = path.absolute().parent
            for section, (kind, keys) in _PATHS.items():
                entries = content.get(section) or []
                for entry in _entries(entries, kind):
                    _resolve(entry[kind], keys, directory)
                if isinstance(entries, list):
                    merged[section] += entries
        return merged


def _entries(entries: object, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list that have a name and content."""
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and "name" in entry and isinstance(entry.get(kind), dict):
            yield entry


def _resolve(content: dict[str, Any], keys: tuple[str, ...], directory: Path) -> None:
    """Make the paths of an entry absolute."""
    for key in keys:
        if isinstance(content.get(key), str) and content[key]:
            content[key] = str(directory / content[key])
    plugin = content.get("exec") if keys else None
    if isinstance(plugin, dict) and isinstance(plugin.get("command"), str) and "/" in plugin["command"]:
        plugin["command"] = str(directory / plugin["command"])


def _may_exist(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return True  # reading the file gives the reason
