"""OpenSSH: ``ssh -R`` to the backend; ``ssh -L`` and Tower's node tunnel to one ``sshd``."""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import LOOPBACK, NotHere, Process, free_port, listens
from benchmarks.setting import Ground, System, http_way, stream_way
from tower.conch.transport.keys import KeyPair
from tower.native import VARIABLE

#: The cipher of Tower's agent tunnels.
GCM = "Ciphers aes128-gcm@openssh.com"


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotHere(f"{name} is not installed")
    return found


def _public_line(key: KeyPair) -> str:
    return f"ssh-ed25519 {base64.b64encode(key.blob).decode()}"


class _Folder:
    """A directory for files of another user, with search permission for all.

    :param uid: owner of the files; None: the current user.
    """

    def __init__(self, ground: Ground, uid: int | None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="tower-bench-ssh-"))
        ground.stack.callback(shutil.rmtree, self.path)
        self.path.chmod(0o711)
        self._uid = uid

    def write(self, name: str, content: str, *, theirs: bool = True) -> Path:
        path = self.path / name
        path.touch(0o600)
        path.write_text(content)
        if theirs and self._uid is not None:
            os.chown(path, self._uid, -1)
        return path


class Server:
    """An ``sshd`` with one account and one authorized key.

    It does not run as root, because sshd then requires a prepared system.

    :param settings: additional lines of its configuration.
    :ivar user: name of the account.
    :ivar key: file with the private key.
    :ivar known: known_hosts file with its host key.
    :raise NotHere: OpenSSH is not installed.
    """

    def __init__(self, ground: Ground, name: str, *settings: str) -> None:
        sshd = _program("sshd")
        uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
        self.user = pwd.getpwuid(os.geteuid() if uid is None else uid).pw_name
        self.port = free_port()
        folder = _Folder(ground, uid)
        key, host_key = KeyPair.generate(), KeyPair.generate()
        lines = [
            f"ListenAddress {LOOPBACK}:{self.port}",
            f"HostKey {folder.write('host-key', host_key.to_openssh().decode())}",
            f"AuthorizedKeysFile {folder.write('authorized', _public_line(key) + chr(10))}",
            "StrictModes no",
            "UsePAM yes",
            "PidFile none",
            "AllowTcpForwarding yes",
            *settings,
        ]
        config = folder.write("config", "\n".join([*lines, ""]))
        self.process = Process(name, [sshd, "-D", "-e", "-f", str(config)], ground.folder, uid=uid)
        ground.stack.callback(self.process.stop)
        self.process.wait_until(lambda: listens(self.port), "its port")
        known = f"[{LOOPBACK}]:{self.port} {_public_line(host_key)}\n"
        self.known = folder.write("known", known, theirs=False)
        self.key = folder.write("key", key.to_openssh().decode(), theirs=False)

    def client(self, ground: Ground, name: str, *forwards: str) -> Process:
        """Start ``ssh`` with the options *forwards*; the server determines the cipher."""
        options = [
            "BatchMode=yes",
            "IdentitiesOnly=yes",
            "StrictHostKeyChecking=yes",
            f"UserKnownHostsFile={self.known}",
            "ExitOnForwardFailure=yes",
        ]
        return ground.start(
            name,
            *(_program("ssh"), "-F", "/dev/null", "-N", "-T", "-p", str(self.port), "-l", self.user),
            *("-i", str(self.key)),
            *(word for option in options for word in ("-o", option)),
            *forwards,
            LOOPBACK,
        )


def remote_forward(ground: Ground) -> System:
    """Return ``ssh -R`` to the backend's port for raw streams, through a new ``sshd``.

    :raise NotHere: OpenSSH is not installed.
    """
    server = Server(ground, "sshd", GCM)
    remote = free_port()
    client = server.client(ground, "ssh", "-R", f"{LOOPBACK}:{remote}:{LOOPBACK}:{ground.stream}")
    client.wait_until(lambda: listens(remote), "its tunnel")
    return System(
        "openssh", stream_way(remote) | http_way(remote), {"proxy": server.process, "agent": client}
    )


def local_forward(ground: Ground, name: str, server: Server) -> System:
    """Return ``ssh -L`` to the backend through *server*."""
    stream, http = free_port(), free_port()
    words = [
        word
        for local, far in ((stream, ground.stream), (http, ground.http))
        for word in ("-L", f"{LOOPBACK}:{local}:{LOOPBACK}:{far}")
    ]
    client = server.client(ground, name, *words)
    client.wait_until(lambda: listens(stream) and listens(http), "its tunnel")
    return System(name, stream_way(stream) | http_way(http), {"proxy": client, "agent": server.process})


def node_tunnel(ground: Ground, name: str, server: Server, native: str = "") -> System:
    """Return Tower's tunnel to *server* as a node; see `benchmarks.nodetunnel`.

    :param native: value of ``TOWER_NATIVE`` for the tunnel; empty: that of this process.
    """
    stream, http = free_port(), free_port()
    proxy = ground.start(
        name,
        *(sys.executable, "-m", "benchmarks.nodetunnel", f"--port={server.port}", f"--user={server.user}"),
        *(f"--key={server.key}", f"--known-hosts={server.known}"),
        *(f"{stream}={ground.stream}", f"{http}={ground.http}"),
        extra={VARIABLE: native} if native else None,
    )
    proxy.wait_until(lambda: listens(stream) and listens(http), "its tunnel")
    return System(name, stream_way(stream) | http_way(http), {"proxy": proxy, "agent": server.process})
