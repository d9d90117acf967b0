"""Tests of `tower.websocket.server_handshake`; Autobahn's own handshake is the reference."""

from __future__ import annotations

from autobahn.twisted.websocket import WebSocketServerFactory, WebSocketServerProtocol
from autobahn.websocket.types import ConnectionDeny, ConnectionRequest
from hypothesis import example, given
from hypothesis import strategies as st
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.net.pipe_transport import PipeTransport
from tower.websocket.server_handshake import NoUpgrade, answer_upgrade

PROTOCOL = "tower-v2"
KEY = b"dGhlIHNhbXBsZSBub25jZQ=="  # RFC 6455 section 1.3

LINE = b"GET /agent HTTP/1.1"
GOOD = {
    b"Host": b"proxy.example:8080",
    b"Upgrade": b"websocket",
    b"Connection": b"Upgrade",
    b"Sec-WebSocket-Key": KEY,
    b"Sec-WebSocket-Version": b"13",
    b"Sec-WebSocket-Protocol": b"tower-v2",
}


def head(fields: list[tuple[bytes, bytes]], line: bytes = LINE) -> bytes:
    """Return a request."""
    return b"\r\n".join([line, *(b"%b: %b" % field for field in fields), b"", b""])


def changed(**values: bytes | None) -> list[tuple[bytes, bytes]]:
    """Return the fields of a good request, some with another value, or without them."""
    fields = dict(GOOD)
    for name, value in values.items():
        key = next(own for own in GOOD if own.lower() == name.replace("_", "-").encode())
        if value is None:
            del fields[key]
        else:
            fields[key] = value
    return list(fields.items())


class Reference(WebSocketServerProtocol):
    """Autobahn's server, with our choice of a subprotocol."""

    def onConnect(self, request: ConnectionRequest) -> str:
        """Take the one subprotocol that we speak."""
        if request.protocols != [PROTOCOL]:
            raise ConnectionDeny(ConnectionDeny.BAD_REQUEST, "no")
        return PROTOCOL


def autobahn(request: bytes) -> bytes:
    """Return what Autobahn answers."""
    factory = WebSocketServerFactory(server="", reactor=MemoryReactorClock())
    factory.setProtocolOptions(versions=[13], webStatus=False, openHandshakeTimeout=0)
    socket = Reference()
    socket.factory = factory
    pipe = FakePipe()
    PipeTransport(pipe, socket).start()
    socket.dataReceived(request)
    return bytes(pipe.sent)


def ours(request: bytes) -> bytes:
    """Return what we answer."""
    try:
        return answer_upgrade(request, [PROTOCOL.encode()])[0]
    except NoUpgrade as error:
        return error.answer()


def read(response: bytes) -> tuple[bytes, set[bytes]]:
    """Return the status and the fields of a response."""
    status, *fields = response.split(b"\r\n\r\n")[0].split(b"\r\n")
    return status.split(b" ")[1], {field.lower() for field in fields}


NAMES = st.sampled_from([*GOOD, b"host", b"CONNECTION", b"Origin", b"Sec-WebSocket-Extensions", b"Cookie"])
VALUES = st.sampled_from(
    [
        *GOOD.values(),
        b"",
        b"upgrade",
        b"keep-alive, Upgrade",
        b"keep-alive",
        b"WebSocket",
        b"h2c, websocket",
        b"13 ",
        b"8",
        b"013",
        b"x",
        b"null",
        b"AAAAAAAAAAAAAAAAAAAAAA==",
        b"AAAAAAAAAAAAAAAAAAAAA===",
        b"tower-v2, tower-v2",
        b"tower-v2,other",
        b"permessage-deflate",
    ]
)
LINES = st.sampled_from(
    [
        LINE,
        b"GET / HTTP/1.1",
        b"GET /a?b=c HTTP/1.1",
        b"POST / HTTP/1.1",
        b"GET / HTTP/1.0",
        b"GET /a#b HTTP/1.1",
        b"GET  / HTTP/1.1",
        b"GET /",
    ]
)


