"""OpenSSH servers of a test: started without privileges, paused, killed, and ended with the test."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, NotInTimeError, Program, run, wait_for

SSHD = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
ENDING = 5.0  # s between SIGTERM and SIGKILL
SSH_PORT = 22

#: Account of the server and of its users, if we are root: then OpenSSH needs a system that is set up for it.
UNPRIVILEGED = "nobody"
#: Newer servers refuse clients for a while after failed logins, which tests cause on purpose.
PENALTIES = "PerSourcePenalties"

SETTINGS = {
    "StrictModes": "no",
    "UsePAM": "yes",
    "UseDNS": "no",
    "PidFile": "none",
    "LogLevel": "VERBOSE",
    "AllowTcpForwarding": "yes",
    "PermitTTY": "no",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "MaxStartups": "200",
    "MaxAuthTries": "20",
}
#: A root server could do everything in the system: it gets only what it needs.
ROOT_SETTINGS = {"UsePAM": "no", "PermitRootLogin": "prohibit-password"}


def new_key(kind: str) -> ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Return a new private key.

    :param kind: ``ed25519``, ``ecdsa``, ``ecdsa384``, ``ecdsa521`` or ``rsa``.
    """
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    curves: dict[str, ec.EllipticCurve] = {
        "ecdsa": ec.SECP256R1(),
        "ecdsa384": ec.SECP384R1(),
        "ecdsa521": ec.SECP521R1(),
    }
    return ec.generate_private_key(curves[kind])


