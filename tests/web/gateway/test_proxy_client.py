"""Unexpected errors in `tower.web.gateway.proxy_client`; `test_relay` tests the rest of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import FakeUser, Kit, get, ok
from tower.web.gateway import proxy_client
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.proxy_client import ProxyClient
from tower.web.gateway.relay import ProxyClientFactory
from tower.web.gateway.request import Request


class BugError(Exception):
    """An error that no code expects."""


def broken(*_: object, **__: object) -> Any:
    """Fail as code with a bug does."""
    raise BugError


class FaultyClient(ProxyClient):
    """A client whose methods tests replace; those of a compiled class cannot be replaced."""


class FaultyFactory(ProxyClientFactory):
    """Makes the clients."""

    protocol = FaultyClient


class FaultyRequest(Request):
    """A request whose methods tests replace."""

    proxyClientFactoryClass = FaultyFactory


class FaultyChannel(HTTPChannel):
    """A connection whose methods tests replace."""

    requestFactory = FaultyRequest


def faulty_kit() -> Kit:
    """Return a kit with these classes, and no user."""
    kit = Kit()
    kit.gateway.protocol = FaultyChannel
    kit.user = kit.connect()
    return kit


class ContainmentTests(SynchronousTestCase):
    """Errors end one request: none reaches the channel's caller, which is a tunnel with other users."""

    def setUp(self) -> None:
        """Connect two users, each with a request in progress."""
        self.kit = faulty_kit()
        self.user, self.other = self.kit.user, self.kit.connect()
        self.user.deliver(get())
        self.other.deliver(get())
        self.pipe, self.others_pipe = self.kit.tunnel.pipes
        for pipe in (self.pipe, self.others_pipe):
            self.assertIn(b"GET /api ", pipe.taken())

    def check_rest(self, *, errors: int = 1) -> None:
        """The error was logged, its channel is closed, and the other user has answers."""
        self.assertEqual(len(self.flushLoggedErrors(BugError)), errors)
        self.assertTrue(self.pipe.aborted)
        self.others_pipe.deliver(ok(b"other"))
        self.assertEqual(self.other.taken(), ok(b"other"))
        self.other.deliver(get())
        self.assertEqual(len(self.kit.tunnel.pipes), 2)
        self.others_pipe.deliver(ok(b"again"))
        self.assertEqual(self.other.taken(), ok(b"again"))

    def check_502(self, user: FakeUser) -> None:
        """The user has a 502 with the reason and the request's ID."""
        head, _, body = user.taken().partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 502 "), head)
        message = json.loads(body)["message"]
        self.assertIn("Tower failed to handle the answer of cluster alpha; the proxy's log has", message)
        self.assertIn(self.kit.requests[0].request_id, message)

    def test_before_the_answer(self) -> None:
        """An error before the head was sent becomes a 502, and the user's connection goes on."""
        heads: tuple[tuple[Any, str, bytes], ...] = (
            (FaultyClient, "_pass_plain", ok()),
            (FaultyClient, "_read_heads", b"HTTP/1.1 2"),
            (FaultyClient, "_answer", ok(b"{}", b"Location: /x")),
            (proxy_client, "location_for_user", ok(b"{}", b"Location: /x")),
            (proxy_client, "member_error", b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n"),
            (FaultyRequest, "begun_by_member", ok()),
        )
        for owner, name, answer in heads:
            self.setUp()
            with patch.object(owner, name, broken):
                self.pipe.deliver(answer)
            self.check_502(self.user)
            self.check_rest()
            self.user.deliver(get())
            self.others_pipe.deliver(ok(b"next"))
            self.assertEqual(self.user.taken(), ok(b"next"))

    def test_in_the_answer(self) -> None:
        """An error after the head ends the user's connection, so that no part counts as whole."""
        self.pipe.deliver(ok(b"abcdef")[:-3])
        self.assertTrue(self.user.taken().endswith(b"abc"))
        aborted: list[str] = []
        with (
            patch.object(FaultyClient, "_deliver", broken),
            patch.object(FaultyRequest, "aborted", lambda request, by: aborted.append(by)),
        ):
            self.pipe.deliver(b"def")
        self.assertEqual(aborted[0], "tower")
        self.assertEqual((self.user.taken(), self.user.aborted), (b"", True))
        self.check_rest()

    def test_at_the_end(self) -> None:
        """An error after the whole answer ends the user's connection; the reused channel is not touched."""
        with patch.object(FaultyChannel, "done", broken):
            self.pipe.deliver(ok())
        self.assertEqual((self.user.taken(), self.user.aborted), (ok(), True))
        self.assertFalse(self.pipe.aborted)
        self.assertEqual(len(self.flushLoggedErrors(BugError)), 1)
        self.other.abort()
        third = self.kit.connect()
        third.deliver(get())
        self.assertEqual(len(self.kit.tunnel.pipes), 2)
        self.pipe.deliver(ok(b"third"))
        self.assertEqual(third.taken(), ok(b"third"))

    def test_other_events(self) -> None:
        """An error at the end of a channel, and while it drains, is contained as well."""
        events: tuple[tuple[Any, str, Callable[[Any], None]], ...] = (
            (FaultyClient, "_lost", lambda pipe: pipe.end()),
            (FaultyClient, "_lost", lambda pipe: pipe.lose()),
            (FaultyChannel, "taker_drained", lambda pipe: pipe.receiver.drained()),
        )
        for owner, name, event in events:
            self.setUp()
            with patch.object(owner, name, broken):
                event(self.pipe)
            self.check_502(self.user)
            self.assertEqual(len(self.flushLoggedErrors(BugError)), 1)
            self.others_pipe.deliver(ok(b"other"))
            self.assertEqual(self.other.taken(), ok(b"other"))

    def test_twice(self) -> None:
        """If even the 502 fails, the user's connection ends."""
        with patch.object(FaultyClient, "_pass_plain", broken), patch.object(FaultyRequest, "begun", broken):
            self.pipe.deliver(ok())
        self.assertEqual((self.user.taken(), self.user.aborted), (b"", True))
        self.check_rest(errors=2)

    def test_invalid_answer(self) -> None:
        """An error while an invalid answer is reported is contained, too."""
        with patch.object(FaultyRequest, "begun", broken):
            self.pipe.deliver(b"no HTTP\r\n\r\n")
        self.assertEqual((self.user.taken(), self.user.aborted), (b"", True))
        self.check_rest()

    def test_opened(self) -> None:
        """An error when the channel has opened becomes a 502; the client does not wait."""
        for name in ("begin", "__init__"):
            kit = faulty_kit()
            kit.tunnel.at_once = False
            kit.user.deliver(get())
            with patch.object(FaultyClient, name, broken):
                kit.tunnel.confirm()
            self.kit = kit
            self.check_502(kit.user)
            self.assertTrue(kit.pipe.aborted)
            self.assertEqual(len(self.flushLoggedErrors(BugError)), 1)
