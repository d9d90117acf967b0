"""Tests of `tower.controller.leader.state_secret`."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.state_secret import OWNER, StateSecret
from tower.errors import TowerError
from tower.kube.client import APIError
from tower.kube.rest.well_known import SECRETS
from tower.store.records import StoreFailed
from tower.trust.statedir import StateDir

NAMESPACE = "kubesphere-system"
KEY, NEXT = "ssh_host_ed25519_key", "ssh_host_ed25519_key.next"


class StateSecretTests(SynchronousTestCase):
    """Leaders with a state directory each."""

    def setUp(self) -> None:
        """Make the API server, and one leader."""
        self.host = FakeHost()
        self.state, self.secret = self.leader("a")

    def leader(self, name: str) -> tuple[StateDir, StateSecret]:
        """Return a leader with an empty state directory."""
        state = StateDir(Path(self.mktemp()))
        return state, StateSecret(self.host, NAMESPACE, state, name)

    def do(self, doing: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """Return the result of a coroutine."""
        return self.successResultOf(Deferred.fromCoroutine(doing))

    def fail_to(self, doing: Coroutine[Deferred[Any], Any, Any]) -> str:
        """Return the error of a coroutine."""
        failure = self.failureResultOf(Deferred.fromCoroutine(doing), TowerError)
        return str(failure.value)

    def stored(self) -> dict[str, bytes]:
        """Return the files in the Secret."""
        found = self.host.object(SECRETS, "tower-state", NAMESPACE)
        assert found is not None
        return {name: b64decode(data) for name, data in found["data"].items()}

    def test_first(self) -> None:
        """The first leader has no Secret to take over, and creates it with its keys only."""
        self.assertFalse(self.do(self.secret.exists()))
        self.state.write("tower.db", b"records")
        self.state.write("admin.kubeconfig", b"a credential")
        self.do(self.secret.take_over())
        self.assertEqual(self.stored(), {})
        self.state.write(KEY, b"a key")
        self.do(self.secret.save_changed())
        self.assertEqual(self.stored(), {KEY: b"a key"})
        self.assertTrue(self.do(self.secret.exists()))

    def test_next(self) -> None:
        """The next leader gets the saved keys, and loses others that it had."""
        self.do(self.secret.save({KEY: b"a key"}))
        state, secret = self.leader("b")
        state.write(KEY, b"an old key")
        state.write(NEXT, b"an old next key")
        state.write("admin.kubeconfig", b"a credential")
        self.do(secret.take_over())
        self.assertEqual((state.read(KEY), state.read(NEXT)), (b"a key", None))
        self.assertEqual(state.read("admin.kubeconfig"), b"a credential")
        self.assertEqual((state.path / KEY).stat().st_mode & 0o777, 0o600)

    def test_change(self) -> None:
        """A change is one write; keys of others stay."""
        self.do(self.secret.save({KEY: b"1", NEXT: b"2"}))
        found = self.host.object(SECRETS, "tower-state", NAMESPACE)
        assert found is not None
        self.host.put(SECRETS, {**found, "data": {**found["data"], "note": "bm90ZQ=="}})
        self.do(self.secret.save({KEY: b"2", NEXT: None}))
        self.assertEqual(self.stored(), {KEY: b"2", "note": b"note"})

    def test_unchanged(self) -> None:
        """Files that are saved already are not written again, also after a takeover."""
        self.state.write(KEY, b"a key")
        self.do(self.secret.save_changed())
        state, secret = self.leader("b")
        self.do(secret.take_over())
        writes = len(self.host.writes)
        self.do(self.secret.save_changed())
        self.do(secret.save_changed())
        self.assertEqual(len(self.host.writes), writes)
        state.write(KEY, b"another")
        self.do(secret.save_changed())
        self.assertEqual(self.stored(), {KEY: b"another"})

    def test_former_leader(self) -> None:
        """After a takeover the former leader cannot write."""
        self.do(self.secret.save({KEY: b"a key"}))
        _, secret = self.leader("b")
        self.do(secret.take_over())
        self.assertIn("was taken over by b", self.fail_to(self.secret.save({KEY: b"late"})))
        self.assertEqual(self.stored(), {KEY: b"a key"})

    def test_removed(self) -> None:
        """A Secret that was removed is created again with all files."""
        self.do(self.secret.save({KEY: b"1"}))
        self.host.remove(SECRETS, "tower-state", NAMESPACE)
        self.do(self.secret.save({NEXT: b"2"}))
        self.assertEqual(self.stored(), {KEY: b"1", NEXT: b"2"})

    def test_removed_meanwhile(self) -> None:
        """A Secret that another program removed is written again, with a warning; a failure is shown."""
        self.state.write(KEY, b"1")
        self.do(self.secret.save_changed())
        self.host.remove(SECRETS, "tower-state", NAMESPACE)
        self.host.fail_next(403, "secrets is forbidden", verbs=["create"])
        with capturedLogs() as events:
            self.do(self.secret.try_to_save_changed())
            text = f"cannot write again the removed Secret {NAMESPACE}/tower-state: POST "
            self.assertTrue(self.secret.problem.startswith(text), self.secret.problem)
            self.assertIn("secrets is forbidden", self.secret.problem)
            self.do(self.secret.try_to_save_changed())
        self.assertEqual((self.stored(), self.secret.problem), ({KEY: b"1"}, ""))
        self.assertIn("tower-state was removed: this leader writes it again", formatEvent(events[0]))
        writes = len(self.host.writes)
        self.do(self.secret.try_to_save_changed())
        self.assertEqual(len(self.host.writes), writes)

    def test_copy_without_secret(self) -> None:
        """A leader does not write the keys in its directory into a missing Secret unless it is allowed."""
        self.state.write(KEY, b"an old key")
        text = self.fail_to(self.secret.take_over())
        self.assertIn(f"there is no Secret {NAMESPACE}/tower-state with keys, and {self.state.path}", text)
        self.assertIn(f"({KEY}): apply a saved copy of the Secret with kubectl", text)
        self.assertIsNone(self.host.object(SECRETS, "tower-state", NAMESPACE))
        allowed = StateSecret(self.host, NAMESPACE, self.state, "a", use_own=True)
        with capturedLogs() as events:
            self.do(allowed.take_over())
        self.assertIn(f"it gets those in {self.state.path} ({KEY})", formatEvent(events[0]))
        self.assertEqual(self.stored(), {KEY: b"an old key"})

    def test_empty_secret(self) -> None:
        """A Secret without keys, as an interrupted start leaves it, does not remove those in a directory."""
        self.do(self.secret.take_over())
        state, secret = self.leader("b")
        state.write(KEY, b"an old key")
        self.assertIn("set --keys-from-state-dir", self.fail_to(secret.take_over()))
        self.assertEqual((state.read(KEY), self.stored()), (b"an old key", {}))
        self.do(StateSecret(self.host, NAMESPACE, state, "b", use_own=True).take_over())
        self.assertEqual((state.read(KEY), self.stored()), (b"an old key", {KEY: b"an old key"}))

    def test_start_repeated(self) -> None:
        """A directory with only a key for secrets, as an interrupted start leaves it, is used."""
        self.do(self.secret.take_over())
        self.state.write("secrets.key", b"a key")
        self.do(self.secret.take_over())
        self.host.remove(SECRETS, "tower-state", NAMESPACE)
        self.do(self.secret.take_over())

    def test_missing_namespace(self) -> None:
        """A missing namespace is named."""
        host = FakeHost(namespaces=())
        taking = Deferred.fromCoroutine(StateSecret(host, NAMESPACE, self.state, "a").take_over())
        self.assertIn("not found", str(self.failureResultOf(taking, APIError).value))

    def test_saved_copy_applied(self) -> None:
        """A saved copy of the Secret that is applied while the leader waits is used."""
        self.state.write(KEY, b"an old key")
        self.fail_to(self.secret.take_over())
        _, other = self.leader("b")
        self.do(other.save({KEY: b"the key"}))
        self.do(self.secret.take_over())
        self.assertEqual(self.state.read(KEY), b"the key")

    def test_unknown_outcome(self) -> None:
        """A write without an answer can be repeated, whether it happened or not."""
        self.do(self.secret.save({KEY: b"1", NEXT: b"2"}))
        for is_applied in (False, True):
            self.host.fail_next(0, verbs=["patch"], applied=is_applied)
            self.assertIn("cannot save", self.fail_to(self.secret.save({KEY: b"2", NEXT: None})))
            self.do(self.secret.save({KEY: b"2", NEXT: None}))
            self.assertEqual(self.stored(), {KEY: b"2"})

    def test_unknown_creation(self) -> None:
        """The same holds for its creation."""
        self.host.fail_next(0, verbs=["create"], applied=True)
        self.fail_to(self.secret.save({KEY: b"1"}))
        self.do(self.secret.save({KEY: b"2"}))
        self.assertEqual(self.stored(), {KEY: b"2"})

    def test_rejected(self) -> None:
        """A missing right is named, and no content is in the error."""
        self.host.fail_next(403, "secrets is forbidden")
        text = self.fail_to(self.secret.save({KEY: b"a key"}))
        self.assertIn(f"cannot save {KEY} in Secret {NAMESPACE}/tower-state", text)
        self.assertIn("secrets is forbidden", text)
        self.host.fail_next(403, count=2)
        self.fail_to(self.secret.take_over())
        self.failureResultOf(Deferred.fromCoroutine(self.secret.exists()), APIError)

    def test_logged_once(self) -> None:
        """An error in the background is logged once, and again after a success."""
        self.state.write(KEY, b"a key")
        with capturedLogs() as events:
            for failures in (1, 1, 0):
                self.host.fail_next(500, count=1) if failures else None
                self.do(self.secret.try_to_save_changed())
        self.assertEqual(len(events), 1)
        self.assertIn("cannot save", formatEvent(events[0]))
        self.assertEqual(self.stored(), {KEY: b"a key"})

    def test_taken_over_twice(self) -> None:
        """A takeover that another write disturbs is repeated."""
        self.do(self.secret.save({KEY: b"a key"}))
        self.host.fail_next(409, verbs=["patch"])
        state, secret = self.leader("b")
        self.do(secret.take_over())
        self.assertEqual(state.read(KEY), b"a key")
        found = self.host.object(SECRETS, "tower-state", NAMESPACE)
        assert found is not None
        self.assertEqual(found["metadata"]["annotations"][OWNER], "b")
        self.host.fail_next(409, verbs=["patch"], count=9)
        failure = self.failureResultOf(Deferred.fromCoroutine(secret.take_over()), StoreFailed)
        self.assertIn("at the same time", str(failure.value))
