"""Tests of `tower.member.health_page`."""

from __future__ import annotations

from typing import cast

from attrs import define, evolve
from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase

from tower.kube.member_status import Check, MemberStatus
from tower.member.health_page import HealthPage, HealthService
from tower.member.member_health import MemberHealth
from tower.member.policy.owner_enforcement import OwnerEnforcement
from tower.member.policy.owner_gate import OwnerGate
from tower.member.policy.owner_policy import OwnerPolicy
from tower.member.reconnecting import Reconnecting

OK = Check("True", "Good", "it works")
GOOD = MemberStatus(OK, OK, OK)
DENIED = Check("False", "ImpersonationDenied", "run kubectl")


@define
class Subject:
    """Something that may be ready."""

    ready: bool = False
    state: str = "connecting"


class HealthTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a page that listens in memory, of a member that works."""
        self.subject = Subject(ready=True)
        self.reactor = MemoryReactorClock()
        self.health = MemberHealth(self.reactor, Deferred)
        self.health.status = GOOD
        service = HealthService(
            self.reactor, "127.0.0.1", 8081, HealthPage(cast(Reconnecting, self.subject), self.health)
        )
        service.startService()
        self.addCleanup(service.stopService)

    def with_policy(self) -> tuple[OwnerGate, list[str]]:
        """Give the agent an owner's policy; return its gate, and where to put its problem."""
        gate, problems = OwnerGate("alpha", lambda: 0.0), [""]
        owner = OwnerEnforcement(gate, (), lambda: problems[0])
        self.reactor.tcpServers.clear()
        service = HealthService(
            self.reactor, "127.0.0.1", 8081, HealthPage(cast(Reconnecting, self.subject), self.health, owner)
        )
        service.startService()
        self.addCleanup(service.stopService)
        return gate, problems

    def test_policy(self) -> None:
        """The page is not ready before the owner's policy is read, and warns if it is not the current one."""
        gate, problems = self.with_policy()
        self.assertEqual(self.ask(b"/readyz"), (503, "not ready: the agent's policy is not read yet\n"))
        gate.use(OwnerPolicy())
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\n"))
        self.assertEqual(self.ask(b"/readyz/policy"), (200, "ok\n"))
        problems[0] = "file: is not YAML"
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\nwarning: file: is not YAML\n"))
        self.assertIn("[+]policy ok, warning: file: is not YAML\n", self.ask(b"/readyz?verbose")[1])

    def ask(self, path: bytes, method: bytes = b"GET") -> tuple[int, str]:
        """Return status and body of an answer."""
        port, factory, _, interface = self.reactor.tcpServers[0]
        self.assertEqual((port, interface), (8081, "127.0.0.1"))
        protocol = factory.buildProtocol(IPv4Address("TCP", "127.0.0.1", 1))
        assert protocol is not None
        transport = StringTransport()
        protocol.makeConnection(transport)
        protocol.dataReceived(method + b" " + path + b" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        head, _, body = transport.value().partition(b"\r\n\r\n")
        return int(head.split()[1]), body.decode()

    def test_alive(self) -> None:
        """The agent is healthy whether the rest works or not."""
        self.subject.ready, self.health.status = False, None
        self.assertEqual(self.ask(b"/healthz"), (200, "ok\n"))

    def test_tunnel(self) -> None:
        """The page is ready while the tunnel is up, and shows the state otherwise."""
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\n"))
        self.assertEqual(self.ask(b"/readyz", b"HEAD"), (200, ""))
        self.subject.ready = False
        self.assertEqual(self.ask(b"/readyz"), (503, "not ready: connecting\n"))
        self.assertEqual(self.ask(b"/readyz/tunnel"), (503, "not ready: connecting\n"))

    def test_member(self) -> None:
        """The page is not ready while the member is not usable, and names the first reason and its cure."""
        self.health.status = None
        self.assertEqual(
            self.ask(b"/readyz"), (503, "not ready: the first check of the API server is not finished\n")
        )
        self.health.status = evolve(GOOD, impersonation=DENIED)
        self.assertEqual(self.ask(b"/readyz"), (503, "not ready: run kubectl\n"))
        self.health.status = MemberStatus(Check("False", "Timeout", "no answer: restart it"))
        self.assertEqual(self.ask(b"/readyz"), (503, "not ready: no answer: restart it\n"))

    def test_warning(self) -> None:
        """A problem that does not affect users yet is shown on a page that is ready."""
        self.health.status = evolve(GOOD, api_server=Check("True", "ClockSkew", "the clock is 1 h behind"))
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\nwarning: the clock is 1 h behind\n"))
        self.assertIn("[+]api-server ok, warning: the clock is 1 h behind\n", self.ask(b"/readyz?verbose")[1])
        self.assertEqual(self.ask(b"/readyz/api-server"), (200, "ok, warning: the clock is 1 h behind\n"))

    def test_unknown(self) -> None:
        """A check that was not possible is a warning."""
        self.health.status = evolve(GOOD, impersonation=Check("Unknown", "ReviewFailed", "grant the role"))
        self.assertEqual(self.ask(b"/readyz"), (200, "ok\nwarning: grant the role\n"))
        self.assertIn("[+]impersonation unknown grant the role\n", self.ask(b"/readyz?verbose")[1])

    def test_verbose(self) -> None:
        """The verbose page has one line for each check, as kube-apiserver's."""
        good = ["[+]tunnel ok", "[+]api-server ok", "[+]credential ok", "[+]impersonation ok"]
        self.assertEqual(self.ask(b"/readyz?verbose"), (200, "\n".join([*good, "readyz check passed", ""])))
        self.health.status = evolve(GOOD, impersonation=DENIED)
        bad = [*good[:3], "[-]impersonation failed: run kubectl", "readyz check failed", ""]
        self.assertEqual(self.ask(b"/readyz?verbose=1"), (503, "\n".join(bad)))
        self.health.status = MemberStatus(Check("False", "Timeout", "no answer: restart it"))
        self.assertEqual(
            self.ask(b"/readyz?verbose")[1].splitlines()[1:4],
            [
                "[-]api-server failed: no answer: restart it",
                "[+]credential unknown",
                "[+]impersonation unknown",
            ],
        )

    def test_single_checks(self) -> None:
        """Each check has its page."""
        self.health.status = evolve(GOOD, impersonation=DENIED)
        self.assertEqual(self.ask(b"/readyz/api-server"), (200, "ok\n"))
        self.assertEqual(self.ask(b"/readyz/impersonation"), (503, "not ready: run kubectl\n"))
        self.assertEqual(self.ask(b"/readyz/tunnel"), (200, "ok\n"))

    def test_other(self) -> None:
        """There is nothing else, and nothing to be changed."""
        for path in (b"/", b"/readyz/", b"/readyz/other"):
            self.assertEqual(self.ask(path)[0], 404)
        self.assertEqual(self.ask(b"/healthz", b"POST")[0], 405)
