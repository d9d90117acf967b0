"""Holes 7, 8, 20, 22 and 24 to 30: a cluster's record, and its effects."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable

from cryptography import x509
from twisted.logger import LogEvent, LogLevel, PredicateResult, capturedLogs, eventAsText

from tests.fakes.certificates import DAY, authority, client_context, shake
from tests.holes.agentkit import MemoryAgent
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import MemoryTower, done
from tower.clusters import Clusters, to_object
from tower.clusters.condition_types import AGENT_AVAILABLE
from tower.conch.transport.keys import KeyPair
from tower.control.proxy_options import Options
from tower.logs.levels import LevelFilter, Levels
from tower.options.errors import OptionError
from tower.store.kinds import KINDS
from tower.trust.serving_certificate import ServingCertificate, serving_names
from tower.trust.statedir import StateDir
from tower.web.ports.cluster_proxy import PORT_OPEN


class PortTests(HoleTestCase):
    """Holes 7 and 22: which port a cluster has, and where it is open."""

    def test_hole_07_three_hundred_clusters(self) -> None:
        """Hole 7: 300 clusters added at once, by two independent clients, get 300 ports."""
        tower = MemoryTower(ports=range(6000, 6301))
        self.addCleanup(tower.stop)
        other = Clusters(tower.store, range(6000, 6301), tower.machine)
        self.addCleanup(other.stop)
        tower.store.holding = True
        adding = [(tower.clusters if number % 2 else other).add(f"c{number}") for number in range(300)]
        tower.store.release()
        tower.store.holding = False
        ports = [self.successResultOf(added).kubernetes_port for added in adding]
        self.assertEqual(sorted(ports), list(range(6000, 6300)))
        self.assertEqual(sorted(tower.machine.open), list(range(6000, 6300)))
        self.assertEqual(len(tower.store.snapshot("ports")), 300)

    def test_hole_07_both_kinds_of_ports(self) -> None:
        """Hole 7: the ports for KubeSphere are 10000 above the others, so none of the 600 is another's."""
        tower = MemoryTower(ports=range(6000, 6301), kubesphere_ports=range(16000, 16301))
        self.addCleanup(tower.stop)
        for number in range(300):
            tower.add(f"c{number}")
        expected = [*range(6000, 6300), *range(16000, 16300)]
        self.assertEqual(sorted(number for number, _ in tower.machine.opened), expected)
        options = Options({})
        arguments = ["--cluster-ports=9000-19000", "--kubesphere-ports=18000-20000"]
        self.assertIn("kubesphere-ports", str(self.assertRaises(OptionError, options.parse, arguments)))

    def test_hole_07_a_port_that_is_not_ours(self) -> None:
        """Hole 7: a port that cannot be opened is in the condition, although the agent is connected."""
        self.tower.machine.taken.add(6001)
        self.tower.add("beta")
        agent = MemoryAgent(self.tower, "beta", self.tower.token("beta")).start()
        self.addCleanup(agent.service.stopService)
        self.assertEqual(self.condition("beta", AGENT_AVAILABLE)[0], "True")
        self.assertEqual(self.condition("beta", PORT_OPEN)[:2], ("False", "PortUnavailable"))
        self.assertIn("6001", self.condition("beta", PORT_OPEN)[2])
        self.tower.machine.taken.clear()
        self.tower.ports.retry()
        self.assertEqual(self.condition("beta", PORT_OPEN)[0], "True")

    def test_hole_22_ports_are_where_the_host_is(self) -> None:
        """Hole 22: a cluster's port is bound to the address of `--host`, not to every one."""
        self.assertEqual(self.tower.machine.opened, [(6000, "127.0.0.1")])

    def test_hole_22_plain_ports_are_asked_for(self) -> None:
        """Hole 22: no port without TLS and users is open by default, and if set, then on the loopback."""
        options = Options({})
        options.parse([])
        self.assertEqual((options["kubesphere-ports"], options["kubesphere-host"]), (None, "127.0.0.1"))
        self.assertFalse(options["v1-open-ports"])

    def condition(self, name: str, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition."""
        found = self.tower.clusters.require(name).condition(kind)
        assert found is not None, kind
        return found.status, found.reason, found.message


class CertificateTests(HoleTestCase):
    """Holes 8, 20 and 27: the one certificate that users see."""

    def setUp(self) -> None:
        """Make an authority."""
        super().setUp()
        self.now = time.time()  # which TLS clients look at
        self.state = StateDir(self.mktemp())
        self.authority = authority("serving", lifetime=3650 * DAY, now=self.now)
        self.users = authority("users", now=self.now)

    def serving(self, *hosts: str) -> ServingCertificate:
        """Return what serves under these names."""
        return ServingCertificate(
            self.state, self.authority, self.users, serving_names(*hosts), lambda: self.now
        )

    def test_hole_08_a_host_name_as_address(self) -> None:
        """Hole 8: an endpoint with a host name is served like one with an address, and agents come in."""
        serving = self.serving("a1b2.elb.example.com", "192.0.2.7")
        for host in ("a1b2.elb.example.com", "192.0.2.7"):
            shake(serving.context, client_context(self.authority), host)
        self.assertEqual(self.agent().service.state, "connected")

    def test_hole_20_no_key_for_a_reconnect(self) -> None:
        """Hole 20: agents that come and go write no record and no file, and make no key or certificate."""
        serving = self.serving("tower.example")
        agent = self.agent()
        version = self.tower.store.version
        files = {path.name: path.read_bytes() for path in self.state.path.iterdir()}
        until = serving.not_after
        for _ in range(5):
            self.tower.lines[0].lose()
            self.tower.sweep(2)
            self.assertEqual(agent.service.state, "connected")
        self.assertEqual(agent.tries, 6)
        self.assertEqual(self.tower.store.version, version)
        self.assertEqual({path.name: path.read_bytes() for path in self.state.path.iterdir()}, files)
        self.assertEqual(serving.not_after, until)

    def test_hole_20_no_certificate_outlives_its_authority(self) -> None:
        """Hole 20: a certificate begins when it is made, lives for 90 days, and ends no later than its CA."""
        for lifetime, lives in ((3650 * DAY, 90 * DAY), (10 * DAY, 10 * DAY)):
            self.state = StateDir(self.mktemp())
            self.authority = authority("serving", lifetime=lifetime, now=self.now)
            self.serving("tower.example")
            pem = self.state.read("serving.pem") or b""
            certificate = x509.load_pem_x509_certificate(pem[pem.index(b"-----BEGIN CERT") :])
            begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
            self.assertLess(abs((end - begin).total_seconds() - lives), DAY)
            self.assertLess(abs(begin.timestamp() - self.now), DAY)

    def test_hole_27_new_names_need_no_agent(self) -> None:
        """Hole 27: another published address is in the certificate from the next start on, agents or none."""
        self.agent()
        self.serving("old.example")
        serving = self.serving("new.example")
        shake(serving.context, client_context(self.authority), "new.example")


class ConditionTests(HoleTestCase):
    """Holes 20, 21, 25, 26 and 29: conditions, and that they are true."""

    def conditions(self) -> dict[str, str]:
        """Return the status of the conditions of alpha that may change."""
        found = self.tower.clusters.require("alpha").conditions
        return {c.type: c.status for c in found if c.type in (AGENT_AVAILABLE, PORT_OPEN)}

    def test_hole_21_no_write_without_a_change(self) -> None:
        """Hole 21: an unchanged condition is not written again, and keeps its time of transition."""
        self.agent()
        self.tower.sweep(15)
        version = self.tower.store.version
        before = self.tower.clusters.require("alpha").conditions
        self.tower.sweep(3600)
        self.tower.ports.retry()
        self.agent()
        self.assertEqual(self.tower.store.version, version + 1)  # the other token
        self.assertEqual(self.tower.clusters.require("alpha").conditions, before)

    def test_hole_25_off_and_on_again(self) -> None:
        """Hole 25: a cluster that was off and is on again is complete: port, agent, requests, conditions."""
        agent = self.agent()
        jane = self.tower.credential("alpha")
        done(self.tower.clusters.set_enabled("alpha", False))
        self.tower.sweep(15)
        self.assertEqual((list(self.tower.machine.open), self.tower.tunnels.live("alpha")), ([], []))
        done(self.tower.clusters.set_enabled("alpha", True))
        self.tower.sweep(30)
        self.through(agent, self.tower.user(6000), b"/api", jane)
        self.assertEqual(self.conditions(), {AGENT_AVAILABLE: "True", PORT_OPEN: "True"})

    def test_hole_26_nothing_stays_when_it_is_off(self) -> None:
        """Hole 26: the conditions of a cluster that is switched off show it, and nothing is left open."""
        self.agent()
        self.assertEqual(self.conditions(), {AGENT_AVAILABLE: "True", PORT_OPEN: "True"})
        done(self.tower.clusters.set_enabled("alpha", False))
        self.tower.sweep(12)
        self.assertEqual(self.conditions(), {AGENT_AVAILABLE: "False", PORT_OPEN: "False"})
        self.assertEqual(list(self.tower.machine.open), [])

    def test_hole_29_after_a_crash(self) -> None:
        """Hole 29: a cluster that a crashed proxy left as available becomes unavailable without its agent."""
        self.agent()
        self.assertEqual(self.conditions()[AGENT_AVAILABLE], "True")
        again = MemoryTower(store=self.tower.store)
        self.addCleanup(again.stop)
        again.sweep(11)
        found = again.clusters.require("alpha").condition(AGENT_AVAILABLE)
        assert found is not None
        self.assertEqual((found.status, found.reason), ("False", "AgentDisconnected"))
        self.assertIn("check whether it runs", found.message)


class SecretTests(HoleTestCase):
    """Hole 24."""

    def test_hole_24_no_secret_in_a_cluster(self) -> None:
        """Hole 24: a cluster's object, and every record, is without tokens and kubeconfigs."""
        token = self.tower.token("alpha")
        bearer = self.tower.credential("alpha").rpartition(b" ")[2].decode()
        self.agent()
        seen = json.dumps(to_object(self.tower.clusters.require("alpha")))
        self.assertNotIn("kubeconfig", seen.lower())
        self.assertNotIn("token", seen.lower())
        for kind in KINDS:
            for record in self.tower.store.snapshot(kind).values():
                seen += record.name + json.dumps(dict(record.value))
        for secret in (token, bearer, "agents-own-token"):
            self.assertNotIn(secret, seen)


class LogTests(HoleTestCase):
    """Hole 30: messages at normal verbosity."""

    def lines(self, events: Iterable[LogEvent]) -> str:
        """Return what of *events* is logged by default."""
        normal = LevelFilter(Levels())
        return "\n".join(eventAsText(event) for event in events if normal(event) != PredicateResult.no)

    def test_hole_30_refused_agents_are_in_the_proxys_log(self) -> None:
        """Hole 30: a refused agent is logged with its address, the cluster and the reason."""
        with capturedLogs() as events:
            agent = MemoryAgent(self.tower, "beta", "tower-wrong").start()
            self.tower.sweep(1)
        self.addCleanup(agent.service.stopService)
        self.assertIn("192.0.2.1:4321 was rejected: for cluster 'beta': ", self.lines(events))
        self.assertIn("unknown cluster", self.lines(events))
        self.assertNotIn("tower-wrong", self.lines(events))

    def test_hole_30_the_agent_logs_its_state(self) -> None:
        """Hole 30: an agent logs that it is connected, and why it is not, each time."""
        with capturedLogs() as events:
            self.agent()
        self.assertIn("connected to 192.0.2.1:4321", self.lines(events))
        with capturedLogs() as events:
            refused = MemoryAgent(self.tower, token="tower-wrong", key=KeyPair.generate()).start()
        self.addCleanup(refused.service.stopService)
        self.assertIn("rejected this agent for cluster 'alpha'", self.lines(events))
        self.assertTrue(any(e["log_level"] is LogLevel.warn for e in events))
        self.assertIn("rejected this agent for cluster 'alpha'", refused.service.state)
