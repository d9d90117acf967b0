"""Tests of `tower.rotation.tls_cert_file`: the CA of a given certificate at the name of agents."""

from __future__ import annotations

from attrs import define

from tests.fakes.rotations import RotationTestCase
from tower.errors import Conflict
from tower.rotation.tls_cert_file import TARGET, accepted_ca


@define
class Certificate:
    """A certificate of the CA *authority*."""

    authority: str
    accepted: str = ""

    @property
    def pending(self) -> str:
        """See `GivenCertificate`."""
        return "" if self.authority == self.accepted else self.authority

    def accept(self, authority: str) -> None:
        """See `GivenCertificate`."""
        self.accepted = authority


FIRST, NEXT = (f"sha256:{letter * 64}" for letter in "ab")


class TLSCertFileTests(RotationTestCase):
    def setUp(self) -> None:
        """Start with a certificate."""
        self.given = self.certificate = Certificate(FIRST)
        super().setUp()

    def restart_with(self, certificate: Certificate | None) -> None:
        """Start again with another certificate."""
        self.given = certificate
        if certificate is not None:
            certificate.accepted = accepted_ca(self.store)
            self.certificate = certificate
        self.restart()

    def test_new_proxy(self) -> None:
        """Without agents and kubeconfigs, the certificate is used at once, and after a restart."""
        self.check()
        self.assertEqual(self.certificate.accepted, FIRST)
        self.assertIsNotNone(self.rotation(TARGET).finished)
        self.restart_with(Certificate(FIRST))
        self.assertEqual(self.certificate.accepted, FIRST)
        self.assertIsNotNone(self.rotation(TARGET).finished)

    def test_kubeconfigs(self) -> None:
        """Older kubeconfigs are waited for until they have expired, also over a restart."""
        self.check()
        self.successResultOf(self.credentials.issue_token("alpha", "jane", (), 600.0))
        self.successResultOf(self.credentials.issue_token("", "tower-admin", (), 6000.0))
        self.clock.advance(1.0)
        self.certificate.authority = NEXT
        self.check()
        rotation = self.rotation(TARGET)
        self.assertEqual((rotation.old, rotation.new, rotation.finished), (FIRST, NEXT, None))
        self.assertEqual(self.renewals, 1)
        self.assertEqual([each.user for each in self.rotations.remaining(rotation).credentials], ["jane"])
        self.clock.advance(300.0)
        self.restart_with(Certificate(NEXT))
        self.check()
        self.assertEqual((self.certificate.accepted, self.rotation(TARGET)), ("", self.rotation(TARGET)))
        self.assertEqual(self.rotation(TARGET).started, rotation.started)
        self.clock.advance(300.0)
        self.check()
        self.assertEqual(self.certificate.accepted, NEXT)

    def test_agents(self) -> None:
        """Agents confirm the CA first; a renewed certificate of the same CA waits for nothing."""
        self.check()
        agent = self.enrol("alpha", "SHA256:a")
        self.certificate.authority = NEXT
        self.check()
        self.assertEqual(
            [each.agent for each in self.rotations.remaining(self.rotation(TARGET)).agents], ["SHA256:a"]
        )
        self.assertEqual(self.certificate.accepted, FIRST)
        self.assertEqual(len(agent.announcements), 1)
        finished = self.begin(TARGET, 0.0)
        self.assertIsNotNone(finished.finished)
        self.assertEqual(self.certificate.accepted, NEXT)
        self.assertEqual(finished.stranded.agents, 1)
        self.check()
        self.assertEqual(self.rotation(TARGET), finished)

    def test_commands(self) -> None:
        """It cannot be begun or canceled by a command: the file decides."""
        self.check()
        self.failureResultOf(self.rotations.begin(TARGET), Conflict)
        self.enrol("alpha", "SHA256:a")
        self.certificate.authority = NEXT
        self.check()
        self.failureResultOf(self.rotations.cancel(TARGET), Conflict)

    def test_removed_option(self) -> None:
        """A certificate that was not given for a time is a new one: agents may have joined without its CA."""
        self.check()
        self.restart_with(None)
        self.assertIsNone(self.rotations.get(TARGET))
        self.enrol("alpha", "SHA256:a")
        self.restart_with(Certificate(FIRST))
        self.check()
        self.assertEqual(self.certificate.accepted, "")
        self.restart_with(None)
        self.assertIsNone(self.rotations.get(TARGET))
