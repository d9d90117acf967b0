"""Tests for `tower.server.chain`."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.requests import FakeRequest
from tower.errors import Forbidden, TowerError
from tower.kube.status import refusal_of
from tower.server.chain import PreparedChain, ServerChain
from tower.server.chained_server import ChainedServer, Hook
from tower.server.health_pages import HealthCheck
from tower.web.outcome import Response

OUTER, INNER = Response(200, b"outer"), Response(200, b"inner")


class ServerChainTests(SynchronousTestCase):
    """Two servers, with hooks that record their calls and wait."""

    def setUp(self) -> None:
        """Make the chain."""
        self.calls: list[str] = []
        self.waits: dict[str, Deferred[None]] = {}
        self.is_admin = True
        self.chain = self.made().prepare_run()

    def made(self) -> ServerChain:
        """Return the chain."""
        outer = ChainedServer(
            "outer",
            lambda _, path: OUTER if path in (b"/both", b"/outer") else None,
            ("/outer", "/both"),
            (HealthCheck("log", lambda: ""),),
            start_hooks=(self.hook("first"),),
            stop_hooks=(self.hook("last"),),
        )
        inner = ChainedServer(
            "inner",
            lambda _, path: INNER if path in (b"/both", b"/inner") else None,
            ("/inner", "/both"),
            (HealthCheck("log", lambda: "never asked"),),
            (HealthCheck("store", lambda: "no store"),),
            (self.hook("base"),),
            (self.hook("end"),),
        )
        return ServerChain(self.filters, outer, inner)  # type: ignore[arg-type]

    def filters(self, request: Any, cluster: str, end: Any) -> Any:
        """Accept administrators only."""
        self.assertEqual(cluster, "")
        if not self.is_admin:
            raise Forbidden("no administrator")
        return end()

    def hook(self, name: str) -> Hook:
        """Return a hook that waits until the test lets it go on."""

        async def run() -> None:
            self.calls.append(name)
            self.waits[name] = Deferred()
            await self.waits[name]

        return Hook(name, run)

    def ask(self, target: bytes, method: bytes = b"GET", chain: PreparedChain | None = None) -> Any:
        """Return the answer."""
        request = FakeRequest(target, method)
        return (chain or self.chain).route(request, request.path)

    def refused(self, code: int, target: bytes, method: bytes = b"GET") -> None:
        """Check that the request is rejected."""
        with self.assertRaises(TowerError) as caught:
            self.ask(target, method)
        self.assertEqual(refusal_of(caught.exception).code, code)

    def failed(self, page: str) -> list[str]:
        """Return the names of the failed checks."""
        lines = self.ask(f"/{page}?verbose".encode()).body.decode().splitlines()
        return [line.split()[0][3:] for line in lines if line.startswith("[-]")]

    def test_order(self) -> None:
        """The outer server is asked first; a path of no server is not found."""
        self.assertIs(self.ask(b"/both"), OUTER)
        self.assertIs(self.ask(b"/outer"), OUTER)
        self.assertIs(self.ask(b"/inner"), INNER)
        self.refused(404, b"/other")

    def test_index(self) -> None:
        """Administrators see the paths of all servers and their health pages; filters precede the method."""
        for target in (b"/", b"/index.html", b"/?x"):
            paths = json.loads(self.ask(target).body)["paths"]
            self.assertEqual(paths, sorted(set(paths)))
            for path in ("/both", "/inner", "/outer", "/livez/log", "/readyz/poststarthook/base"):
                self.assertIn(path, paths)
        self.refused(405, b"/", b"POST")
        self.is_admin = False
        for method in (b"GET", b"POST"):
            self.refused(403, b"/", method)
        self.assertEqual(self.ask(b"/livez/ping").body, b"ok")

    def test_life(self) -> None:
        """Hooks run one after the other: inner servers start first and stop last; readiness follows."""
        self.assertEqual(
            self.failed("readyz"),
            ["poststarthook/first", "poststarthook/base", "store", "informer-sync"],
        )
        starting = Deferred.fromCoroutine(self.chain.run())
        self.assertEqual(self.calls, ["base"])
        self.waits["base"].callback(None)
        self.assertEqual(self.calls, ["base", "first"])
        self.assertEqual(self.failed("livez"), ["poststarthook/first"])
        self.assertIn(b"not finished", self.ask(b"/healthz/poststarthook/first").body)
        self.waits["first"].callback(None)
        self.successResultOf(starting)
        self.assertEqual((self.failed("livez"), self.failed("readyz")), ([], ["store"]))
        self.chain.announce_stop()
        self.assertEqual((self.failed("livez"), self.failed("readyz")), ([], ["store", "shutdown"]))
        self.assertEqual(
            self.ask(b"/readyz/shutdown").body, b"internal server error: process is shutting down\n"
        )
        self.assertEqual(self.calls, ["base", "first"])
        stopping = Deferred.fromCoroutine(self.chain.stop())
        self.assertEqual(self.calls, ["base", "first", "last"])
        self.waits["last"].callback(None)
        self.assertEqual(self.calls, ["base", "first", "last", "end"])
        self.waits["end"].callback(None)
        self.successResultOf(stopping)

    def test_stop_while_starting(self) -> None:
        """A stop while a hook runs ends the start after it."""
        wanted = [True]
        starting = Deferred.fromCoroutine(self.chain.run(lambda: wanted[0]))
        wanted[0] = False
        self.waits["base"].callback(None)
        self.successResultOf(starting)
        self.assertEqual(self.calls, ["base"])
        self.assertIn("informer-sync", self.failed("readyz"))

    def test_only_read(self) -> None:
        """Health pages are read only."""
        for target in (b"/healthz", b"/livez/ping"):
            self.refused(405, target, b"POST")
