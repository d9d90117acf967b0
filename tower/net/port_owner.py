"""Process that listens on a port, for errors about a port in use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tower.escaping import escaped

#: State of a listening socket in ``/proc/net/tcp``.
_LISTENING = "0A"


def port_owner(port: int, proc: Path = Path("/proc")) -> str:
    """Return ``process 4711 (nginx)``; empty if it is unknown, as that of another user is except to root."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    if not sockets:
        return ""
    for process in proc.iterdir():
        try:
            if process.name.isdecimal() and any(os.readlink(each) in sockets for each in _files(process)):
                return f"process {process.name} ({escaped((process / 'comm').read_text().strip())})"
        except OSError:
            continue  # it ended, or belongs to another user
    return ""


def _inodes(port: int, proc: Path) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _files(process: Path) -> Iterator[Path]:
    return (process / "fd").iterdir()
