"""Loopback ports for programs that are about to start; no other process gets the same ones meanwhile.

Several runs of tests are on one machine at once, and on a slow one seconds pass between the choice of a port
and the moment at which its program listens.  So a port that was merely free would be taken now and then.
"""

from __future__ import annotations

import socket
from collections import deque
from functools import cache

from tests.integration.programs import LOOPBACK

#: Ports that the kernel does not give to outgoing connections; those `PARTNER` above them are for KubeSphere.
UNASSIGNED = range(12_000, 22_000)
PARTNER = 10_000

#: Least number of ports of one process.
SHARE = 100

#: Number of single ports that stay bound: until long after their programs listen.
KEPT = 128

_kept: deque[socket.socket] = deque()
_locks: list[socket.socket | None] = []
_next: dict[range, int] = {}


def free_port() -> int:
    """Return a port that is not in use, and that the kernel does not give to any other process.

    It stays bound here, without listening.  A program can still listen on it, because both sides share the
    address (SO_REUSEADDR), as every server does; until then connections are refused.
    """
    keeper = socket.socket()
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    keeper.bind((LOOPBACK, 0))
    _kept.append(keeper)
    if len(_kept) > KEPT:
        _kept.popleft().close()
    port: int = keeper.getsockname()[1]
    return port


def free_ports(count: int) -> range:
    """Return *count* consecutive ports that, like those `PARTNER` above them, are not in use now.

    They may be opened much later: the kernel does not give them to any process, and no other process of tests
    gets them.  This process gets them again when it has used its whole share.
    """
    share = _share(-(-count // SHARE))
    for _ in range(len(share)):
        first = _next.get(share, share.start)
        if first + count > share.stop:
            first = share.start
        _next[share] = first + count
        ports = range(first, first + count)
        if all(is_free(port) and is_free(port + PARTNER) for port in ports):
            return ports
    raise AssertionError(f"no {count} consecutive ports are free in the share of this process, {share}")


def is_free(port: int) -> bool:
    """Return whether a port can be listened on now."""
    try:
        socket.create_server((LOOPBACK, port)).close()
    except OSError:
        return False
    return True


@cache
def _share(shares: int) -> range:
    """Return the ports of this process: a number of consecutive shares, which it owns until it ends."""
    for first in range(UNASSIGNED.start, UNASSIGNED.stop - (shares - 1) * SHARE, SHARE):
        locks = [_lock(first + number * SHARE) for number in range(shares)]
        if None not in locks:
            _locks.extend(locks)
            return range(first, first + shares * SHARE)
        for lock in locks:
            if lock is not None:
                lock.close()
    raise AssertionError("other processes have all ports")


def _lock(first: int) -> socket.socket | None:
    """Take the share that begins at a port, under a name that only one process of the machine can have."""
    lock = socket.socket(socket.AF_UNIX)
    try:
        lock.bind(f"\0tower-tests-ports-{first}")
    except OSError:
        lock.close()
        return None
    return lock
