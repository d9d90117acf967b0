"""Attack 16: the cuts of a user's bytes decide nothing, not even whether the connection is kept."""

from __future__ import annotations

import random
import re

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tests.fuzz.engine import attempt
from tests.fuzz.targets import TARGETS
from tower.errors import Forbidden
from tower.web.gateway.received_request import DISCARD_LIMIT
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Response

#: The fuzzer's findings, and the chances by which they were cut.
FOUND = (
    "54202f636c7573746572732f616c70686120485454502f312e310d0a686f73743a610d0a436f6e74656e742d4c656e677468"
    "3a350d0a653a0d0a496d706572736f6e6174652d3a0d0a0d0a6c6c6f4745"
)
CHANCE = "570431957/user/6669"

_VARYING = re.compile(rb"[0-9a-f]{12}")

Seen = tuple[bytes, bool, int]


def decide(request: Request) -> Outcome:
    """Refuse /refused, answer everything else without a look at its body."""
    if request.path == b"/refused":
        raise Forbidden("no")
    return Response(200, b"{}")


def served(*pieces: bytes) -> Seen:
    """Return the answer to these pieces, whether it is the end, and the number of requests."""
    kit = Kit(decide)
    for piece in pieces:
        if not (kit.user.closing or kit.user.lost):
            kit.user.deliver(piece)
    for _ in range(4):
        kit.clock.advance(0)  # requests that came in one piece wait for their turns
    return _VARYING.sub(b"", kit.user.taken()), kit.user.closing or kit.user.lost, len(kit.requests)


class CutTests(SynchronousTestCase):
    """The same bytes in one piece and cut."""

    def test_found(self) -> None:
        """The input that the fuzzer found has one outcome."""
        error = attempt(TARGETS["user"], bytes.fromhex(FOUND), CHANCE)
        if error is not None:
            raise error

    def test_found_later(self) -> None:
        """A finding of a later run: many digits without a unit kept the reader of durations busy forever."""
        error = attempt(TARGETS["quantities"], b"9" * 60_000, "2049392828/quantities/11016")
        if error is not None:
            raise error

    def test_every_cut(self) -> None:
        """A refused or answered request with a body, and the one behind it, have one outcome at every cut."""
        for path in (b"/refused", b"/answered"):
            for fields, body in (
                ((b"Content-Length: 5",), b"hello"),
                ((b"Content-Length: 5", b"Expect: 100-continue"), b"hello"),
                ((b"Content-Length: 5", b"Connection: close"), b"hello"),
                ((b"Content-Length: 0",), b""),
                ((b"Transfer-Encoding: chunked",), b"5\r\nhello\r\n0\r\n\r\n"),
            ):
                wire = get(path, *fields, method=b"POST", body=body) + get(b"/next")
                whole = served(wire)
                for at in range(1, len(wire)):
                    self.assertEqual(served(wire[:at], wire[at:]), whole, (wire, at))
                self.assertEqual(served(*(bytes([byte]) for byte in wire)), whole, wire)

    def test_kept(self) -> None:
        """A connection is kept behind a short body that was not read, and closed behind a long one."""
        for size, closed, requests in (
            (5, False, 2),
            (DISCARD_LIMIT, False, 2),
            (DISCARD_LIMIT + 1, True, 1),
        ):
            length = b"Content-Length: %d" % size
            wire = get(b"/refused", length, method=b"POST", body=b"x" * size) + get(b"/next")
            chance = random.Random(size)
            cuts = [(wire,), *((wire[:at], wire[at:]) for at in chance.sample(range(1, len(wire)), 40))]
            for pieces in cuts:
                self.assertEqual(served(*pieces)[1:], (closed, requests), list(map(len, pieces)))
