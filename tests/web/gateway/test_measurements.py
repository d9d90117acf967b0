"""Tests for `tower.web.gateway.measurements`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get, ok
from tests.fakes.observers import FakeObserver
from tower.errors import Forbidden
from tower.web.gateway.measurements import ABORTED
from tower.web.gateway.request import Request
from tower.web.outcome import HandOver, RawStream, Relay, Response, StreamingResponse

PODS = b"/clusters/alpha/api/v1/namespaces/default/pods"


class ObserverTests(SynchronousTestCase):
    """The facts that an observer gets."""

    def setUp(self) -> None:
        """Observe a gateway."""
        self.outcome: Any = Relay("alpha", b"/clusters/alpha")
        self.kit = Kit(self.route)
        self.observer = FakeObserver()
        self.kit.gateway.observer = self.observer
        self.user = self.kit.user

    def route(self, request: Request) -> Any:
        """Return or raise `outcome`, as jane."""
        request.identity = self.kit.jane
        request.audit("alpha")
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def seen(self) -> dict[str, Any]:
        """Return the facts of the only request since the last call."""
        (facts,) = self.observer.over
        self.observer.over.clear()
        return facts

    def test_relayed(self) -> None:
        """An answer of a member has its code, source and bytes."""
        wire = get(PODS)
        for answer, code in (
            (ok(b"pods"), 200),
            (b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno", 404),
        ):
            self.user.deliver(wire)
            self.kit.pipe.deliver(answer)
            sent = len(self.user.taken())
            self.assertEqual(
                self.seen(),
                {
                    "cluster": "alpha",
                    "target": "kubernetes",
                    "code": code,
                    "by_member": True,
                    "bytes_up": len(wire),
                    "bytes_down": sent,
                    "aborted": "",
                },
            )

    def test_body(self) -> None:
        """A body counts, also in pieces, and the next request after it does not."""
        wire = get(PODS, b"Content-Length: 6", body=b"abc").replace(b"GET", b"POST")
        self.user.deliver(wire)
        self.user.deliver(b"def" + get(PODS))
        self.kit.pipe.deliver(ok(b"made"))
        facts = self.seen()
        self.assertEqual(facts["bytes_up"], len(wire) + 3)
        self.kit.pipe.deliver(ok(b"read"))
        self.assertEqual(self.seen()["bytes_up"], len(get(PODS)))

    def test_rejected(self) -> None:
        """Tower is the source of a rejection."""
        self.outcome = Forbidden("no")
        self.user.deliver(get(PODS))
        facts = self.seen()
        self.assertEqual((facts["code"], facts["target"], facts["by_member"]), (403, "", False))
        self.assertEqual(facts["bytes_down"], len(self.user.taken()))

    def test_own_answers(self) -> None:
        """Tower's own answers and streams have no target."""
        for outcome in (Response(200), StreamingResponse(lambda body: body.finish())):
            self.outcome = outcome
            self.user.deliver(get(b"/version"))
            facts = self.seen()
            self.assertEqual((facts["code"], facts["target"]), (200, ""))

    def test_upgrade(self) -> None:
        """A stream ends with its connection; bytes of both directions count."""
        self.outcome = RawStream("alpha", "database")
        wire = get(b"/", b"Connection: Upgrade", b"Upgrade: tower-stream") + b"early"
        self.user.deliver(wire)
        self.kit.pipe.deliver(b"there")
        self.user.deliver(b"here")
        self.assertEqual(self.observer.over, [])
        self.user.lose()
        facts = self.seen()
        self.assertEqual((facts["code"], facts["target"], facts["by_member"]), (101, "database", False))
        self.assertEqual((facts["bytes_up"], facts["bytes_down"]), (len(wire) + 4, len(self.user.taken())))

    def test_handed_over(self) -> None:
        """An agent's connection is not a request."""
        self.outcome = HandOver(lambda pipe, received: None)
        self.user.deliver(get(b"/agent"))
        self.user.lose()
        self.assertEqual(self.observer.over, [])

    def test_client_that_disconnects_early(self) -> None:
        """A request ends once, also if the client disconnects before the answer."""
        self.user.deliver(get(PODS))
        self.user.lose()
        facts = self.seen()
        self.assertEqual((facts["code"], facts["aborted"]), (0, "client"))

    def test_aborted(self) -> None:
        """The client, the member or Tower aborts an answer that has begun; the status is that of its head."""
        for by, end in (
            ("client", lambda kit: kit.user.lose()),
            ("member", lambda kit: kit.pipe.lose()),
            ("member", lambda kit: kit.pipe.deliver(b"no chunk\r\n")),
            ("tower", lambda kit: kit.sessions.inside[0][2]("the credential of jane was revoked")),
        ):
            kit = Kit(self.route)
            meter: Any = SimpleNamespace(finished=[], refused=lambda error: None)
            kit.gateway.meter, kit.gateway.observer = meter, self.observer
            kit.user.deliver(get(PODS))
            kit.pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
            end(kit)
            kit.user.lose()
            facts = self.seen()
            self.assertEqual((facts["code"], facts["aborted"], facts["by_member"]), (200, by, True))
            ((_, _, _, _, code, *_),) = meter.finished
            self.assertEqual(code, 200 if by == "client" else ABORTED)

    def test_aborted_stream(self) -> None:
        """A stream that the member or Tower breaks off is aborted; one that ends is not."""
        for by, end in (
            ("member", lambda kit: kit.pipe.lose()),
            ("tower", lambda kit: kit.sessions.inside[0][2]("the credential of jane was revoked")),
            ("", lambda kit: (kit.pipe.end(), kit.pipe.lose())),
        ):
            kit = Kit(self.route)
            kit.gateway.observer = self.observer
            kit.user.deliver(get(PODS, b"Connection: Upgrade", b"Upgrade: websocket"))
            kit.pipe.deliver(b"HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
            end(kit)
            kit.user.lose()
            facts = self.seen()
            self.assertEqual((facts["code"], facts["aborted"]), (101, by))
