"""Tests of `tower.control.front_door.audit_options`, and of what `tower.web.access.audit.opening` makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.logger import capturedLogs, formatEvent
from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import HEAD
from tower.control.proxy_options import Options
from tower.errors import ConfigurationError
from tower.kube.audit.policy import METADATA, NONE
from tower.kube.request_info import parse_request_info
from tower.reactor.signals import Reloads
from tower.web.access.audit.batches import BATCH_LIMIT, BatchSettings
from tower.web.access.audit.opening import batches_of, open_audit

LOG = "--audit-log-path=-"
HOOK = "--audit-webhook-config-file=/hook"
PODS = parse_request_info(b"GET", b"/api/v1/pods")


def parsed(*arguments: str) -> Options:
    """Return the options."""
    options = Options({})
    options.parse(list(arguments))
    return options


class AuditOptionsTests(SynchronousTestCase):
    """Tests of `AuditOptions`; the texts are upstream's."""

    def test_errors(self) -> None:
        """Wrong values have upstream's texts; values that are not used do not matter."""
        for arguments, error in (
            (
                [LOG, "--audit-log-mode=x"],
                'audit log mode x, allowed modes are "batch,blocking,blocking-strict"',
            ),
            (
                [LOG, "--audit-log-format=xml"],
                'invalid audit log format xml, allowed formats are "legacy,json"',
            ),
            ([LOG, "--audit-log-maxage=-1"], "--audit-log-maxage -1 can't be a negative number"),
            ([LOG, "--audit-log-maxbackup=-1"], "--audit-log-maxbackup -1 can't be a negative number"),
            ([LOG, "--audit-log-maxsize=-1"], "--audit-log-maxsize -1 can't be a negative number"),
            ([LOG, "--audit-log-maxsize=2000000"], "give at most 1000000 megabytes"),
            ([LOG, "--audit-log-maxbackup=many"], "give a whole number"),
            (
                [LOG, "--audit-log-version=v2"],
                'invalid group version, allowed versions are ["audit.k8s.io/v1"]',
            ),
            ([LOG, "--audit-log-version=a/b/c"], "unexpected GroupVersion string: a/b/c"),
            (
                [LOG, "--audit-log-truncate-max-event-size=0"],
                "invalid audit truncate log max event size 0, must be a positive number",
            ),
            (
                [HOOK, "--audit-webhook-truncate-max-batch-size=4"],
                "truncate webhook max batch size 4, must be greater than max event size (102400)",
            ),
            ([HOOK, "--audit-webhook-mode=x"], "invalid audit webhook mode x, allowed modes are"),
            (
                [HOOK, "--audit-webhook-batch-buffer-size=0"],
                "invalid audit batch webhook buffer size 0, must be a positive number",
            ),
            (
                [HOOK, "--audit-webhook-batch-max-size=-1"],
                "invalid audit batch webhook max batch size -1, must be a positive number",
            ),
            (
                [HOOK, "--audit-webhook-batch-throttle-qps=0"],
                "invalid audit batch webhook throttle QPS 0, must be a positive number",
            ),
            (
                [HOOK, "--audit-webhook-batch-throttle-burst=0"],
                "invalid audit batch webhook throttle burst 0, must be a positive number",
            ),
            ([HOOK, "--audit-webhook-batch-throttle-qps=nan"], "give a number such as 10"),
            ([HOOK, "--audit-webhook-batch-throttle-enable=x"], "is not a boolean: give true or false"),
            (["--audit-policy-file=/p"], "has no effect without --audit-log-path or"),
        ):
            self.assertIn(error, str(self.assertRaises(UsageError, parsed, *arguments)), arguments)
        parsed("--audit-log-mode=x", "--audit-webhook-mode=y", "--audit-log-maxage=-1")
        off = ("--audit-webhook-batch-throttle-enable=false", "--audit-webhook-batch-throttle-qps=0")
        parsed(HOOK, *off)
        parsed(HOOK, "--audit-webhook-mode=blocking", "--audit-webhook-batch-buffer-size=0")

    def test_batches(self) -> None:
        """The defaults are upstream's; the other modes do not wait for a batch."""
        self.assertEqual(batches_of(parsed(HOOK)), BatchSettings())
        found = batches_of(
            parsed(
                HOOK,
                "--audit-webhook-batch-buffer-size=1",
                "--audit-webhook-batch-max-size=2",
                "--audit-webhook-batch-max-wait=3s",
                "--audit-webhook-batch-throttle-qps=0.5",
                "--audit-webhook-batch-throttle-burst=5",
                "--audit-webhook-initial-backoff=6s",
                "--audit-webhook-truncate-enabled",
                "--audit-webhook-truncate-max-batch-size=200000",
            )
        )
        self.assertEqual(found, BatchSettings(1, 2, 3.0, 0.5, 5, 200_000, 6.0))
        found = batches_of(parsed(HOOK, "--audit-webhook-mode=blocking"))
        self.assertEqual((found.max_wait, found.qps, found.max_bytes), (0.0, 0.0, BATCH_LIMIT))
        self.assertEqual(batches_of(parsed(HOOK, "--audit-webhook-batch-throttle-enable=false")).qps, 0.0)


