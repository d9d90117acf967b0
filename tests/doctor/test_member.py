"""Tests for `tower.doctor.member`."""

from __future__ import annotations

from attrs import evolve

from tests.doctor.kit import DoctorTestCase
from tests.fakes.certificates import NOW
from tower.doctor.findings import Course, Finding
from tower.doctor.member import AgentMemberSteps
from tower.kube.member_status import Check, MemberStatus

GOOD = Check("True", "Good", "it answers")
SOUND = MemberStatus(GOOD, GOOD, GOOD, "v1.36.2", NOW + 86400, 0.5)


class MemberTests(DoctorTestCase):
    """The checks of an API server."""

    def look(self, status: MemberStatus) -> dict[str, Finding]:
        """Return the findings."""

        async def check() -> MemberStatus:
            return status

        return self.found(Course(AgentMemberSteps(check, lambda: NOW, "renew it").steps()).run())

    def test_sound(self) -> None:
        """Nothing is wrong; the version is shown."""
        findings = self.look(SOUND)
        self.assertEqual(self.grades(findings), {"ok"})
        self.assertEqual(findings["API server"].line, "ok    API server: it answers (v1.36.2)")
        self.assertEqual(
            self.grades(self.look(evolve(SOUND, credential_expires=None, clock_offset=None))), {"ok"}
        )

    def test_each(self) -> None:
        """Each check that fails is the only failure, with the cure of its message."""
        bad = Check("False", "Bad", "API server a:1: refused", "start it")
        for changes, text in (
            ({"api_server": bad}, "API server: API server a:1: refused (v1.36.2) -> start it"),
            ({"credential": bad}, "credential: API server a:1: refused -> start it"),
            ({"impersonation": bad}, "impersonation: API server a:1: refused -> start it"),
            ({"clock_offset": 3600.0}, "clock: this machine is 60m ahead of the API server -> set"),
            ({"credential_expires": NOW}, "expiry: it expired on 2023-11-14 22:13 UTC -> renew it"),
        ):
            self.assertIn(text, self.failed(self.look(evolve(SOUND, **changes))))

    def test_unknown(self) -> None:
        """An unknown result is a warning."""
        unknown = Check("Unknown", "Odd", "it answers 404", "see its log")
        verdict = self.look(evolve(SOUND, credential=unknown))["credential"].verdict
        self.assertEqual(
            (verdict.grade, verdict.seen, verdict.cure), ("warn", "it answers 404", "see its log")
        )

    def test_warnings(self) -> None:
        """A problem that does not affect users yet is a warning with its cure."""
        for reason in ("ClockSkew", "CredentialExpiresSoon", "CredentialFilesInvalid"):
            check = Check("True", reason, "it works", "renew it")
            verdict = self.look(evolve(SOUND, credential=check))["credential"].verdict
            self.assertEqual((verdict.grade, verdict.seen, verdict.cure), ("warn", "it works", "renew it"))
