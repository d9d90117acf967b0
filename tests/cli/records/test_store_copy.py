"""Tests of `tower.cli.records`: wrong uses, and checks before a copy."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

from twisted.internet.defer import Deferred

from tests.fakes.cli import CommandTestCase
from tests.kube.rest.fake_host import FakeHost
from tower.cli.client import CommandFailed
from tower.cli.records.store_copy import check_no_leader, has_same_keys
from tower.kube.rest.well_known import LEASES, SECRETS
from tower.rotation.host_key import FILE as HOST_KEY
from tower.trust.statedir import StateDir

NAMESPACE = "kubesphere-system"


class WrongUseTests(CommandTestCase):
    """Command lines that cannot work."""

    def test_stores(self) -> None:
        """Source and target must be two stores, and the state directory must be given."""
        for words, part in (
            (("--from", "sqlite", "--to", "sqlite"), "choose two stores"),
            (("--from", "sqlite"), "--to"),
            (("--from", "etcd", "--to", "sqlite"), "'etcd' is not valid"),
            (("--from", "sqlite", "--to", "kubernetes"), "--state-dir is missing"),
        ):
            self.assertIn(part, self.wrong("store", "copy", *words, state=False))
        words = ("--from", "sqlite", "--to", "kubernetes")
        self.assertIn("--host-kubeconfig is missing", self.wrong("store", "copy", *words))


class CheckTests(CommandTestCase):
    """Checks of the host cluster."""

    def test_leader(self) -> None:
        """A proxy that holds the Lease is named, with the cure; a released Lease does not count."""
        host = FakeHost()
        self.successResultOf(Deferred.fromCoroutine(check_no_leader(host, NAMESPACE)))
        lease = {"metadata": {"name": "tower"}, "spec": {"holderIdentity": ""}}
        host.put(LEASES, lease, NAMESPACE)
        self.successResultOf(Deferred.fromCoroutine(check_no_leader(host, NAMESPACE)))
        host.put(LEASES, {**lease, "spec": {"holderIdentity": "pod-1"}}, NAMESPACE)
        error = self.failureResultOf(Deferred.fromCoroutine(check_no_leader(host, NAMESPACE)), CommandFailed)
        for part in ("pod-1", "stop all proxies", "delete lease tower"):
            self.assertIn(part, str(error.value))
        host.fail_next(403)
        self.failureResultOf(Deferred.fromCoroutine(check_no_leader(host, NAMESPACE)), CommandFailed)

    def test_keys(self) -> None:
        """The host cluster may have the keys of this proxy, or none, but not another proxy's."""
        host, state = FakeHost(), StateDir(Path(self.mktemp()))

        def check() -> Deferred[bool]:
            return Deferred.fromCoroutine(has_same_keys(host, NAMESPACE, state))

        self.assertFalse(self.successResultOf(check()))
        data = {HOST_KEY: b64encode(b"key").decode()}
        host.put(SECRETS, {"metadata": {"name": "tower-state"}, "data": data}, NAMESPACE)
        self.assertTrue(self.successResultOf(check()))
        state.write(HOST_KEY, b"key")
        self.assertTrue(self.successResultOf(check()))
        state.write(HOST_KEY, b"other")
        error = self.failureResultOf(check(), CommandFailed)
        self.assertIn("tower-state", str(error.value))
