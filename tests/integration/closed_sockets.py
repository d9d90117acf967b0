"""Sockets of Tower's connections in this process: each is closed shortly after its connection is lost."""

from __future__ import annotations

from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.task import deferLater

from tower.net.lingering_close import Lingering

reactor: Any = _reactor


async def sockets_closed() -> None:
    """Wait until the last one is closed, by its peer or after `tower.net.lingering_close.LINGER`.

    Make it the first cleanup of a test, which is the last to run.
    """
    while any(isinstance(reader, Lingering) for reader in reactor.getReaders()):
        await deferLater(reactor, 0.01)
