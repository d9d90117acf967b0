"""The files of a service of systemd, from the templates in ``deploy/systemd/``."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from attrs import frozen

from tower.cli.client import CommandFailed

#: First words of files that belong to Tower, and are replaced.
MARK = "# Written by 'tower install-systemd "

#: Directory of the programs in the templates.
_BIN = "/opt/tower/bin/"

#: Paths that need no quotation in a unit.
_PLAIN = re.compile(r"[\w./+,:@-]+", re.ASCII)

UNITS, USERS, SETTINGS = Path("/etc/systemd/system"), Path("/etc/sysusers.d"), Path("/etc/tower")


@frozen
class ServiceFile:
    """A file of a service.

    :ivar kept: it is the administrator's: never replaced, never removed.
    """

    path: Path
    content: str
    mode: int = 0o644
    kept: bool = False


@frozen
class ServiceFiles:
    """Files of the service of a program.

    :ivar program: ``proxy`` or ``agent``.
    :ivar executable: path of the program.
    """

    program: str
    executable: Path

    @property
    def unit(self) -> str:
        """The name of the service."""
        return f"tower-{self.program}"

    @property
    def user(self) -> str:
        """The user of the service."""
        return {"proxy": "tower", "agent": "tower-agent"}[self.program]

    @property
    def state(self) -> Path:
        """The state directory of the service."""
        return Path("/var/lib") / self.user

    @property
    def settings(self) -> ServiceFile:
        """The environment file; it may contain a join token."""
        name = f"{self.program}.env"
        return ServiceFile(SETTINGS / name, _template(name), 0o600, kept=True)

    @property
    def account(self) -> ServiceFile:
        """The definition of the user."""
        return ServiceFile(USERS / f"{self.unit}.conf", _template(f"{self.unit}.sysusers.conf"))

    @property
    def service(self) -> ServiceFile:
        """The unit.

        :raise CommandFailed: systemd would misread the program's path.
        """
        path = str(self.executable)
        if _PLAIN.fullmatch(path) is None:
            raise CommandFailed(
                f"{path} has blanks or special characters, which a unit cannot have: install Tower in "
                "/opt/tower"
            )
        name = f"{self.unit}.service"
        return ServiceFile(UNITS / name, _template(name).replace(f"{_BIN}{self.unit}", path))

    @property
    def low_ports(self) -> ServiceFile:
        """The drop-in that allows ports below 1024."""
        name = f"{self.unit}.service.d/low-ports.conf"
        return ServiceFile(UNITS / name, _template(name))


def _template(name: str) -> str:
    return (files("tower") / "deploy" / "systemd" / name).read_text()
