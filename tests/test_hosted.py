"""Tests of `tower.hosted`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options
from tower.controller.host_access import HostAccess
from tower.controller.leader.hosted_proxy import HostedProxy
from tower.controller.objects.service_objects import LEADER_SELECTOR
from tower.errors import ConfigurationError
from tower.hosted import replica
from tower.reactor.signals import Reloads
from tower.store import IStore
from tower.trust.statedir import StateDir

KUBECONFIG = {
    "clusters": [{"name": "host", "cluster": {"server": "https://192.0.2.1:6443"}}],
    "users": [{"name": "tower", "user": {"token": "a-token"}}],
    "contexts": [{"name": "host", "context": {"cluster": "host", "user": "tower"}}],
    "current-context": "host",
}


class ReplicaTests(SynchronousTestCase):
    """A replica that is made, and not started."""

    def setUp(self) -> None:
        """Write a kubeconfig."""
        self.kubeconfig = Path(self.mktemp())
        self.kubeconfig.write_text(yaml.safe_dump(KUBECONFIG))
        self.state = StateDir(Path(self.mktemp()))
        self.reactor: Any = MemoryReactorClock()
        self.access: list[HostAccess] = []

    def make(self, *words: str, **environ: str) -> HostedProxy:
        """Return the replica with these options and variables."""
        options = Options({})
        options.parse([f"--kubeconfig={self.kubeconfig}", *words])
        return replica(options, self.reactor, self.state, self.create, environ)

    def create(self, store: IStore, access: HostAccess, reloads: Reloads) -> Any:
        """Keep what a proxy would get."""
        self.access.append(access)

    def settings(self, *words: str, **environ: str) -> Any:
        """Return the controller's settings."""
        self.make(*words, **environ)._create(None)  # type: ignore[arg-type]
        return self.access.pop().settings

    def test_identity(self) -> None:
        """Each start has another identity, which begins with the name of the pod."""
        identities = {self.make(POD_NAME="tower-1")._secret._identity for _ in range(2)}
        self.assertEqual(len(identities), 2)
        for identity in identities:
            self.assertTrue(identity.startswith("tower-1_"), identity)

    def test_pod(self) -> None:
        """Services select the leader's pod in their namespace; elsewhere they have its address."""
        settings = self.settings("--namespace=tower", POD_NAME="a", POD_NAMESPACE="tower", POD_IP="10.0.0.1")
        self.assertEqual(
            (settings.namespace, settings.selector, settings.addresses), ("tower", LEADER_SELECTOR, ())
        )
        settings = self.settings(POD_NAME="a", POD_NAMESPACE="tower", POD_IP="10.0.0.1")
        self.assertEqual((settings.selector, settings.addresses), (None, ("10.0.0.1",)))

    def test_outside(self) -> None:
        """Services have the published address of a proxy outside of the cluster, if it is an IP address."""
        for words, expected in (
            (("--publish-service-address=192.0.2.7",), ("192.0.2.7",)),
            (("--publish-service-address=tower.example", "--host=192.0.2.8"), ("192.0.2.8",)),
            (("--host=127.0.0.1",), ()),
            ((), ()),
        ):
            settings = self.settings(*words)
            self.assertEqual((settings.selector, settings.addresses), (None, expected), words)

    def test_sole(self) -> None:
        """Without the election the replica holds the Lease, too, so that another one notices it."""
        for words, expected in ((("--leader-elect=false",), True), ((), False)):
            election: Any = self.make(*words)._election
            self.assertEqual(election._is_only, expected)

    def test_health_port(self) -> None:
        """The health port is open from the beginning; without the option there is none."""
        self.make()
        self.assertEqual(self.reactor.tcpServers, [])
        self.make("--health-port=8081", "--host=127.0.0.1")
        ((port, _, _, host),) = self.reactor.tcpServers
        self.assertEqual((port, host), (8081, "127.0.0.1"))

    def test_database(self) -> None:
        """A state directory with records of SQLite is rejected, with the cure; an empty file has none."""
        self.state.write("tower.db", b"")
        self.make()
        self.state.write("tower.db", b"SQLite format 3")
        error = self.assertRaises(ConfigurationError, self.make)
        self.assertIn("move the file away", str(error))

    def test_not_in_pod(self) -> None:
        """Without a kubeconfig the proxy must be in a pod."""
        options = Options({})
        options.parse(["--store=kubernetes"])
        with self.assertRaises(ConfigurationError):
            replica(options, self.reactor, self.state, self.create, {})
