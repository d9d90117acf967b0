"""Targets below SSH: WebSocket frames, SSH packets, and the messages about channels."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from tests.fakes.frames import Autobahn, cut
from tests.fakes.muxes import KIND, MuxEnd
from tests.fakes.receivers import Recorder
from tests.fuzz.engine import Broken, Target
from tests.fuzz.mutation import cuts
from tower.conch.connection.channel import Channel
from tower.conch.connection.messages import (
    ADJUST,
    CLOSE,
    CONFIRM,
    DATA,
    END,
    EXTENDED,
    FAILURE,
    LONGEST_DATA,
    OPEN,
    REFUSE,
    REQUEST,
    SUCCESS,
)
from tower.conch.connection.window import BASE
from tower.conch.transport.ciphers import CIPHERS, Opener, make_opener, make_sealer
from tower.conch.transport.packets import ClearOpener, ClearSealer
from tower.errors import PeerError
from tower.websocket import frames

# Frames.  The first byte is whether they come from a client.


def _read_frames(masked: bool, pieces: Iterable[bytes]) -> tuple[bytes, list[frames.Control], bool]:
    """Return payload, control frames and whether all of it was taken."""
    reader = frames.FrameReader(from_client=masked)
    payload, controls = b"", list[frames.Control]()
    for piece in pieces:
        data = bytearray(piece)
        try:
            found = reader.feed(memoryview(data))
        except frames.BadFrame:
            return payload, controls, False
        for each in found:
            if isinstance(each, frames.Control):
                controls.append(each)
            else:
                payload += data[each[0] : each[1]]
    return payload, controls, True


def check_frames(data: bytes, chance: random.Random) -> None:
    """Any cut leads to the same; frames that we accept, Autobahn accepts and reads in the same way."""
    masked, wire = bool(data[:1] > b"\x7f"), data[1:]
    whole = _read_frames(masked, [wire])
    cut = _read_frames(masked, cuts(chance, wire))
    if whole[2] != cut[2] or (whole[2] and whole != cut):
        raise Broken(f"in one piece {whole}, cut {cut}")
    payload, controls, good = whole
    if not good or any(control.opcode == frames.CLOSE for control in controls):
        return
    peer = Autobahn(client=not masked)
    peer.feed(wire)
    if peer.protocol.state != peer.protocol.STATE_OPEN:
        raise Broken("Autobahn refuses what we take")
    theirs = b"".join(message for opcode, message in peer.got if opcode == frames.BINARY)
    if not payload.startswith(theirs):
        raise Broken(f"Autobahn reads {theirs!r}, we {payload!r}")
    if [tuple(each) for each in controls] != [each for each in peer.got if each[0] != frames.BINARY]:
        raise Broken(f"Autobahn reads {peer.got}, we {controls}")


def _frames(masked: bool) -> Iterator[bytes]:
    writer = frames.FrameWriter(to_server=masked)
    first = b"\xff" if masked else b"\0"
    yield first + writer.wrap(b"payload") + writer.wrap(b"ping", frames.PING) + writer.wrap(b"x" * 200)
    yield first + writer.wrap(b"y" * 70_000)[:3000]
    yield first + writer.wrap(b"", frames.PONG) + writer.wrap(b"\x03\xe8bye", frames.CLOSE)
    if masked:
        yield (
            first + cut(b"z" * 5000, b"abcd") + writer.wrap(b"ping", frames.PING) + cut(b"z" * 2048, b"efgh")
        )
    else:
        yield first + b"\x02\x03abc" + b"\x89\x01p" + b"\x00\x02de" + b"\x80\x01f" + b"\x82\x00"


_FRAME_WORDS = (
    b"\x82\x7e\x00\x7e",
    b"\x82\x7f" + bytes(6),
    b"\x00\x01a",
    b"\x80\x00",
    b"\x89\x00",
    b"\x82\xfe",
    b"\x00\xfe\x04\x00",
    b"\x80\xfe\x04\x00",
    b"\x02\xfe\x04\x00",
)

# Packets.  The first byte chooses how they are sealed.

_KEY, _IV = bytes(range(64)), bytes(range(12))
_PAYLOADS = tuple(
    bytes((kind,)) + bytes(range(size % 256)) for kind, size in ((94, 60), (2, 0), (80, 200), (97, 4))
)
_KINDS = (*CIPHERS, None)


def _opener(kind: bytes | None) -> Opener:
    return ClearOpener(limit=35_000) if kind is None else make_opener(kind, _KEY, _IV, limit=35_000)


def _opened(opener: Opener, wire: bytes) -> tuple[list[bytes], bool]:
    """Return the payloads in *wire*, and whether nothing was wrong."""
    view, found = memoryview(bytearray(wire)), []
    try:
        while len(view) >= 4:
            length = opener.wire_length(view, 0)
            if length > len(view):
                break
            found.append(opener.open(view[:length]))
            view = view[length:]
    except PeerError:
        return found, False
    return found, True


def _opened_in_place(opener: Opener, wire: bytes) -> tuple[list[bytes], bool]:
    buffer, plain = memoryview(bytearray(wire)), memoryview(bytearray(len(wire) + 64))
    found, begin = [], 0
    try:
        while len(buffer) - begin >= 4:
            packet = opener.open_next(buffer, begin, len(buffer), plain)
            if packet is None:
                break
            begin, until = packet
            found.append(bytes(plain[1:until]))
    except PeerError:
        return found, False
    return found, True


def check_packets(data: bytes, chance: random.Random) -> None:
    """Both ways of opening agree, and nothing comes out of a seal that did not go in."""
    kind, wire = _KINDS[data[0] % len(_KINDS)] if data else None, data[1:]
    one, two = _opened(_opener(kind), wire), _opened_in_place(_opener(kind), wire)
    if one != two:
        raise Broken(f"open returns {one}, open_next {two}")
    if kind is not None and tuple(one[0]) != _PAYLOADS[: len(one[0])]:
        raise Broken(f"a seal was broken: {one[0]}")


def _packets() -> Iterator[bytes]:
    for number, kind in enumerate(_KINDS):
        sealer = ClearSealer(0) if kind is None else make_sealer(kind, _KEY, _IV)
        yield bytes((number,)) + b"".join(map(sealer.seal, _PAYLOADS))


# Messages about channels, each behind its length in two bytes.


def _numbers(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "big") for value in values)


def _text(data: bytes) -> bytes:
    return _numbers(len(data)) + data


def records(data: bytes) -> list[bytes]:
    """Return the records with lengths of two bytes; the last may be cut."""
    found, place = [], 0
    while place + 2 <= len(data):
        size = int.from_bytes(data[place : place + 2], "big")
        found.append(data[place + 2 : place + 2 + size])
        place += 2 + size
    return found


def recorded(*messages: bytes) -> bytes:
    """Return what `records` takes apart."""
    return b"".join(len(message).to_bytes(2, "big") + message for message in messages)


class _Erratic(Recorder):
    """A receiver that does anything to its channel from within anything."""

    def __init__(self, chance: random.Random, channel: Channel) -> None:
        super().__init__()
        deeds = (
            channel.pause,
            channel.resume,
            channel.finish,
            channel.close,
            channel.abort,
            lambda: channel.send(bytes(chance.randrange(100_000))),
        )

        def act() -> None:
            if chance.random() < 0.3 and len(self.log) < 1000:
                chance.choice(deeds)()

        self.on = dict.fromkeys(("received", "ended", "drained", "closed"), act)


class _Peer:
    """One end of a tunnel that accepts anything.

    :ivar recorders: of the channels, in the order in which they were opened.
    :ivar answers: messages in answer, data not counted.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.end = MuxEnd(Clock())
        self.channels: list[Channel] = []
        self.recorders: list[_Erratic] = []
        self.answers = 0
        opening: Deferred[Channel] = self.end.mux.open(KIND, b"")
        opening.addCallback(self._take)
        self.end.mux.open(KIND, b"").addErrback(lambda failure: None)
        self.end.hear(bytes((CONFIRM,)) + _numbers(0, 40, BASE, LONGEST_DATA))

    def _take(self, channel: Channel) -> None:
        self.channels.append(channel)
        self.recorders.append(_Erratic(self._chance, channel))
        channel.receiver = self.recorders[-1]
        channel.resume()

    def receive(self, message: bytes) -> None:
        """Receive *message*, and write the answers."""
        self.end.hear(message)
        while self.end.incoming:
            incoming = self.end.incoming.pop()
            if self._chance.random() < 0.5:
                incoming.refuse("busy", "no")
            else:
                self._take(incoming.accept())
        if self._chance.random() < 0.3:
            self.end.turn()
        self.answers += sum(sent[0] != DATA for sent in self.end.wire.take())