class UpgradeTests(SynchronousTestCase):
    def test_answer(self) -> None:
        """The answer proves that the handshake was understood (RFC 6455 section 1.3)."""
        status, fields = read(ours(head(changed())))
        self.assertEqual(status, b"101")
        self.assertIn(b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=", fields)

    def test_as_autobahn(self) -> None:
        """A good request gets the very fields that Autobahn answers with."""
        for fields in (changed(), changed(connection=b"keep-alive, upgrade"), changed(upgrade=b"WebSocket")):
            self.assertEqual(read(ours(head(fields))), read(autobahn(head(fields))))

    @given(
        LINES,
        st.dictionaries(st.sampled_from(list(GOOD)), st.none() | VALUES, max_size=2),
        st.lists(st.tuples(NAMES, VALUES), max_size=2),
    )
    @example(LINE, {}, [])
    def test_differential(
        self, line: bytes, changes: dict[bytes, bytes | None], more: list[tuple[bytes, bytes]]
    ) -> None:
        """Autobahn accepts and answers all accepted requests alike, and rejects all rejected ones."""
        fields = [(name, changes.get(name, value)) for name, value in GOOD.items()]
        request = head([(name, value) for name, value in fields if value is not None] + more, line)
        expected = autobahn(request)
        status, found = read(ours(request))
        if status == b"101":
            names = [name for name, _ in more]
            # several are fine (RFC 6455 section 11.3.2), but Autobahn takes one
            if b"Origin" not in names and names.count(b"Sec-WebSocket-Extensions") < 2:
                self.assertEqual((status, found), read(expected))
        else:
            self.assertIn(status, (b"400", b"426"))
            self.assertFalse(_is_plain(line, changes, more), request)

    def test_refusals(self) -> None:
        """A missing, repeated or different field is rejected, with the reason."""
        for reason, fields in (
            (b"one Host", changed(host=None)),
            (b"one Host", [*changed(), (b"Host", b"b")]),
            (b"WebSockets only", changed(upgrade=None)),
            (b"WebSockets only", changed(upgrade=b"h2c")),
            (b"Connection", changed(connection=b"close")),
            (b"13", changed(sec_websocket_version=b"8")),
            (b"13", changed(sec_websocket_version=None)),
            (b"Key", changed(sec_websocket_key=b"short")),
            (b"Key", [*changed(), (b"sec-websocket-key", KEY)]),
            (b"tower-v2", changed(sec_websocket_protocol=b"Tower-v2")),
            (b"tower-v2", changed(sec_websocket_protocol=b"tower-v2, v1")),
            (b"tower-v2", [*changed(), (b"Sec-WebSocket-Protocol", b"tower-v2")]),
        ):
            answer = ours(head(fields))
            self.assertTrue(answer.startswith(b"HTTP/1.1 4"), answer)
            before, text = answer.split(b"\r\n\r\n")
            self.assertIn(reason, text)
            self.assertIn(b"\r\nContent-Length: %d" % len(text), before)
            self.assertIn(b"\r\nConnection: close", before)

    def test_version(self) -> None:
        """The response to another version has ours (RFC 6455 section 4.4)."""
        status, fields = read(ours(head(changed(sec_websocket_version=b"8"))))
        self.assertEqual(status, b"426")
        self.assertIn(b"sec-websocket-version: 13", fields)

    def test_lines(self) -> None:
        """Only GET, and only HTTP/1.1."""
        for line in (b"POST / HTTP/1.1", b"GET / HTTP/1.0", b"GET /", b"", b"GET a HTTP/1.1"):
            self.assertEqual(read(ours(head(changed(), line)))[0], b"400", line)


def _is_plain(line: bytes, changes: dict[bytes, bytes | None], more: list[tuple[bytes, bytes]]) -> bool:
    """Return whether a request differs from the good one in nothing that matters."""
    same = all(GOOD[name] == value for name, value in changes.items())
    harmless = all(name in (b"Origin", b"Sec-WebSocket-Extensions", b"Cookie") for name, _ in more)
    return line in (LINE, b"GET / HTTP/1.1", b"GET /a?b=c HTTP/1.1") and same and harmless
