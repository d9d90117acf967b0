"""OpenSSH: ``ssh -R`` beside the backend, ``sshd`` in the middle, aes128-gcm as the others."""

from __future__ import annotations

import base64
import os
import pwd
import shutil
import tempfile
from pathlib import Path

from benchmarks.processes import LOOPBACK, NotHere, Process, free_port, listens
from benchmarks.setting import Ground, System, http_way, stream_way
from tower.conch.keys import KeyPair

_CIPHER = "aes128-gcm@openssh.com"


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        raise NotHere(f"there is no {name} here")
    return found


def _public_line(key: KeyPair) -> str:
    return f"ssh-ed25519 {base64.b64encode(key.blob).decode()}"


class _Folder:
    """A directory for files of somebody else, who may pass through it.

    :param uid: whose the files are; None if ours.
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


def remote_forward(ground: Ground) -> System:
    """Return ``ssh -R`` to the backend's port for raw streams, through an ``sshd`` of our own.

    The server does not run as root, for whom it wants a system set up.

    :raise NotHere: OpenSSH is not installed.
    """
    ssh, sshd = _program("ssh"), _program("sshd")
    uid = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    user = pwd.getpwuid(os.geteuid() if uid is None else uid).pw_name
    folder = _Folder(ground, uid)
    key, host_key = KeyPair.generate(), KeyPair.generate()
    port, remote = free_port(), free_port()
    settings = [
        f"ListenAddress {LOOPBACK}:{port}",
        f"HostKey {folder.write('host-key', host_key.to_openssh().decode())}",
        f"AuthorizedKeysFile {folder.write('authorized', _public_line(key) + chr(10))}",
        "StrictModes no",
        "UsePAM yes",
        "PidFile none",
        "AllowTcpForwarding yes",
        f"Ciphers {_CIPHER}",
    ]
    config = folder.write("config", "\n".join([*settings, ""]))
    server = Process("sshd", [sshd, "-D", "-e", "-f", str(config)], ground.folder, uid=uid)
    ground.stack.callback(server.stop)
    server.wait_until(lambda: listens(port), "its port")
    known = folder.write("known", f"[{LOOPBACK}]:{port} {_public_line(host_key)}\n", theirs=False)
    options = [
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={known}",
        "ExitOnForwardFailure=yes",
        f"Ciphers={_CIPHER}",
    ]
    client = ground.start(
        "ssh",
        *(ssh, "-F", "/dev/null", "-N", "-T", "-p", str(port), "-l", user),
        *("-i", str(folder.write("key", key.to_openssh().decode(), theirs=False))),
        *(word for option in options for word in ("-o", option)),
        *("-R", f"{LOOPBACK}:{remote}:{LOOPBACK}:{ground.stream}", LOOPBACK),
    )
    client.wait_until(lambda: listens(remote), "its tunnel")
    return System("openssh", stream_way(remote) | http_way(remote), {"proxy": server, "agent": client})