class OpeningTests(SynchronousTestCase):
    """Tests of `open_audit`."""

    def opened(self, *arguments: str) -> Any:
        """Return the audit and the file with the policy."""
        clock: Any = Clock()
        self.reloads = Reloads()
        return open_audit(parsed(*arguments), clock, clock.seconds, self.reloads)

    def test_policy(self) -> None:
        """The policy is read again when its file changes; a wrong one changes nothing."""
        path = Path(self.mktemp())
        path.write_text(HEAD + "rules: [{level: None}]")
        audit, policy = self.opened(LOG, f"--audit-policy-file={path}", "--audit-log-truncate-enabled")
        self.assertEqual(list(self.reloads._entries), ["audit log", "audit policy"])
        self.assertEqual((audit.destinations[0].limit, audit.blocks), (102_400, False))
        self.assertEqual(audit.policy.decide("x", (), PODS).level, NONE)
        path.write_text(HEAD + "foo: 1\nrules: [{level: Metadata}]")
        with capturedLogs() as logged:
            policy.file.check()
        self.assertIn(
            f"audit policy {path} contains errors, falling back to lenient decoding: strict decoding error: "
            'unknown field "foo": correct them',
            formatEvent(logged[0]) or "",
        )
        self.assertEqual(audit.policy.decide("x", (), PODS).level, METADATA)
        path.write_text(HEAD + "rules: []")
        policy.file.check()
        self.assertEqual(audit.policy.decide("x", (), PODS).level, METADATA)

    def test_default(self) -> None:
        """Without a policy, all metadata is recorded; without a destination, there is no audit."""
        audit, policy = self.opened(LOG, "--audit-log-mode=blocking")
        self.assertEqual((audit.policy.decide("x", (), PODS).level, policy), (METADATA, None))
        self.assertTrue(audit.blocks)
        self.assertEqual(self.opened(), (None, None))

    def test_wrong_files(self) -> None:
        """A wrong file ends the start with the option, and upstream's text."""
        path = Path(self.mktemp())
        path.write_text(HEAD + "rules: [{level: Foo}]")
        error = self.assertRaises(ConfigurationError, self.opened, LOG, f"--audit-policy-file={path}")
        self.assertTrue(str(error).startswith("loading audit policy file: rules[0].level: Unsupported value"))
        self.assertTrue(str(error).endswith(f": from file {path}"))
        with self.assertRaisesRegex(ConfigurationError, "--audit-policy-file: open /no/such: no such file"):
            self.opened(LOG, "--audit-policy-file=/no/such")
        with self.assertRaisesRegex(
            ConfigurationError, "initializing audit webhook: --audit-webhook-config-"
        ):
            self.opened("--audit-webhook-config-file=/no/such")
