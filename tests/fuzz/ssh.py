"""Targets in the SSH handshake: bytes in the clear, and messages before encryption."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock

from tests.fakes.ssh_pairs import HOST_KEY, Gate, Pair, Wire
from tests.fuzz.engine import Broken, Target
from tests.fuzz.mutation import cuts
from tests.fuzz.wire import recorded, records
from tower.conch.transport.fields import Malformed
from tower.conch.transport.keys import KeyPair
from tower.conch.transport.packets import ClearSealer
from tower.conch.transport.transport import SecureTransport
from tower.errors import TowerError
from tower.v2.hello import AgentHello, ProxyHello
from tower.v2.transport import ClientTransport, ServerTransport

#: A peer that stays longer than this is authenticated, or disconnected, s.
LONG = 200

_KEY = KeyPair.generate()


def _end(clock: Clock, *, server: bool) -> SecureTransport:
    if server:
        return ServerTransport(clock, (HOST_KEY,), Gate(), keepalive=0)
    return ClientTransport(clock, _KEY, "alpha", (HOST_KEY.fingerprint,), AgentHello(), keepalive=0)


def _met(wire: list[bytes], *, server: bool) -> tuple[bool, int]:
    """Return whether an end closed the connection on *wire*, and how many messages it sent."""
    clock, transport = Clock(), Wire()
    end = _end(clock, server=server)
    sent: list[int] = []
    honest = end.sendPacket

    def count(kind: int, payload: bytes) -> None:
        sent.append(kind)
        honest(kind, payload)

    end.sendPacket = count  # type: ignore[method-assign, assignment]
    end.ready.addErrback(lambda failure: None)  # type: ignore[attr-defined]
    end.makeConnection(transport)
    for piece in wire:
        if not transport.disconnecting:
            end.dataReceived(piece)
    closed = transport.disconnecting
    clock.advance(LONG)
    if not transport.disconnecting:
        raise Broken("an end waits for ever")
    end.connectionLost()
    if clock.getDelayedCalls():
        raise Broken("a closed end has something on the clock")
    return closed, len(sent)


def check_clear(data: bytes, chance: random.Random) -> None:
    """Any cut leads to the same; every end closes sooner or later."""
    server, wire = bool(data[:1] > b"\x7f"), data[1:]
    whole, cut = _met([wire], server=server), _met(cuts(chance, wire), server=server)
    if whole != cut:
        raise Broken(f"in one piece {whole}, cut {cut}")
    if whole[1] > 20 + len(wire) // 16:
        raise Broken(f"{whole[1]} messages in answer to {len(wire)} B")


@cache
def _conversation() -> tuple[tuple[int, int, bytes], ...]:
    """Return the messages of a good handshake: the sender, the sender's count, and the message."""
    messages: list[tuple[int, int, bytes]] = []
    pair = Pair()
    for side, end in enumerate(pair.ends):

        def note(number: int, message: bytes, side: int = side) -> bytes:
            messages.append((side, number, message))
            return message

        listen(end, note)
    pair.connect()
    return tuple(messages)


def listen(end: SecureTransport, change: Any) -> None:
    """Change the messages of *end* before encryption; an empty message is left out."""
    honest, count = end.sendPacket, iter(range(1 << 30))

    def send(kind: int, payload: bytes) -> None:
        message = change(next(count), b"%c%b" % (kind, payload))
        if message:
            honest(message[0], message[1:])

    end.sendPacket = send  # type: ignore[method-assign, assignment]


def check_messages(data: bytes, chance: random.Random) -> None:
    """Either end may send anything: the other gets through, or ends with a `TowerError`, in bounded time.

    Each record is the side, the number of the message that it replaces, and the message.
    """
    changed = {(record[0] & 1, record[1]): record[2:] for record in records(data) if len(record) >= 2}
    pair = Pair()
    pair.cut = chance.choice((None, None, 1, 7, 100))
    for side, end in enumerate(pair.ends):
        listen(end, lambda number, message, side=side: changed.get((side, number), message))
    pair.connect()
    if not pair.lost and chance.random() < 0.3:
        chance.choice(pair.ends).start_rekey()
        pair.pump()
    for _ in range(LONG):
        pair.clock.advance(1)
        pair.pump()
    ready = [end.ready.called for end in (pair.server, pair.client)]
    if not pair.lost and ready != [True, True]:
        raise Broken(f"no end was closed, but ready is {ready}")
    for end, reason in pair.lost.items():
        if not isinstance(reason, TowerError | ConnectionDone):
            raise Broken(f"{type(end).__name__} ended with {reason!r}") from reason
    for end in pair.ends:
        if end not in pair.lost:
            end.close("the end")
    pair.pump()
    if len(pair.lost) < 2 or pair.clock.getDelayedCalls():
        raise Broken("an end does not go")


def check_hello(data: bytes, chance: random.Random) -> None:
    """A hello is read or refused; one that was read is written as something that reads as the same."""
    for kind in (AgentHello, ProxyHello):
        try:
            hello = kind.decode(data)
        except Malformed:
            continue
        if len(hello.encode()) <= 16 * 1024 and kind.decode(hello.encode()) != hello:
            raise Broken(f"{hello} is not what was written")


def _clear_corpus() -> tuple[bytes, ...]:
    found = []
    for side, first in ((0, b"\0"), (1, b"\xff")):
        sealer = ClearSealer(0)
        own = [message for whose, _, message in _conversation() if whose == side]
        wire = b"SSH-2.0-Peer_1\r\n" + b"".join(sealer.seal(message) for message in own[:4])
        found += [
            first + wire,
            first + wire[:20],
            first + b"hello\r\n" + wire,
            first + wire.replace(b"\r\n", b"\n", 1),
        ]
    return tuple(found)


def _message_corpus() -> tuple[bytes, ...]:
    single = [
        recorded(bytes((side, number)) + message) for side, number, message in _conversation() if number < 256
    ]
    return (*single, b"".join(single[2:5]), recorded(b"\0\5"), recorded(b"\1\6\x05" + bytes(5)), b"")


_HELLOS = (
    AgentHello(version="1", name="host", targets=("kubernetes", "db")).encode(),
    ProxyHello(version="1", host_keys=(HOST_KEY.fingerprint,), keepalive=10.0).encode(),
    b'{"version":"1","targets":["a",1],"keepalive":1e999}',
)
_WORDS = (
    b"ssh-ed25519",
    b"curve25519-sha256",
    b"kex-strict-c-v00@openssh.com",
    b"none",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\r\n",
    b"SSH-2.0-",
)

TARGETS = (
    Target("ssh", _clear_corpus(), _WORDS, check_clear),
    Target(
        "ssh-messages",
        _message_corpus(),
        (*_WORDS, b"publickey", b"password", b"hello@tower.kubesphere.io"),
        check_messages,
    ),
    Target(
        "hello", _HELLOS, (b"null", b"[]", b"{}", b'"', b"NaN", b"1e400", b"\\ud800", b"[" * 500), check_hello
    ),
)
