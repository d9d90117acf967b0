"""The same work for many, some at a time; and keys as clouds want them."""

from __future__ import annotations

from twisted.internet.defer import CancelledError, Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.aws.kit import public_key
from tower.cloud.config.public_key import BadPublicKey, read_public_key
from tower.cloud.errors import CloudError
from tower.cloud.http.fan_out import Failed, describe, fan_out, gather


class FanOutTest(SynchronousTestCase):
    """Work for many."""

    def setUp(self) -> None:
        """Make work that the test ends."""
        self.under_way: dict[int, Deferred[None]] = {}

    async def work(self, item: int) -> None:
        """Run until the test ends it."""
        self.under_way[item] = Deferred()
        try:
            await self.under_way[item]
        finally:
            del self.under_way[item]

    def test_limit(self) -> None:
        """At most the limit run in parallel; the end of one starts the next."""
        doing = Deferred.fromCoroutine(fan_out(range(5), self.work, 2))
        for item, wanted in ((0, {1, 2}), (2, {1, 3}), (1, {3, 4}), (4, {3}), (3, set())):
            self.under_way[item].callback(None)
            self.assertEqual(set(self.under_way), wanted)
        self.assertEqual(self.successResultOf(doing), [])

    def test_failures(self) -> None:
        """Those who fail are returned, and do not hold up the others."""
        doing = Deferred.fromCoroutine(fan_out(range(3), self.work, 2))
        reason = CloudError("no")
        self.under_way[0].errback(reason)
        self.under_way[1].callback(None)
        self.under_way[2].callback(None)
        self.assertEqual(self.successResultOf(doing), [Failed(0, reason)])

    def test_gather(self) -> None:
        """Coroutines run in parallel; their results are in their order."""

        async def work(item: int) -> int:
            await self.work(item)
            return item

        doing = Deferred.fromCoroutine(gather(*(work(item) for item in range(3))))
        for item in (2, 0, 1):
            self.under_way[item].callback(None)
        self.assertEqual(self.successResultOf(doing), [0, 1, 2])
        doing = Deferred.fromCoroutine(gather(*(work(item) for item in range(3))))
        self.under_way[1].errback(CloudError("no"))
        self.failureResultOf(doing, CloudError)
        self.assertEqual(self.under_way, {})

    def test_mistake(self) -> None:
        """An exception other than a cloud's error cancels all, and is raised unchanged."""
        doing = Deferred.fromCoroutine(fan_out(range(9), self.work, 3))
        self.under_way[1].errback(ZeroDivisionError())
        self.failureResultOf(doing, ZeroDivisionError)
        self.assertEqual(self.under_way, {})

    def test_cancelled(self) -> None:
        """A cancellation cancels all work."""
        doing = Deferred.fromCoroutine(fan_out(range(9), self.work, 3))
        doing.cancel()
        self.failureResultOf(doing, CancelledError)
        self.assertEqual(self.under_way, {})

    def test_no_items(self) -> None:
        """Without items there is no work."""
        self.assertEqual(self.successResultOf(Deferred.fromCoroutine(fan_out([], self.work, 3))), [])

    def test_described(self) -> None:
        """The first five failures are named."""
        everybody = [(f"n{number}", CloudError("no")) for number in range(7)]
        self.assertEqual(describe(everybody), "n0 (no), n1 (no), n2 (no), n3 (no), n4 (no) and 2 more")
        self.assertEqual(describe(everybody[:1]), "n0 (no)")


class PublicKeyTest(SynchronousTestCase):
    """Keys."""

    def test_line(self) -> None:
        """A key is its type and its base64; comment and line's end are left out."""
        key = read_public_key(b"  " + public_key() + b"\n", ["ssh-ed25519"])
        self.assertEqual((key.type, len(key.line), key.line.count(" ")), ("ssh-ed25519", 80, 1))
        self.assertEqual(key, read_public_key(key.line.encode(), ["ssh-ed25519"]))
        self.assertNotEqual(key.digest, read_public_key(public_key(fill=8), ["ssh-ed25519"]).digest)

    def test_refused(self) -> None:
        """Invalid keys, several keys and unsupported types are rejected with the cure."""
        for key, wanted in {
            b"": "does not have the form",
            b"ssh-ed25519": "does not have the form",
            b"ssh-ed25519 \xff": "does not have the form",
            b"ssh-rsa AAAAC3NzaC1lZDI1NTE5AAAAIAcH": "contradicts its type",
            public_key() + public_key(): "more than one",
            b'command="x" ' + public_key(): "does not have the form",
            public_key("ssh-dss"): "does not accept ssh-dss keys: use one of ssh-ed25519, ssh-rsa",
        }.items():
            error = self.assertRaises(BadPublicKey, read_public_key, key, ["ssh-rsa", "ssh-ed25519"])
            self.assertIn(wanted, str(error))
