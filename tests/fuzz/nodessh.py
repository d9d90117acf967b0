"""A target in a node's SSH messages, to a client that logs in there, and opens a stream."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure

from tests.fakes.ssh_keys import KEYS
from tests.fakes.ssh_node import FarNode, NodeServer
from tests.fakes.tunnel_pairs import MemoryPipe
from tests.fuzz.engine import Broken, Target
from tests.fuzz.ssh import LONG, listen
from tests.fuzz.wire import recorded, records
from tower.conch.transport.keys import ED25519
from tower.conch.tunnel.framing import UNFRAMED
from tower.conch.tunnel.tunnel import SSHTunnel
from tower.errors import TowerError


class Liar(FarNode):
    """A node that changes its messages.

    :ivar change: gets the number of each message and the message; returns what is sent, or nothing.
    """

    host_key_algorithms = (ED25519,)

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.host_key_algorithms = (ED25519,)
        self.change = change

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """See `FarNode.dial`."""
        near, far = MemoryPipe(), MemoryPipe()
        near.other, far.other = far, near
        self.pipes += [near, far]
        server = NodeServer(self, self.clock)
        listen(server, self.change)
        server.tunnel = SSHTunnel(self.clock, far, server, UNFRAMED, UNFRAMED)
        server.tunnel.start()
        self.servers.append(server)
        return succeed(near)


@cache
def _conversation() -> tuple[bytes, ...]:
    """Return a good node's messages until a stream is open."""
    messages: list[bytes] = []

    def note(_: int, message: bytes) -> bytes:
        messages.append(message)
        return message

    _met(Liar(note))
    return tuple(messages)


def _met(far: Liar) -> None:
    """Log in, open a stream, and leave; whatever the node says, there is an answer in bounded time."""
    tunnel = far.tunnel(KEYS[ED25519], keepalive=5.0)
    ends: list[Any] = []
    tunnel.open().addBoth(ends.append)
    far.pump()
    streams: list[Any] = []
    if tunnel.is_open:
        tunnel.dial("10.0.0.1", 6443).addBoth(streams.append)
        far.pump()
    far.wait(LONG, 5.0)
    if not ends:
        raise Broken("it is not known whether the tunnel is open")
    for end in (*ends, *streams):
        if isinstance(end, Failure) and not isinstance(end.value, TowerError):
            raise Broken(f"it ended with {end.value!r}") from end.value
    tunnel.close("the end")
    far.wait(LONG, 5.0)
    for server in far.servers:
        server.close("the end")
    far.wait(LONG, 5.0)
    if tunnel.is_open:
        raise Broken("the tunnel does not go")
    if far.clock.getDelayedCalls():
        raise Broken("a closed tunnel has something on the clock")


def check_node(data: bytes, chance: random.Random) -> None:
    """Each record is the number of the message that it replaces, and the message."""
    changed = {record[0]: record[1:] for record in records(data) if record}
    _met(Liar(changed.get))


TARGETS = (
    Target(
        "node-messages",
        (
            *(recorded(bytes((number,)) + message) for number, message in enumerate(_conversation()[:250])),
            recorded(b"\5\x32" + bytes(9)),
            b"",
        ),
        (
            b"ssh-ed25519",
            b"rsa-sha2-512",
            b"server-sig-algs",
            b"hostkeys-00@openssh.com",
            b"publickey,password",
            b"Connection refused",
            b"\0\0\0\0",
            b"\x7f\xff\xff\xff",
        ),
        check_node,
    ),
)
