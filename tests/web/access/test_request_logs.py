"""Tests of `tower.web.access.request_logs`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import HEAD, Lines
from tower.control.proxy_options import Options
from tower.options.followed_file import FollowedFile
from tower.reactor.signals import Reloads
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.destinations import Destination
from tower.web.access.request_logs import RequestLogs


class RequestLogsTests(SynchronousTestCase):
    """The logs of a proxy."""

    def opened(self, *arguments: str) -> tuple[RequestLogs, list[str]]:
        """Return the logs that these options make, and the names of the reloads."""
        options = Options({})
        options.parse(list(arguments))
        reloads, clock = Reloads(), Clock()
        reactor: Any = clock
        logs = RequestLogs.open(options, reactor, clock.seconds, reloads)
        return logs, list(reloads._entries)

    def test_none(self) -> None:
        """Without the options there are none, and nothing to reload or stop."""
        logs, reloads = self.opened()
        self.assertEqual(logs, RequestLogs(None, None, None, None))
        self.assertEqual(reloads, [])
        self.assertIsNone(self.successResultOf(Deferred.fromCoroutine(logs.stop())))

    def test_each(self) -> None:
        """Each option makes its own log, whose file can be opened again."""
        path = self.mktemp()
        logs, reloads = self.opened(f"--access-log={path}")
        self.assertIsNone(logs.audit)
        self.assertIsNotNone(logs.accesses)
        self.assertEqual(reloads, ["access log"])
        logs, reloads = self.opened(f"--access-log={path}", f"--audit-log-path={self.mktemp()}")
        self.assertIsNotNone(logs.audit)
        self.assertEqual(reloads, ["audit log", "access log"])

    def test_files(self) -> None:
        """New contents of files, and of the audit policy, are recorded if there is an audit log."""
        log, policy, authorities = (Path(self.mktemp()) for _ in range(3))
        policy.write_text(f"{HEAD}rules: [{{level: Metadata}}]")
        authorities.write_text("one")
        file = FollowedFile("client-ca-file", authorities, bytes)
        logs, _ = self.opened(f"--audit-log-path={log}", f"--audit-policy-file={policy}")
        assert logs.audit is not None
        lines = Lines()
        logs.audit.destinations[0].backend = lines
        logs.record_files([file])
        authorities.write_text("two")
        file.check()
        policy.write_text(f"{HEAD}rules: [{{level: None}}]")
        logs.check_files()
        self.assertEqual(
            [each["objectRef"]["name"] for each in lines.events()], ["client-ca-file", "audit-policy-file"]
        )
        logs, _ = self.opened()
        logs.record_files([file])
        authorities.write_text("three")
        file.check()
        self.assertEqual(file.value, b"three")

    def test_stop(self) -> None:
        """The last batch of access lines is queued before the files are closed."""
        calls: list[str] = []

        class Log:
            """Records that it was stopped."""

            def __init__(self, name: str) -> None:
                self.name = name

            def write(self) -> None:
                """Record it."""
                calls.append(f"write {self.name}")

            async def stop(self) -> None:
                """Record it."""
                calls.append(f"stop {self.name}")

        made: Any = Log
        audit_log, access_log, accesses = map(made, ("audit", "access", "lines"))
        logs = RequestLogs(Audit([Destination("log", audit_log)], float), None, access_log, accesses)
        self.successResultOf(Deferred.fromCoroutine(logs.stop()))
        self.assertEqual(calls, ["write lines", "stop audit", "stop access"])