def check_mux(data: bytes, chance: random.Random) -> None:
    """A `PeerError` or nothing; answers are few; a receiver gets the end once, and last."""
    peer = _Peer(chance)
    messages = [message for message in records(data) if message]
    try:
        for message in messages:
            peer.receive(message)
    except PeerError as error:
        peer.end.mux.lost(error)
    else:
        peer.end.mux.lost(ConnectionError("over"))
    for channel in peer.channels:
        for _ in range(1000):
            channel.resume()  # a paused receiver gets the end when it resumes
    if peer.answers > 10 + 4 * len(messages):
        raise Broken(f"{peer.answers} answers to {len(messages)} messages")
    for log in (recorder.log for recorder in peer.recorders):
        if log.count("closed") != 1 or log[-1] != "closed" or log.count("ended") > 1:
            raise Broken(f"a receiver got {log}")
    if peer.end.mux.channels or peer.end.budget.lent:
        raise Broken("a closed tunnel still uses memory")


_MESSAGES = (
    bytes((DATA,)) + _numbers(0) + _text(b"some data"),
    bytes((ADJUST,)) + _numbers(0, 70_000),
    bytes((OPEN,)) + _text(KIND) + _numbers(7, BASE, LONGEST_DATA) + _text(b"kubernetes"),
    bytes((CONFIRM,)) + _numbers(1, 41, BASE, LONGEST_DATA),
    bytes((REFUSE,)) + _numbers(1, 2) + _text(b"refused: no") + _text(b"en"),
    bytes((REQUEST,)) + _numbers(0) + _text(b"exec") + b"\1",
    bytes((EXTENDED,)) + _numbers(0, 1) + _text(b"x"),
    bytes((END,)) + _numbers(0),
    bytes((CLOSE,)) + _numbers(0),
    bytes((SUCCESS,)) + _numbers(0),
    bytes((FAILURE,)) + _numbers(0),
)

TARGETS = (
    Target("frames", (*_frames(masked=True), *_frames(masked=False)), _FRAME_WORDS, check_frames),
    Target("packets", tuple(_packets()), (), check_packets),
    Target(
        "mux",
        (
            recorded(*_MESSAGES[:8]),
            recorded(_MESSAGES[0], _MESSAGES[7], _MESSAGES[8]),
            recorded(*[_MESSAGES[0]] * 20, _MESSAGES[1], _MESSAGES[8]),
            recorded(*[_MESSAGES[2]] * 5),
            recorded(*(bytes((DATA,)) + _numbers(number % 3) + _text(bytes(900)) for number in range(4))),
        ),
        tuple(recorded(message) for message in _MESSAGES)
        + tuple(_numbers(n) for n in (0, 1, 2, 7, BASE, 2**32 - 1)),
        check_mux,
    ),
)
