"""Tests of `tower.proxy`: problems of its host cluster, which ``/readyz`` shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import opened, put_cluster
from tower import VERSION
from tower import proxy as proxy_module
from tower.control.proxy_options import Options
from tower.controller.host_access import HostAccess
from tower.kube.rest.reflector_group import COLLECT
from tower.kube.rest.well_known import CLUSTERS, NAMESPACES, SERVICES
from tower.proxy import Proxy
from tower.store import IStore, MemoryStore
from tower.trust.statedir import StateDir

NAMESPACE = "kubesphere-system"


#: Kubeconfig for the host cluster.
KUBECONFIG = """
current-context: host
clusters: [{name: host, cluster: {server: "https://10.0.0.1"}}]
users: [{name: proxy, user: {token: secret}}]
contexts: [{name: host, context: {cluster: host, user: proxy}}]
"""


class HostProblemTests(SynchronousTestCase):
    """A proxy that does not listen, with its controller."""

    def setUp(self) -> None:
        """Make the proxy."""
        self.reactor: Any = MemoryReactorClock()
        self.reactor.advance(1_790_000_000.0)
        self.host = FakeHost(self.reactor)
        store = opened(self.host, self.reactor)
        self.addCleanup(store.stop)
        kubeconfig = Path(self.mktemp())
        kubeconfig.write_text(KUBECONFIG)
        options = Options({})
        options.parse([f"--kubeconfig={kubeconfig}"])
        self.proxy = self.made(options, store, HostAccess(self.host))

    def made(self, options: Options, store: IStore, access: HostAccess | None) -> Proxy:
        """Return a proxy that is not started."""
        state = StateDir(Path(self.mktemp()))
        return Proxy(options, state, self.reactor, None, store, access)

    def control(self) -> None:
        """Start the controller, as the proxy does when its records are loaded."""
        controller = self.proxy.controller
        assert controller is not None
        controller.startService()
        self.addCleanup(controller.stopService)
        self.pump(COLLECT + 1)

    def pump(self, seconds: float) -> None:
        """Let time pass."""
        self.reactor.pump([0.1] * int(seconds * 10))

    def apply(self, **spec: Any) -> None:
        """Apply a cluster."""
        put_cluster(self.host, **spec)
        self.pump(1)

    def problem(self) -> str:
        """Return the only problem."""
        (found,) = self.proxy.host_problems
        return found

    def test_crd(self) -> None:
        """A missing CRD is a problem until it is installed."""
        self.host.missing.add(CLUSTERS)
        self.control()
        self.assertIn("clusters.cluster.kubesphere.io", self.problem())
        self.host.missing.clear()
        self.pump(65)
        self.assertEqual(list(self.proxy.host_problems), [])

    def test_namespace(self) -> None:
        """A missing namespace is a problem until it exists."""
        self.control()
        self.assertEqual(list(self.proxy.host_problems), [])
        self.host.remove(NAMESPACES, NAMESPACE)
        self.apply()
        self.assertIn(f"create it with 'kubectl create namespace {NAMESPACE}'", self.problem())
        self.host.put(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        self.pump(10)
        self.assertEqual(list(self.proxy.host_problems), [])

    def test_rights(self) -> None:
        """A missing right is a problem until it is granted."""
        self.control()
        text = 'services "mc-alpha" is forbidden: User "x" cannot patch'
        self.host.fail_next(403, text, plural="services", count=6)
        self.apply()
        self.assertIn("cannot patch: grant it the rights of 'tower rbac host", self.problem())
        self.pump(30)
        self.assertEqual(list(self.proxy.host_problems), [])

    def test_files(self) -> None:
        """Files of a cluster that the next leader lacks are a problem."""
        ssh = {"user": "core", "keyFile": "id", "nodes": ["192.0.2.1:22"]}
        self.apply(connection={"type": "ssh", "ssh": ssh})
        self.assertIn("set --node-files to a directory with the same files for each proxy", self.problem())

    def test_names_before_ports(self) -> None:
        """No port opens before the names of the clusters' Services are known: only the controller runs."""
        self.host.missing.add(SERVICES)
        self.proxy.startService()
        self.pump(1)
        self.assertEqual(list(self.proxy), [self.proxy.controller])
        self.successResultOf(self.proxy.stopService())

    def test_build(self) -> None:
        """The first log line has the version and the build of the data path."""
        with capturedLogs() as events:
            self.proxy._log_start()
        self.assertIn(f"tower-proxy {VERSION}: listening on ", eventAsText(events[0]))

    def test_unusable_extensions(self) -> None:
        """The reason why compiled modules are not used is logged."""
        self.patch(proxy_module, "WARNINGS", ["running without compiled modules: x"])
        with capturedLogs() as events:
            self.proxy._log_start()
        self.assertIn("running without compiled modules: x", [e.get("text") for e in events])

    def test_without_host(self) -> None:
        """A proxy without a host cluster has none."""
        options = Options({})
        options.parse([])
        self.assertEqual(list(self.made(options, MemoryStore(), None).host_problems), [])
