"""Targets in HTTP: heads, bodies, heads that the agent lets pass; compared with two other readers."""

from __future__ import annotations

import random
import re
from typing import Any
from urllib.parse import unquote_to_bytes

import h11
import httptools
from attrs import evolve

from tests.fakes.gateway import FORWARDING, IDENTITY
from tests.fuzz.engine import Broken, Target
from tests.fuzz.messages import CANONICAL, CHUNK_WORDS, CHUNKS, REQUESTS, RESPONSES, WORDS
from tests.fuzz.mutation import cuts
from tower.errors import Forbidden
from tower.http.bodies import CHUNKED, UNTIL_CLOSE, BadBody, ChunkedBody
from tower.http.requests import BadHead, Fields, HeadReader, check_unfinished
from tower.http.responses import PLAIN, BadResponse, ResponseHead, rewritten_location
from tower.kube.canonical_head import plain_fields, write_fields
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy, Refusal
from tower.kube.system_identities import is_system

LIMIT = 1 << 20

#: A message's first line, its fields, and the length of its body.
Meaning = tuple[tuple[bytes, ...], list[tuple[bytes, bytes]], int]


#: API servers at the root of a host, and below a path.
AT_ROOT = Upstream(b"", b"Host: 10.0.0.1:6443\r\n", b"Authorization: Bearer member-secret\r\n")
BELOW = evolve(AT_ROOT, prefix=b"/k8s/clusters/c-abc")


class _Collected:
    """The callbacks of httptools, recorded."""

    def __init__(self) -> None:
        self.url = b""
        self.fields: list[tuple[bytes, bytes]] = []
        self.body = b""
        self.complete = False

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.fields.append(_plain(name, value))

    def on_body(self, body: bytes) -> None:
        self.body += body

    def on_message_complete(self) -> None:
        self.complete = True


def framing(fields: list[tuple[bytes, bytes]], otherwise: int = 0) -> int:
    """Return the length of the body according to *fields*."""
    if any(name == b"transfer-encoding" for name, _ in fields):
        return CHUNKED
    for name, value in fields:
        if name == b"content-length":
            return int(value)
    return otherwise


def by_h11(head: bytes) -> Meaning | None:
    """Return what h11 makes of the head of a request; None: it refuses it."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
    try:
        connection.receive_data(head)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    fields = [_plain(bytes(name), bytes(value)) for name, value in event.headers]
    return (event.method, event.target, event.http_version), fields, framing(fields)


def by_httptools(head: bytes) -> Meaning | None:
    """The same with httptools; None also for methods that it does not know."""
    collected = _Collected()
    parser: Any = httptools.HttpRequestParser(collected)
    try:
        parser.feed_data(head)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return None
    first = (parser.get_method(), collected.url, parser.get_http_version().encode())
    return first, collected.fields, framing(collected.fields)


def _agreed(what: str, ours: Meaning, *others: Meaning | None) -> None:
    """At least one other reader takes what we take, and those that do read it in the same way."""
    known = [other for other in others if other is not None]
    if not known:
        raise Broken(f"no other reader accepts {what}")
    for other in known:
        if other != ours:
            raise Broken(f"{what}: we read {ours}, another reader {other}")


def _fields_of(block: bytes) -> list[tuple[bytes, bytes]]:
    lines = (line.partition(b":") for line in block.split(b"\r\n") if line)
    return [_plain(name, value) for name, _, value in lines]


def _plain(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Return a field in the form in which fields are compared."""
    lower, value = name.lower(), value.strip(b" \t")
    return lower, value.lower() if lower == b"transfer-encoding" else value


#: Fields that are rewritten for a target that authenticates users itself.
_OURS = (b"connection", b"upgrade", b"content-length", b"transfer-encoding", b"sec-websocket-protocol")


