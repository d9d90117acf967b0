"""Targets in streams of HTTP: a user's connection, the agent's end of a channel, a cluster's answers."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field

import h11

from tests.fakes.gateway import Kit, get, ok
from tests.fakes.pipes import FakePipe
from tests.fakes.relay import relayed
from tests.fuzz.engine import Broken, Target
from tests.fuzz.http import AT_ROOT, LIMIT, check_passed
from tests.fuzz.messages import CANONICAL, REQUESTS, RESPONSES, WORDS
from tests.fuzz.mutation import cuts
from tower.kube.head_policy import HeadPolicy

#: Fields that differ from answer to answer.
_REQUEST_ID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GOOD = re.compile(rb"HTTP/1\.1 [1-3][0-9]{2} ")

#: A field that may be passed on or not.
_AS_TRUE_HERE = (b"connection", b"keep-alive")

_PREFIX = b"/clusters/alpha"


class _APIServer:
    """Reads the data of a channel with h11, and answers each request.

    :ivar requests: what was asked: method, target, body.
    """

    def __init__(self, pipe: FakePipe) -> None:
        self._pipe = pipe
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
        self.requests: list[tuple[bytes, bytes, bytes]] = []
        self._body = b""
        self._request: h11.Request | None = None
        self.switched = False

    def serve(self) -> bool:
        """Read the data so far; return whether there was anything."""
        data = self._pipe.taken()
        if not data or self.switched:
            return False
        try:
            self._connection.receive_data(data)
            while self._step(self._connection.next_event()):
                pass
        except h11.RemoteProtocolError as e:
            raise Broken(f"the proxy sends something other than HTTP: {e}: {data!r}") from e
        return True

    def _step(self, event: object) -> bool:
        if isinstance(event, h11.Request):
            self._request, self._body = event, b""
            users = [value for name, value in event.headers if name == b"impersonate-user"]
            if users != [b"jane"]:
                raise Broken(f"a request of {users}")
        elif isinstance(event, h11.Data):
            self._body += event.data
        elif isinstance(event, h11.EndOfMessage):
            assert self._request is not None
            self.requests.append((self._request.method, self._request.target, self._body))
            if any(name == b"upgrade" for name, _ in self._request.headers):
                self.switched = True  # nothing more is HTTP here
                return False
            body = b"" if self._request.method == b"HEAD" else b"{}"
            head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
            self._connection.send(h11.Response(status_code=200, headers=[("content-length", "2")]))
            if body:
                self._connection.send(h11.Data(data=body))
            self._connection.send(h11.EndOfMessage())
            self._pipe.deliver(head + body)
            if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
                self._connection.start_next_cycle()
                return True
            return False
        else:
            return False
        return True


def _asked(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes, bytes]], bytes, bool]:
    """Return the requests that reach the cluster, the user's bytes, and whether the user is cut off."""
    kit = Kit()
    servers: list[_APIServer] = []
    for piece in [*pieces, b""]:
        if not (kit.user.closing or kit.user.lost) and piece:
            kit.user.deliver(piece)
        busy = True
        while busy:
            while any(call.getTime() <= kit.clock.seconds() for call in kit.clock.getDelayedCalls()):
                kit.clock.advance(0)  # requests that came in one piece wait for their turns
            servers += map(_APIServer, kit.tunnel.pipes[len(servers) :])
            busy = sum(server.serve() for server in servers) > 0
            if not busy and len(kit.gateway.round_robin):
                kit.take_turns()
                busy = True
    requests = [request for server in servers for request in server.requests]
    return requests, bytes(kit.user.sent), kit.user.closing or kit.user.lost


def check_user(data: bytes, chance: random.Random) -> None:
    """For any bytes of a user, a cluster gets whole requests of that user, the same for every cut."""
    whole, cut = _asked([data]), _asked(cuts(chance, data))
    if whole[0] != cut[0]:
        raise Broken(f"in one piece {whole[0]}, cut {cut[0]}")
    if whole[2] != cut[2]:
        raise Broken(f"in one piece {'' if whole[2] else 'not '}closed, cut the other way")
    if _GOOD.findall(whole[1]) != _GOOD.findall(cut[1]):
        raise Broken(f"in one piece {whole[1]!r}, cut {cut[1]!r}")


def _passed(pieces: list[bytes]) -> tuple[bytes, bytes, bool]:
    """Return what the agent passes on, its own answer, and whether it is done with the channel."""
    channel, upstream = FakePipe(), FakePipe()
    relayed(channel, upstream, HeadPolicy(lambda: AT_ROOT).rewrite)
    for piece in pieces:
        if not channel.lost:
            channel.deliver(piece)
    return bytes(upstream.sent), bytes(channel.sent), channel.finished or channel.lost


