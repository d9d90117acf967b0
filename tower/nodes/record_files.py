"""The files on the proxy's machine that clusters' records may name: those below one directory.

Clients that may write records must not be able to read the machine's files, neither their contents through an
error, nor whether they exist.  Files that the operator names on the command line are not limited.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from tower.clusters.cluster import Cluster
from tower.clusters.ssh_spec import DefaultCluster, SSHSpec
from tower.clusters.ssh_spec_object import NAMES, OPTIONS, PATHS, SPEC_PATH, invalid_field
from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Beneath, Files

#: Default of ``--node-files``, in the state directory.
DIRECTORY = "node-files"


@frozen
class RecordFile:
    """A file that a record names.

    :ivar path: absolute.
    :ivar files: opens it.
    """

    path: Path
    files: Files = ANYWHERE


@frozen
class NodeFiles:
    """The directory of these files.

    :ivar directory: absolute.
    :ivar given: the cluster of the command line, if there is one: its files may be anywhere.
    :ivar is_cache: whether other proxies with the same records do not have this directory.
    """

    directory: Path
    given: DefaultCluster | None = None
    is_cache: bool = False

    def prepare(self, *apart: Path) -> None:
        """Create the directory with mode 0700 if it is missing.

        :param apart: paths that must not be in it.
        :raise ConfigurationError: one of them is, or the directory cannot be created.
        """
        directory = self.directory.resolve()
        for path in apart:
            if path.resolve().is_relative_to(directory):
                raise ConfigurationError(
                    f"--node-files {self.directory}: contains {path}, which cluster records must not "
                    "be able to name: set another directory"
                )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise ConfigurationError(
                f"--node-files {self.directory}: {e.strerror}: set a directory that exists or can be created"
            ) from e

    def find(self, cluster: str, attribute: str, spec: SSHSpec) -> RecordFile:
        """Return a file that a record names.

        :param attribute: one of `tower.clusters.ssh_spec_object.PATHS`.
        """
        name = getattr(spec, attribute)
        if self._is_given(cluster, attribute, name):
            return RecordFile(Path(name))
        return RecordFile(self.directory / name, Beneath(self.directory))

    def check(self, cluster: str, spec: SSHSpec, before: SSHSpec | None = None) -> None:
        """Check the files that a record names.

        :param before: the previous record; its files are not checked again.
        :raise Invalid: with the first field that names a file elsewhere, and the cure.
        """
        for attribute in self._elsewhere(cluster, spec):
            name = getattr(spec, attribute)
            if before is None or getattr(before, attribute) != name:
                raise invalid_field(
                    NAMES[attribute],
                    name,
                    f"must be below {self.directory} (--node-files of tower-proxy): put the file there and "
                    f"set its path relative to it, such as {os.path.basename(name) or 'FILE'!r}",
                )

    def unshared(self, clusters: Iterable[Cluster]) -> list[str]:
        """Return an error, with the cure, if clusters name files that other proxies do not have."""
        names = sorted(
            each.name
            for each in clusters
            if self.is_cache
            and each.ssh is not None
            and any(
                (name := getattr(each.ssh, attribute)) and not self._is_given(each.name, attribute, name)
                for attribute in PATHS
            )
        )
        if not names:
            return []
        subject = f"cluster {names[0]} names"
        if len(names) > 1:
            subject = f"{len(names)} clusters such as {names[0]} name"
        text = (
            f"{subject} files below {self.directory}, which is a cache of this proxy: another leader does "
            "not have them: set --node-files to a directory with the same files for each proxy, such as that "
            "of a mounted Secret"
        )
        return [text]

    def problems(self, cluster: str, spec: SSHSpec) -> list[str]:
        """Return an error for each file elsewhere that an old record names, with the command to copy it."""
        found = []
        for attribute in self._elsewhere(cluster, spec):
            path = getattr(spec, attribute)
            field = f"{SPEC_PATH}.{NAMES[attribute]}"
            name = os.path.basename(path.rstrip("/")) or "file"
            name = name if name.startswith(cluster) else f"{cluster}-{name}"
            command = shlex.join(["cp", "-p", path, str(self.directory / name)])
            found.append(
                f"{field}: {path!r} is outside {self.directory} (--node-files) and is no longer read; "
                f"to copy it there: {command} && "
                f"tower cluster set {cluster} --{OPTIONS[field]} {shlex.quote(name)}"
            )
        return found

    def _elsewhere(self, cluster: str, spec: SSHSpec) -> list[str]:
        """Return the attributes of *spec* that name a file elsewhere."""
        named = ((attribute, getattr(spec, attribute)) for attribute in PATHS)
        return [
            attribute
            for attribute, name in named
            if name and not self._is_given(cluster, attribute, name) and not self._is_below(name)
        ]

    def _is_given(self, cluster: str, attribute: str, name: str) -> bool:
        given = self.given
        return given is not None and given.name == cluster and getattr(given.spec, attribute) == name

    def _is_below(self, name: str) -> bool:
        """Return whether *name* is below the directory; links are resolved when the file is opened."""
        if ".." in name.split("/"):
            return False
        path = self.directory / name
        return any(root in path.parents for root in (self.directory, Path(os.path.realpath(self.directory))))