def _check_plain(
    method: bytes, target: bytes, fields: Fields, came: list[tuple[bytes, bytes]], *, bearer: bool
) -> None:
    """A target's requests mean the same to all readers, in the same order; bearer tokens only if allowed."""
    block = plain_fields(fields, "wiki", bearer=bearer)
    onward = b"%b %b HTTP/1.1\r\n%b" % (method, target, block)
    sent = _fields_of(block)
    ours = (method, target, b"1.1"), sent, fields.body
    _agreed("a request for a target", ours, by_h11(onward), by_httptools(onward))
    again = HeadReader().read(onward)[3]
    if (again.upgrade, again.bearer) != (fields.upgrade, fields.bearer if bearer else None):
        raise Broken(f"it became another request: {onward!r}")
    ours_too = _OURS if fields.host else (*_OURS, b"host")
    left = iter(came)
    if not all(one in left for one in sent if one[0] not in ours_too):
        raise Broken(f"of {came} a target gets {sent}")


def check_head(data: bytes, chance: random.Random) -> None:
    """A head is refused, or means the same to others; the agent takes what the proxy makes of it."""
    stop = data.find(b"\r\n\r\n") + 4
    head = data[:stop]
    try:
        method, target, minor, fields = HeadReader().read(head)
    except BadHead:
        return
    for piece in range(1, 4):
        check_unfinished(head[: chance.randrange(len(head)) // piece])
    _, _, block = head.partition(b"\r\n")
    ours = (method, target, b"1.%d" % minor), _fields_of(block), fields.body
    _agreed("a request", ours, by_h11(head), by_httptools(head))
    for bearer in (True, False):
        _check_plain(method, target, fields, ours[1], bearer=bearer)
    try:
        onward = b"%b %b HTTP/1.1\r\n%b" % (method, target, write_fields(fields, IDENTITY, FORWARDING))
    except Forbidden:
        if not fields.foreign:
            raise
        return
    checked = HeadPolicy(lambda: AT_ROOT).rewrite(onward)
    if isinstance(checked, Refusal):
        raise Broken(f"the agent refuses what the proxy writes: {checked.text}: {onward!r}")
    if checked.length != fields.body or checked.upgrade != bool(fields.upgrade):
        raise Broken(f"the agent reads {checked}, the proxy {fields} {fields.upgrade!r}")
    check_passed(checked.head, b"jane")


def check_path(target: bytes, behind: bytes) -> None:
    """A path has no dot segment, after any number of decodings, and stays below *behind*."""
    path = target.partition(b"?")[0]
    if not path.startswith(behind):
        raise Broken(f"{target!r} is not behind {behind!r}")
    for _ in range(4):
        if any(part in (b".", b"..") for part in re.split(rb"[/\\;]", path)):
            raise Broken(f"{target!r} has a dot segment")
        if behind and (b"//" in path or b"\\" in path):
            raise Broken(f"{target!r} may escape from {behind!r}")
        path = unquote_to_bytes(path)


def check_passed(head: bytes, user: bytes | None = None, behind: bytes = b"") -> None:
    """The output of the agent is one request to other readers, with our credential and one user.

    :param behind: the path prefix of the API server.
    """
    for meaning in (by_h11(head), by_httptools(head)):
        if meaning is None:
            continue
        fields = meaning[1]
        for name, expected in ((b"authorization", b"Bearer member-secret"), (b"host", b"10.0.0.1:6443")):
            if [value for key, value in fields if key == name] != [expected]:
                raise Broken(f"{name.decode()} is not the agent's alone: {head!r}")
        users = [value for key, value in fields if key.replace(b"_", b"-") == b"impersonate-user"]
        if len(users) != 1 or not users[0] or (user is not None and users[0] != user):
            raise Broken(f"not exactly one expected user: {head!r}")
        groups = [value for key, value in fields if key.replace(b"_", b"-") == b"impersonate-group"]
        for who in (*users, *groups):
            if is_system(who.decode("latin-1")):
                raise Broken(f"a user acts as {who!r}")
        for key, value in fields:
            if key == b"proxy-authorization" or (
                key == b"sec-websocket-protocol"
                and b"base64url.bearer.authorization.k8s.io." in value.lower()
            ):
                raise Broken(f"the request brings a credential: {head!r}")
        check_path(meaning[0][1], behind)
        break
    else:
        raise Broken(f"no other reader accepts the agent's output: {head!r}")


def check_policy(data: bytes, chance: random.Random) -> None:
    """Every head that the agent accepts has one user, only the agent's credential, and one meaning."""
    head = data[: data.find(b"\r\n\r\n") + 4]
    server = chance.choice((AT_ROOT, BELOW))
    passed = HeadPolicy(lambda: server).rewrite(head)
    if isinstance(passed, Refusal):
        if "member-secret" in passed.text or not passed.text.isprintable():
            raise Broken(f"a bad refusal: {passed.text!r}")
        return
    check_passed(passed.head, behind=server.prefix)
    for meaning in (by_h11(passed.head), by_httptools(passed.head)):
        if meaning is not None and meaning[2] != passed.length:
            raise Broken(f"a body of {passed.length}, or of {meaning[2]}: {passed.head!r}")


def _followed(pieces: list[bytes]) -> tuple[int, bytes] | None:
    """Return where the chunked body ends and what is in it; -1: not here; None: it is refused."""
    payload: list[bytes] = []
    body, place = ChunkedBody(payload), 0
    for piece in pieces:
        try:
            stop = body.feed(piece)
        except BadBody:
            return None
        if stop >= 0:
            return place + stop, b"".join(payload)
        place += len(piece)
    return -1, b"".join(payload)


_CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def _chunks_by_h11(wire: bytes) -> tuple[int, bytes] | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    connection.receive_data(_CHUNKED_HEAD + wire)
    payload = b""
    try:
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                payload += event.data
            elif isinstance(event, h11.EndOfMessage):
                return len(wire) - len(connection.trailing_data[0]), payload
            elif event is h11.NEED_DATA:
                return -1, payload
    except h11.RemoteProtocolError:
        return None


def _chunks_by_httptools(wire: bytes) -> tuple[bool, bytes] | None:
    collected = _Collected()
    parser: Any = httptools.HttpResponseParser(collected)
    try:
        parser.feed_data(_CHUNKED_HEAD + wire)
    except httptools.HttpParserError:
        return None
    return collected.complete, collected.body


def check_chunks(data: bytes, chance: random.Random) -> None:
    """A chunked body ends where others think, with the same in it, however it is cut."""
    whole = _followed([data])
    cut = _followed(cuts(chance, data))
    if whole is None or cut is None or -1 in (whole[0], cut[0]):
        if whole != cut and data:
            raise Broken(f"in one piece {whole}, cut {cut}")
        return
    if whole != cut:
        raise Broken(f"in one piece {whole}, cut {cut}")
    end, payload = whole
    wire = data[:end]
    others = [_chunks_by_h11(wire), _chunks_by_httptools(wire)]
    if others == [None, None]:
        raise Broken("no other reader accepts this body")
    if others[0] not in (None, (end, payload)) or others[1] not in (None, (True, payload)):
        raise Broken(f"we read {whole}, others {others}")


def check_response(data: bytes, chance: random.Random) -> None:
    """An answer's head is refused, or means the same to others; our two readers agree."""
    head = data[: data.find(b"\r\n\r\n") + 4]
    plain = PLAIN.match(head)
    try:
        read = ResponseHead(head, bodiless=False)
    except BadResponse:
        if plain is not None:
            raise Broken(f"the fast reader takes {head!r}") from None
        return
    rewritten_location(read.location or b"", b"/clusters/alpha", b"tower:8443")
    if plain is not None and plain.end() == len(head):
        fast = int(plain[2]) if plain[2] else CHUNKED
        if plain[1] != b"%d" % read.code or (read.code not in (204, 304) and fast != read.body) or read.close:
            raise Broken(f"the fast reader: {plain.groups()}, the careful one: {read.code} {read.body}")
    if read.code < 200:
        return
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=LIMIT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    try:
        connection.receive_data(head)
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return
    if not isinstance(event, h11.Response):
        raise Broken(f"h11 reads {event!r}")
    fields = [(bytes(name), bytes(value)) for name, value in event.headers]
    theirs = framing(fields, UNTIL_CLOSE) if read.code not in (204, 304) else 0
    if event.status_code != read.code or theirs != read.body:
        raise Broken(f"we read {read.code} and {read.body}, h11 {event.status_code} and {theirs}")


TARGETS = (
    Target("request-head", REQUESTS, WORDS, check_head),
    Target("agent-head", CANONICAL, WORDS, check_policy),
    Target("response-head", RESPONSES, WORDS, check_response),
    Target("chunks", CHUNKS, CHUNK_WORDS, check_chunks),
)