def check_agent(data: bytes, chance: random.Random) -> None:
    """The agent passes on whole requests that it has checked, the same however they were cut."""
    whole, cut = _passed([data]), _passed(cuts(chance, data))
    if b"an upgrade must be the only request" in whole[1] + cut[1]:
        return  # whether anything follows depends on the cut, and it is dropped in any case
    if whole[1:] != cut[1:] or not (whole[0].startswith(cut[0]) or cut[0].startswith(whole[0])):
        raise Broken(f"in one piece {whole}, cut {cut}")
    wire, refusal, _ = whole
    if not refusal and cut[0] != wire:
        raise Broken(f"in one piece {whole}, cut {cut}")
    _check_requests(wire, refused=bool(refusal))


def _check_requests(wire: bytes, *, refused: bool) -> None:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
    try:
        connection.receive_data(wire)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Request):
                fields = b"".join(b"%b: %b\r\n" % pair for pair in event.headers)
                check_passed(b"%b %b HTTP/1.1\r\n%b\r\n" % (event.method, event.target, fields))
            elif isinstance(event, h11.EndOfMessage):
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                connection.start_next_cycle()
            elif not isinstance(event, h11.Data):
                return
    except h11.LocalProtocolError:
        return  # h11 wants no more on this connection: a request had close, or switches
    except h11.RemoteProtocolError as e:
        if not refused:
            raise Broken(f"the agent passes on something other than HTTP: {e}: {wire!r}") from e


def _answered(pieces: list[bytes], request: bytes) -> tuple[bytes, bool, bool]:
    """Return the user's bytes, whether the user's connection is closed, and whether it is cut."""
    kit = Kit()
    kit.user.deliver(request)
    pipe = kit.pipe
    for piece in pieces:
        if not pipe.lost:
            pipe.deliver(piece)
    if not pipe.lost:
        pipe.end()
    return _REQUEST_ID.sub(b"0" * 36, kit.user.sent), kit.user.closing, kit.user.aborted


@dataclass
class _Read:
    """The reading of a user's bytes by h11."""

    heads: list[tuple[int, list[tuple[bytes, bytes]]]] = field(default_factory=list)
    body: bytes = b""
    complete: bool = False
    switched: bool = False
    error: str = ""


def _read(method: bytes, sent: bytes) -> _Read:
    connection, read = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT), _Read()
    upgrade = [("connection", "upgrade"), ("upgrade", "x")]
    connection.send(h11.Request(method=method, target=b"/", headers=[("host", "a"), *upgrade]))
    connection.send(h11.EndOfMessage())
    try:
        connection.receive_data(sent)
        while True:
            event = connection.next_event()
            if isinstance(event, h11.InformationalResponse | h11.Response):
                fields = sorted(field for field in event.headers if field != _AS_TRUE_HERE)
                read.heads.append((event.status_code, fields))
                if event.status_code == 101:
                    read.switched, read.body = True, connection.trailing_data[0]
                    return read
            elif isinstance(event, h11.Data):
                read.body += event.data
            else:
                read.complete = isinstance(event, h11.EndOfMessage)
                return read
    except h11.RemoteProtocolError as e:
        read.error = str(e)
        return read


def check_answer(data: bytes, chance: random.Random) -> None:
    """A cluster's answer reaches the user the same however it was cut; half of one is never whole."""
    request = chance.choice(
        (
            get(_PREFIX + b"/api"),
            get(_PREFIX + b"/api", method=b"HEAD"),
            get(_PREFIX + b"/x", b"Content-Length: 2", method=b"POST", body=b"ab"),
            get(_PREFIX + b"/e", b"Connection: Upgrade", b"Upgrade: SPDY/3.1"),
        )
    )
    whole, cut = _answered([data], request), _answered(cuts(chance, data), request)
    method = request.split(b" ", 1)[0]
    one, two = _read(method, whole[0]), _read(method, cut[0])
    if whole[1:] != cut[1:] or (one != two and not whole[2]):
        raise Broken(f"to {request!r} in one piece {whole}, cut {cut}")
    sent, closing, aborted = whole
    if not (one.complete or one.switched or closing or aborted):
        raise Broken(f"the user waits for ever: {sent!r}")
    if one.error and not aborted:
        raise Broken(f"the user gets something other than HTTP: {one.error}: {sent!r}")


def _of_users(request: bytes) -> bytes:
    return request.replace(b" /", b" " + _PREFIX + b"/", 1)


_USERS = tuple(map(_of_users, REQUESTS))

TARGETS = (
    Target(
        "user",
        (*_USERS, b"".join(_USERS[:3]), _USERS[0] * 5, _USERS[1] + _USERS[4] + b"raw"),
        (*WORDS, *_USERS),
        check_user,
    ),
    Target(
        "agent",
        (*CANONICAL, b"".join(CANONICAL[:3]), CANONICAL[1] * 3),
        (*WORDS, *CANONICAL),
        check_agent,
    ),
    Target("answer", (*RESPONSES, RESPONSES[5] + ok(), ok() + ok()), (*WORDS, *RESPONSES), check_answer),
)
