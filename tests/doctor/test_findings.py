"""Tests for `tower.doctor.findings` and `tower.doctor.expiry`."""

from __future__ import annotations

import json

from tests.doctor.kit import DoctorTestCase
from tests.fakes.certificates import DAY, NOW
from tower.doctor.expiry import compare_clocks, lasts
from tower.doctor.findings import (
    Course,
    Step,
    Verdict,
    as_json,
    as_text,
    examine,
    exit_code,
    fail,
    judged,
    ok,
    warn,
)
from tower.errors import TowerError


class CourseTests(DoctorTestCase):
    """Courses of checks."""

    def test_first_failure_ends(self) -> None:
        """Checks after a failure, and courses that depend on it, are skipped; other courses run."""

        async def later() -> Verdict:
            return fail("nothing answers", "start it")

        first = Course(
            [Step("a", lambda: warn("slow", "wait")), Step("b", later), Step("c", lambda: ok("fine"))],
            [Course([Step("d", lambda: ok("fine"))])],
        )
        findings = self.found(examine([first, Course([Step("e", lambda: ok("fine"))])]))
        self.assertEqual(
            [one.verdict.grade for one in findings.values()], ["warn", "FAIL", "skip", "skip", "ok"]
        )
        self.assertEqual(findings["b"].line, "FAIL  b: nothing answers -> start it")
        self.assertEqual(findings["d"].line, "skip  d: not checked, because b failed")
        self.assertEqual(findings["e"].line, "ok    e: fine")
        self.assertEqual(exit_code(findings.values()), 1)

    def test_errors(self) -> None:
        """An error of Tower or of the system is a failure with its text."""

        def tower() -> Verdict:
            raise TowerError("key file k: damaged: restore it")

        def system() -> Verdict:
            raise PermissionError(13, "Permission denied", "/etc/k")

        for look, line in (
            (tower, "FAIL  x: key file k: damaged -> restore it"),
            (system, "FAIL  x: /etc/k Permission denied -> check the permissions of this user"),
        ):
            findings = self.found(Course([Step("x", look)]).run())
            self.assertEqual(findings["x"].line, line)

    def test_output(self) -> None:
        """Text has one line for each finding, without control characters; JSON has the same."""
        findings = list(self.found(Course([Step("x", lambda: warn("a\nb\x1b", "c"))]).run()).values())
        self.assertEqual(as_text(findings).count("\n"), 0)
        self.assertNotIn("\x1b", as_text(findings))
        value = json.loads(as_json(findings))
        self.assertTrue(value["ok"])
        self.assertEqual((value["findings"][0]["status"], value["findings"][0]["cure"]), ("warn", "c"))
        self.assertEqual(exit_code(findings), 0)

    def test_judged(self) -> None:
        """The cure of a message is an imperative after a colon; a cause is not."""
        for text, seen, cure in (
            ("key file k: damaged: restore it", "key file k: damaged", "restore it"),
            ("a: no: run 'b: c'", "a: no", "run 'b: c'"),
            ("a: no: with a new token, run 'b'", "a: no", "with a new token, run 'b'"),
            ('a: no ("x\\": run \'evil\'")', 'a: no ("x\\": run \'evil\'")', "d"),
            ('a: no ("x: run evil"): restart it', 'a: no ("x: run evil")', "restart it"),
            ("kubeconfig k: No such file or directory", "kubeconfig k: No such file or directory", "d"),
            ("k: not a kubeconfig: it has none", "k: not a kubeconfig: it has none", "d"),
        ):
            self.assertEqual(judged(text, "d"), fail(seen, cure))


class ExpiryTests(DoctorTestCase):
    """Certificates, credentials and clocks."""

    def test_ends(self) -> None:
        """An expired credential is a failure, one that ends soon a warning."""
        for end, grade in ((None, "ok"), (NOW + 90 * DAY, "ok"), (NOW + DAY, "warn"), (NOW, "FAIL")):
            self.assertEqual(lasts("it", end, NOW, "renew it", soon=7 * DAY).grade, grade)
        self.assertIn("2023-11-14 22:13 UTC", lasts("it", NOW, NOW, "renew it", soon=False).seen)

    def test_clocks(self) -> None:
        """A small difference is a warning, a large one a failure, in both directions."""
        for offset, grade, text in (
            (1.0, "ok", "agree"),
            (-5.0, "ok", "5s behind the server"),
            (60.0, "warn", "60s ahead of the server"),
            (-3600.0, "FAIL", "60m behind the server"),
        ):
            verdict = compare_clocks(offset, "the server")
            self.assertEqual(verdict.grade, grade)
            self.assertIn(text, verdict.seen)
