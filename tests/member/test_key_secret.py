"""Tests of `tower.member.key_secret`."""

from __future__ import annotations

from twisted.internet.defer import Deferred
from twisted.logger import LogLevel, capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.secret_servers import SecretServer
from tests.fakes.ssh_pairs import AGENT_KEY as KEY
from tower.conch.transport.keys import KeyPair
from tower.kube.client import APIClient
from tower.kube.head_fields import Upstream
from tower.member.key_secret import RETRY, KeySecret, KeySecretFailed
from tower.member.object_name import ObjectName
from tower.member.options import AGENT_KEY

UPSTREAM = Upstream(b"", b"Host: api:6443\r\n", b"Authorization: Bearer sesame\r\n")
NAME = ObjectName("tower-system", "tower-agent-key")


class KeySecretCase(SynchronousTestCase):
    def setUp(self) -> None:
        """Create an API server with an empty Secret."""
        self.server = SecretServer()

    def make(self) -> KeySecret:
        """Return the state of one replica."""
        server = self.server
        api = APIClient(server.clock, server.open, lambda: UPSTREAM)
        return KeySecret(server.clock, api, NAME, "alpha")

    def loading(self, secret: KeySecret) -> Deferred[KeyPair]:
        """Begin to load."""
        return Deferred.fromCoroutine(secret.load())

    def loaded(self, secret: KeySecret) -> KeyPair:
        """Return the key."""
        loading = self.loading(secret)
        self.server.serve()
        return self.successResultOf(loading)

    def fails(self, secret: KeySecret) -> str:
        """Return why there is no key."""
        loading = self.loading(secret)
        self.server.serve()
        text = str(self.failureResultOf(loading, KeySecretFailed).value)
        self.assertNotIn("\n", text)
        self.assertNotIn("sesame", text)
        return text


class LoadTests(KeySecretCase):
    def test_first(self) -> None:
        """An empty Secret gets a new key, with the version that was read."""
        key = self.loaded(self.make())
        data = self.server.data
        assert data is not None
        self.assertEqual(KeyPair.from_openssh(data[AGENT_KEY]).blob, key.blob)
        self.assertEqual(len(self.server.patches()), 1)
        self.assertEqual(self.server.requests[0].getHeader(b"user-agent"), b"tower-proxy")

    def test_again(self) -> None:
        """A key is read and not written."""
        self.server.data = {AGENT_KEY: KEY.to_openssh()}
        self.assertEqual(self.loaded(self.make()).blob, KEY.blob)
        self.assertEqual(self.server.patches(), [])

    def test_race(self) -> None:
        """If two replicas find an empty Secret, the first one writes its key, and both use it."""
        one, other = self.loading(self.make()), self.loading(self.make())
        self.server.serve()
        keys = {self.successResultOf(each).fingerprint for each in (one, other)}
        self.assertEqual(len(keys), 1)
        self.assertEqual(len(self.server.patches()), 2)
        self.assertEqual(self.server.version, 2)

    def test_lost_answer(self) -> None:
        """A key that was stored without an answer is used at the next attempt."""
        loading = self.loading(self.make())

        def lose() -> None:
            for pipe in self.server.pipes:
                pipe.lose()

        self.server.before = [lose]
        self.server.serve()
        self.failureResultOf(loading, KeySecretFailed)
        data = self.server.data
        assert data is not None
        self.assertEqual(self.loaded(self.make()).blob, KeyPair.from_openssh(data[AGENT_KEY]).blob)

    def test_always_changed(self) -> None:
        """A Secret that is changed before each write is an error, not an endless loop."""

        def change() -> None:
            self.server.version += 1

        self.server.before = [change] * 10
        loading = self.loading(self.make())
        for _ in range(10):
            self.server.serve()
        self.assertIn("changed during 5 attempts", str(self.failureResultOf(loading, KeySecretFailed).value))

    def test_missing(self) -> None:
        """A missing Secret is named with two cures; the next attempt finds it."""
        self.server.data = None
        secret = self.make()
        text = self.fails(secret)
        self.assertIn("kubectl -n tower-system create secret generic tower-agent-key", text)
        self.assertIn("tower join alpha --format manifest", text)
        self.server.data = {}
        self.loaded(secret)

    def test_forbidden(self) -> None:
        """A missing right is named with the reason of the API server and the cure."""
        for method, verb in ((b"GET", "get"), (b"PATCH", "patch")):
            self.server.refusals = {method: (403, f'User "agent" cannot {verb} resource')}
            text = self.fails(self.make())
            self.assertIn(f"not allowed to {verb} Secret tower-system/tower-agent-key", text)
            self.assertIn("cannot", text)
            self.assertIn("tower join alpha --format manifest", text)

    def test_other_refusals(self) -> None:
        """Any other answer is quoted."""
        self.server.refusals = {b"GET": (503, "etcd is down")}
        self.assertIn("etcd is down", self.fails(self.make()))
        self.server.refusals = {b"PATCH": (422, "field is immutable when `immutable` is set")}
        self.assertIn("immutable", self.fails(self.make()))
        self.server.refusals = {b"GET": (200, "ok")}
        self.assertIn("not a Secret", self.fails(self.make()))

    def test_damaged(self) -> None:
        """A damaged key is not replaced, and is not quoted."""
        for content in (b"", b"hush-not-a-key"):
            self.server.data = {AGENT_KEY: content}
            text = self.fails(self.make())
            self.assertIn("the entry agent-key is damaged", text)
            self.assertNotIn("hush", text)
        self.assertEqual(self.server.patches(), [])

    def test_no_answer(self) -> None:
        """Without an answer the attempt fails in time, and leaves nothing open."""
        loading = self.loading(self.make())
        self.server.clock.advance(60)
        self.failureResultOf(loading, KeySecretFailed)
        self.assertTrue(all(pipe.lost or pipe.closing for pipe in self.server.pipes))


