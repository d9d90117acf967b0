"""Unauthenticated clients that connect, stay silent, and reconnect, as a separate program.

``python -m tests.attacks.holding PORT[,PORT…] --hold N --rate F --sources 127.0.0.2,127.0.0.3`` holds up to N
connections, and opens F more each second, closing its own oldest for them.  It prints ``ready`` once it has
opened N.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import resource
import socket
import time
from collections import deque

from tests.integration.programs import LOOPBACK

BURST = 50  # connections opened in one go while N are not reached
PAUSE = 0.02  # s between two bursts
_NO_PORT = (
    24  # IP_BIND_ADDRESS_NO_PORT: ports are taken when connecting, so 28,000 are there for each address
)


class Holding:
    """:ivar opened: number of connections so far."""

    def __init__(self, ports: list[int], sources: list[str], hold: int) -> None:
        self.opened = 0
        self._routes = itertools.cycle(itertools.product(ports, sources))
        self._hold = hold
        self._open: deque[socket.socket] = deque()

    def come(self) -> None:
        """Open a connection, from the next address to the next port; close the oldest if necessary."""
        port, source = next(self._routes)
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_IP, _NO_PORT, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # no TIME_WAIT
        sock.bind((source, 0))
        with contextlib.suppress(BlockingIOError):
            if (error := sock.connect_ex((LOOPBACK, port))) not in (0, errno.EINPROGRESS):
                raise OSError(error, "connect")
        self._open.append(sock)
        self.opened += 1
        if len(self._open) > self._hold:
            self._open.popleft().close()


def main() -> None:
    """Attack until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ports")
    parser.add_argument("--hold", type=int, required=True)
    parser.add_argument("--rate", type=int, required=True)
    parser.add_argument("--sources", default=LOOPBACK)
    options = parser.parse_args()
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limits[1], limits[1]))
    holding = Holding(
        [int(port) for port in options.ports.split(",")], options.sources.split(","), options.hold
    )
    while holding.opened < options.hold:
        for _ in range(BURST):
            holding.come()
        time.sleep(PAUSE)
    print("ready", flush=True)
    due = time.monotonic()
    while True:
        due += 1 / options.rate
        time.sleep(max(0.0, due - time.monotonic()))
        holding.come()


if __name__ == "__main__":
    main()