def write_key(path: Path, kind: str = "ed25519") -> str:
    """Write a new private key as OpenSSH does, 0600; return the line of its public half."""
    key = new_key(kind)
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def is_alive(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    return parent(pid) is not None


def parent(pid: int) -> int | None:
    """Return the parent of a process; None if it has ended."""
    try:
        # The name in parentheses may hold anything, so the next fields are found from the end.
        state, above = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except OSError:
        return None
    return None if state == "Z" else int(above)


def descendants(pid: int) -> list[int]:
    """Return the processes below a process, the oldest first."""
    parents: dict[int, list[int]] = {}
    for each in (int(entry) for entry in os.listdir("/proc") if entry.isdigit()):
        if (above := parent(each)) is not None:
            parents.setdefault(above, []).append(each)
    found, ahead = [], [pid]
    while ahead:
        below = parents.get(ahead.pop(), [])
        found += below
        ahead += below
    return sorted(found)


@cache
def knows_penalties() -> bool:
    """Return whether this machine's server can be configured not to keep a list of offenders."""
    assert SSHD is not None
    # It complains of its host keys as well, unless it complains of this first.
    asked = run([SSHD, "-t", "-f", "/dev/null", "-o", f"{PENALTIES}=no"])
    return PENALTIES.lower() not in asked.stderr.decode().lower()


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class Sshd:
    """The OpenSSH server of a node.

    :param directory: for its files; made if missing, and made passable for others, together with those of its
    parents that are ours, because the server runs as another user if we are root.
    :param port: to listen on; a free one without it.
    :param host: address to listen on.
    :param host_key_types: see `new_key`.
    :param authorized: lines of the public keys that may log in.
    :param options: additional settings, by OpenSSH's names.
    :param user: to run as, if we are root: its only account.  ``root`` can run commands,
        `UNPRIVILEGED` has no shell.
    :ivar user: the account to log in as.
    :ivar authorized_keys: the file, which may be rewritten at any time.
    :ivar host_keys: lines of its public keys.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        host: str = LOOPBACK,
        host_key_types: Sequence[str] = ("ed25519",),
        authorized: Iterable[str] = (),
        options: Mapping[str, str] | None = None,
        user: str = UNPRIVILEGED,
    ) -> None:
        self.directory = directory
        self.host = host
        self.port = port or free_port()
        self.user = user if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        self.authorized_keys = directory / "authorized_keys"
        self._types = tuple(host_key_types)
        self._options = {**SETTINGS, **(ROOT_SETTINGS if self.user == "root" else {}), **(options or {})}
        self._paused: list[int] = []
        directory.mkdir(parents=True, exist_ok=True)
        self._open_to_passers_by()
        self.host_keys: list[str] = []
        self.change_host_keys()
        self.authorize(*authorized)
        self._program = self._configured()

    @property
    def address(self) -> str:
        """``host:port``, as in a list of nodes."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process that listens."""
        return self._program.pid

    def authorize(self, *lines: str) -> None:
        """Let these keys log in from now on, and no others."""
        fresh = self.directory / "authorized_keys.new"
        fresh.write_text("".join(f"{line.strip()}\n" for line in lines))
        fresh.chmod(0o644)
        fresh.rename(self.authorized_keys)

    def change_host_keys(self) -> None:
        """Make new host keys, for its next start."""
        self.host_keys = []
        for kind in self._types:
            path = self._host_key(kind)
            self.host_keys.append(write_key(path, kind))
            self._give(path)

    def known_hosts_line(self, name: str | None = None) -> str:
        """Return its lines of a known_hosts file, one for each host key.

        :param name: another name for its host.
        """
        host = name or self.host
        place = host if self.port == SSH_PORT else f"[{host}]:{self.port}"
        return "\n".join(f"{place} {line}" for line in self.host_keys) + "\n"

    def start(self) -> None:
        """Start it; return when it accepts connections."""
        self._program.start()
        wait_for(f"the sshd at {self.address}", self._listens)

    def running(self) -> bool:
        """Return whether it listens."""
        return self._program.running()

    def sessions(self) -> int:
        """Return the number of its processes for connections: one or two for each."""
        return len(descendants(self.pid)) if self.running() else 0

    def stop(self) -> None:
        """End it and every connection, as in a shutdown of the machine."""
        everybody = self._every_user()
        signal_all(everybody, signal.SIGTERM)
        signal_all(everybody, signal.SIGCONT)
        self._bury(everybody, ENDING)

    def kill(self) -> None:
        """End it and every connection at once."""
        everybody = self._every_user()
        self._bury(everybody, 0.0)

    def cut(self) -> None:
        """End every connection; new connections are accepted."""
        signal_all(descendants(self.pid), signal.SIGKILL)

    def pause(self) -> None:
        """Stop it and every connection, as on a machine that hangs; its kernel still answers."""
        self._paused = self._every_user()

    def resume(self) -> None:
        """Continue after `pause`."""
        signal_all(self._paused, signal.SIGCONT)
        self._paused = []

    def log(self) -> str:
        """Return its log so far."""
        return self._program.output()

    def _every_user(self) -> list[int]:
        """Suspend and return all its processes, so that none of them can start another one."""
        if not self._program.running():
            return []
        everybody: list[int] = []
        fresh = [self.pid]
        while fresh:
            signal_all(fresh, signal.SIGSTOP)
            everybody += fresh
            fresh = [pid for pid in descendants(self.pid) if pid not in everybody]
        return everybody

    def _bury(self, everybody: list[int], patience: float) -> None:
        """Wait for processes to end, and end them if they do not within *patience* s."""
        if not everybody:
            return
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self._program.running():
            time.sleep(0.02)
        children = [pid for pid in everybody if pid != self.pid]
        while time.monotonic() < deadline and any(map(is_alive, children)):
            time.sleep(0.02)
        signal_all(children, signal.SIGKILL)
        self._program.kill()
        self._paused = []

    def _listens(self) -> bool:
        if not self._program.running():
            raise NotInTimeError(f"sshd ended: {self.log()[-2000:]}")
        try:
            with socket.create_connection((self.host, self.port), timeout=2) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _host_key(self, kind: str) -> Path:
        return self.directory / f"host_key_{kind}"

    def _give(self, path: Path) -> None:
        if os.geteuid() == 0:
            owner = pwd.getpwnam(self.user)
            os.chown(path, owner.pw_uid, owner.pw_gid)

    def _open_to_passers_by(self) -> None:
        if os.geteuid() == 0 and self.user != "root":
            for place in (self.directory, *self.directory.resolve().parents):
                if not place.stat().st_mode & 0o001:
                    place.chmod(place.stat().st_mode | 0o011)

    def _configured(self) -> Program:
        assert SSHD is not None, "there is no OpenSSH server: ask shutil.which first"
        if os.geteuid() == 0 and self.user == "root":
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # as its service does before it starts
        lines = [f"ListenAddress {self.address}", f"AuthorizedKeysFile {self.authorized_keys.resolve()}"]
        lines += [f"HostKey {self._host_key(kind).resolve()}" for kind in self._types]
        lines += [f"{name} {value}" for name, value in self._options.items()]
        lines += [f"{PENALTIES} no"] if knows_penalties() else []
        config = self.directory / "sshd_config"
        config.write_text("\n".join([*lines, ""]))
        config.chmod(0o644)
        argv = [SSHD, "-D", "-e", "-f", str(config.resolve())]
        return Program(f"sshd-{self.port}", argv, self.directory, user=self.user)
