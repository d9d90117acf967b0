"""Tests of `tower.control.conditions`."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.tunnels import FakeTunnel
from tower.clusters.cluster import Cluster, Condition
from tower.clusters.condition_types import AGENT_AVAILABLE, MEMBER_CHECKS, NODES_AVAILABLE
from tower.clusters.ssh_spec import SSHSpec
from tower.control.conditions import (
    link_down,
    link_type,
    link_up,
    member_conditions,
    summary,
    unchecked,
    unreported,
)
from tower.kube.member_status import Check, MemberStatus
from tower.tunnels import Tunnels

ALPHA = Cluster("alpha", "u", 1, 0.0)
BETA = Cluster("beta", "v", 1, 0.0, ssh=SSHSpec("core", "/key"))
GOOD = Check("True", "Fine")
WORKS = MemberStatus(GOOD, GOOD, GOOD)


def failed(reason: str) -> Check:
    """Return a failed check."""
    return Check("False", reason, f"{reason}: cure it")


class SummaryTests(SynchronousTestCase):
    """The condition Available."""

    def sum(
        self,
        status: MemberStatus | None = WORKS,
        *,
        cluster: Cluster = ALPHA,
        link: Condition | None = None,
        tunnels: tuple[FakeTunnel, ...] = (),
        silent: tuple[FakeTunnel, ...] = (),
    ) -> tuple[str, str, str]:
        """Return status, reason and message."""
        parts = [link or link_up(cluster)]
        if status is not None:
            parts += member_conditions(status)
        found = summary(cluster, {part.type: part for part in parts}, tunnels, lambda each: each in silent)
        self.assertEqual(found.type, "Available")
        return found.status, found.reason, found.message

    def test_good(self) -> None:
        """It is true if everything is."""
        for cluster in (ALPHA, BETA):
            self.assertEqual(
                self.sum(cluster=cluster), ("True", "Ready", "The API server answers users' requests.")
            )

    def test_first_reason(self) -> None:
        """It is false with the first failed check, the one of the tunnels first."""
        down = Condition(AGENT_AVAILABLE, "False", "AgentDisconnected", "gone", 0)
        one, two, three = failed("Refused"), failed("Expired"), failed("Denied")
        for status, link, reason in (
            (WORKS, down, "AgentDisconnected"),
            (MemberStatus(one, two, three), down, "AgentDisconnected"),
            (MemberStatus(one, two, three), None, "Refused"),
            (MemberStatus(GOOD, two, three), None, "Expired"),
            (MemberStatus(GOOD, GOOD, three), None, "Denied"),
            (MemberStatus(credential=two), None, "Expired"),
        ):
            found = self.sum(status, link=link)
            self.assertEqual(found[:2], ("False", reason))
            self.assertIn("gone" if link else "cure it", found[2])

    def test_degraded_nodes(self) -> None:
        """If no node reaches the API server, the reason is that of its check, which has the cure."""
        degraded = Condition(NODES_AVAILABLE, "False", "NodesDegraded", "no answer", 0)
        for status, reason in ((MemberStatus(failed("Refused")), "Refused"), (WORKS, "NodesDegraded")):
            self.assertEqual(self.sum(status, cluster=BETA, link=degraded)[:2], ("False", reason))

    def test_disabled(self) -> None:
        """A disabled cluster is not available."""
        found = self.sum(cluster=evolve(ALPHA, enabled=False))
        self.assertEqual(found[:2], ("False", "Disabled"))
        self.assertIn("tower cluster enable alpha", found[2])

    def test_unknown(self) -> None:
        """Without the first report it is unknown; with checks that were not made it is true."""
        self.assertEqual(self.sum(None)[:2], ("Unknown", "NotChecked"))
        partly = MemberStatus(GOOD, GOOD, Check("Unknown", "ReviewFailed", "no such API"))
        self.assertEqual(
            self.sum(partly), ("True", "AgentConnected", "ImpersonationAllowed is not known: No such API.")
        )
        self.assertEqual(self.sum(MemberStatus()), ("True", "AgentConnected", ""))

    def test_warnings(self) -> None:
        """A check that succeeded with a warning shows in the reason."""
        skewed = MemberStatus(Check("True", "ClockSkew", "1 h ahead: use NTP"), GOOD, GOOD)
        self.assertEqual(self.sum(skewed), ("True", "ClockSkew", "1 h ahead: use NTP."))
        expiring = MemberStatus(GOOD, Check("True", "CredentialExpiresSoon", "renew it"), GOOD)
        self.assertEqual(self.sum(expiring)[1], "CredentialExpiresSoon")

    def test_broken_replica(self) -> None:
        """With a working agent, a broken one does not make it false, but is named."""
        tunnels = (
            FakeTunnel(member_status=WORKS),
            FakeTunnel(peer="192.0.2.9:1", member_status=MemberStatus(failed("Refused"))),
        )
        status, reason, message = self.sum(tunnels=tunnels)
        self.assertEqual((status, reason), ("True", "AgentDegraded"))
        self.assertIn("1 of 2 agents", message)
        self.assertIn("192.0.2.9:1: Refused: cure it", message)
        tunnels[1].member_status = WORKS
        status, reason, message = self.sum(tunnels=tunnels, silent=tunnels[1:])
        self.assertEqual((status, reason), ("True", "AgentDegraded"))
        self.assertIn("192.0.2.9:1: it does not answer: check the agent's process", message)


class PartsTests(SynchronousTestCase):
    """The conditions that are summed up."""

    def setUp(self) -> None:
        """A registry."""
        self.clock = Clock()
        self.clock.advance(1_800_000_000)
        self.tunnels = Tunnels(self.clock, self.clock.seconds)

    def test_link_down(self) -> None:
        """The reason distinguishes an agent that never came from one that left; each message has a cure."""
        self.assertEqual((link_type(ALPHA), link_type(BETA)), ("AgentAvailable", "NodesAvailable"))
        never = link_down(ALPHA, self.tunnels)
        self.assertEqual((never.status, never.reason), ("False", "AgentNeverConnected"))
        self.assertIn("tower join alpha", never.message)
        again = link_down(evolve(ALPHA, conditions=(never,)), self.tunnels)
        self.assertEqual(again, never)
        earlier = link_down(evolve(ALPHA, conditions=(link_up(ALPHA),)), self.tunnels)
        self.assertEqual(
            (earlier.reason, earlier.message),
            ("AgentDisconnected", "No agent is connected: check whether it runs, and read its log."),
        )
        self.tunnels.remember("alpha", 1_800_000_000 - 60, "")
        self.assertIn("last seen at 2027-01-15T07:59:00Z", link_down(ALPHA, self.tunnels).message)
        self.tunnels.note_revoked("alpha", "SHA256:k")
        text = link_down(ALPHA, self.tunnels).message
        self.assertIn("The agent with key SHA256:k is rejected, because that key was revoked", text)
        self.assertIn("'tower join alpha'", text)

    def test_silent(self) -> None:
        """The reason of an agent that is connected and does not answer has the time of its last byte."""
        tunnel = FakeTunnel()
        self.tunnels.add(tunnel)
        self.tunnels.note_silence(tunnel, 15.0)
        found = link_down(ALPHA, self.tunnels)
        text = (
            "An agent is connected, but has not answered since 2027-01-15T07:59:45Z: check the agent's "
            "process and the network between it and this proxy."
        )
        self.assertEqual((found.status, found.reason, found.message), ("False", "AgentNotResponding", text))

    def test_sentences(self) -> None:
        """A message begins with a capital letter, unless with a name or a path, and ends with a period."""
        for text, wanted in (
            ("the agent is allowed", "The agent is allowed."),
            ("users, but not groups", "Users, but not groups."),
            ("api.example:6443 is not an API server", "api.example:6443 is not an API server."),
            ("/token: no such file", "/token: no such file."),
            ("It ends.", "It ends."),
            ("too l…", "Too l…"),
            ("", ""),
        ):
            found = member_conditions(MemberStatus(Check("False", "R", text)))
            self.assertEqual(found[0].message, wanted)

    def test_nodes_down(self) -> None:
        """Nodes are missing, or their tunnels do not work."""
        self.tunnels.explain("beta", lambda: "no tunnels")
        found = link_down(BETA, self.tunnels)
        self.assertEqual((found.reason, found.message), ("NoTunnel", "No tunnels."))
        self.tunnels.add(FakeTunnel("beta"))
        self.tunnels.note("beta", "refused")
        found = link_down(BETA, self.tunnels)
        self.assertEqual((found.reason, found.message), ("NodesDegraded", "refused."))

    def test_not_checked(self) -> None:
        """An old agent is named; without a tunnel the link's reason is repeated."""

        async def check() -> MemberStatus:
            return WORKS

        down = link_down(ALPHA, self.tunnels)
        for found, reason, part in (
            (unreported([FakeTunnel(version="0.9")]), "NotReported", 'version "0.9"'),
            (unreported([FakeTunnel(check_member=check)]), "NotChecked", "first check"),
            (unchecked(down), "AgentNeverConnected", "cannot be reached"),
        ):
            self.assertEqual([each.type for each in found], list(MEMBER_CHECKS))
            self.assertEqual({(each.status, each.reason) for each in found}, {("Unknown", reason)})
            self.assertIn(part, found[0].message)
