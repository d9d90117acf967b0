"""The files of the proxy's machine that clusters' records may name: those below one directory.

Whoever may write records may be far away, and is not meant to read the machine's files: neither their content
by way of an error, nor whether they are there.  What the operator names on the command line is not limited.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from attrs import frozen

from tower.clusters.ssh_spec import DefaultCluster, SSHSpec
from tower.clusters.ssh_spec_object import NAMES, OPTIONS, PATHS, SPEC_PATH, invalid_field
from tower.errors import ConfigurationError
from tower.files import ANYWHERE, Beneath, Files

#: What it is called in the state directory unless ``--node-files`` says otherwise.
DIRECTORY = "node-files"


@frozen
class RecordFile:
    """A file that a record names.

    :ivar path: absolute.
    :ivar files: by which it is opened.
    """

    path: Path
    files: Files = ANYWHERE


@frozen
class NodeFiles:
    """:ivar directory: absolute.
    :ivar given: the cluster of the command line, if there is one: its files may be anywhere.
    """

    directory: Path
    given: DefaultCluster | None = None

    def prepare(self, *apart: Path) -> None:
        """Make the directory, for its owner alone, where there is none.

        :param apart: what must not lie in it.
        :raise ConfigurationError: something of that does, or there can be no such directory.
        """
        directory = self.directory.resolve()
        for path in apart:
            if path.resolve().is_relative_to(directory):
                raise ConfigurationError(
                    f"--node-files {self.directory}: contains {path}, which cluster records must not "
                    "be able to name: choose a directory of its own"
                )
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise ConfigurationError(
                f"--node-files {self.directory}: {e.strerror}: name a directory, or one that can be made"
            ) from e

    def placed(self, cluster: str, attribute: str, spec: SSHSpec) -> RecordFile:
        """Return where a file is.

        :param attribute: one of `tower.clusters.ssh_spec_object.PATHS`.
        """
        name = getattr(spec, attribute)
        if self._is_given(cluster, attribute, name):
            return RecordFile(Path(name))
        return RecordFile(self.directory / name, Beneath(self.directory))

    def check(self, cluster: str, spec: SSHSpec, before: SSHSpec | None = None) -> None:
        """See whether a record may name its files.

        :param before: the record until now; what it names already does not count as wrong.
        :raise Invalid: with the first field that names a file elsewhere, and the cure.
        """
        for attribute in self._elsewhere(cluster, spec):
            name = getattr(spec, attribute)
            if before is None or getattr(before, attribute) != name:
                raise invalid_field(
                    NAMES[attribute],
                    name,
                    f"must be below {self.directory} (--node-files of tower-proxy): put the file there and "
                    f"give its path relative to it, such as {os.path.basename(name) or 'FILE'!r}",
                )

    def problems(self, cluster: str, spec: SSHSpec) -> list[str]:
        """Say which files of a record are elsewhere, and how to move each; for records of former times."""
        found = []
        for attribute in self._elsewhere(cluster, spec):
            path = getattr(spec, attribute)
            place = f"{SPEC_PATH}.{NAMES[attribute]}"
            name = os.path.basename(path.rstrip("/")) or "file"
            name = name if name.startswith(cluster) else f"{cluster}-{name}"
            order = shlex.join(["cp", "-p", path, str(self.directory / name)])
            found.append(
                f"{place}: {path!r} is outside {self.directory} (--node-files) and is no longer read; "
                f"to copy it there: {order} && "
                f"tower cluster set {cluster} --{OPTIONS[place]} {shlex.quote(name)}"
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
        """Tell whether *name* leads to below the directory; links are looked at when the file is opened."""
        if ".." in name.split("/"):
            return False
        path = self.directory / name
        return any(root in path.parents for root in (self.directory, Path(os.path.realpath(self.directory))))