class EntryTests(KeySecretCase):
    """Entries in addition to the key."""

    def setUp(self) -> None:
        """Load a key."""
        super().setUp()
        self.secret = self.make()
        self.loaded(self.secret)
        self.secret.saving.startService()
        self.addCleanup(self.secret.saving.stopService)

    def stored(self, name: str) -> bytes | None:
        """Return an entry of the Secret."""
        assert self.server.data is not None
        return self.server.data.get(name)

    def test_written(self) -> None:
        """An entry is readable at once, and saved once it is in the Secret; the key stays."""
        self.assertTrue(self.secret.is_saved)
        self.secret.write("host-keys.json", b"{}")
        self.assertEqual(self.secret.read("host-keys.json"), b"{}")
        self.assertFalse(self.secret.is_saved)
        self.server.serve()
        self.assertTrue(self.secret.is_saved)
        self.assertEqual(self.stored("host-keys.json"), b"{}")
        self.assertIsNotNone(self.stored(AGENT_KEY))
        other = self.make()
        self.loaded(other)
        self.assertEqual(other.read("host-keys.json"), b"{}")
        self.assertIsNone(other.read("nothing"))

    def test_retried(self) -> None:
        """A failed write is logged once, and repeated until it succeeds; the last content is written."""
        self.server.refusals = {b"PATCH": (403, "cannot patch")}
        with capturedLogs() as events:
            self.secret.write("host-keys.json", b"1")
            self.server.serve()
            for _ in range(3):
                self.server.clock.advance(RETRY)
                self.server.serve()
        (warning,) = [event for event in events if event["log_level"] is LogLevel.warn]
        self.assertIn(
            "cannot store host-keys.json: the agent is not allowed to patch", str(formatEvent(warning))
        )
        self.assertFalse(self.secret.is_saved)
        self.server.refusals = {}
        self.secret.write("host-keys.json", b"2")
        self.server.serve()
        self.assertTrue(self.secret.is_saved)
        self.assertEqual(self.stored("host-keys.json"), b"2")

    def test_changed_meanwhile(self) -> None:
        """A content that changes while it is being written is written again."""
        self.secret.write("host-keys.json", b"1")
        self.secret.write("host-keys.json", b"2")
        self.server.serve()
        self.server.clock.advance(RETRY)
        self.server.serve()
        self.assertEqual(self.stored("host-keys.json"), b"2")
        self.assertTrue(self.secret.is_saved)

    def test_unsaved_survives_reading(self) -> None:
        """Reading the Secret again does not replace an entry that is not written yet."""
        self.server.refusals = {b"PATCH": (500, "")}
        self.secret.write("host-keys.json", b"2")
        self.server.serve()
        self.loaded(self.secret)
        self.assertEqual(self.secret.read("host-keys.json"), b"2")
