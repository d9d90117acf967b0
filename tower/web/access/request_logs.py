"""The logs of requests: the audit log and the access log, each if an option names its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import frozen

from tower.options.followed_file import Followed
from tower.reactor.interfaces import IReactor
from tower.reactor.signals import Reloads
from tower.store.audit_log import AuditLog, open_access_log
from tower.web.access.access_log import AccessLog
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.file_changes import FileRecorder
from tower.web.access.audit.opening import open_audit
from tower.web.access.audit.policy_file import AuditPolicyFile


@frozen
class RequestLogs:
    """The logs that were opened; the others are None.

    :ivar audit_policy: the file with the policy of *audit*.
    :ivar access_log: writes the file of *accesses*.
    """

    audit: Audit | None
    audit_policy: AuditPolicyFile | None
    access_log: AuditLog | None
    accesses: AccessLog | None

    @classmethod
    def open(
        cls, options: Mapping[str, Any], reactor: IReactor, epoch: Callable[[], float], reloads: Reloads
    ) -> RequestLogs:
        """Return the logs of ``--audit-…`` and ``--access-log``; *reloads* opens their files again.

        :param epoch: returns the time of day, s since the epoch.
        :raise OptionError: a file cannot be written; the text names the cure.
        :raise ConfigurationError: the audit policy, or the webhook's file, is wrong.
        """
        audit, policy = open_audit(options, reactor, epoch, reloads)
        access_log = open_access_log(options["access-log"], reactor, epoch)
        accesses = None
        if access_log is not None:
            reloads.add("access log", access_log.reopen)
            accesses = AccessLog(reactor, access_log, epoch)
        return cls(audit, policy, access_log, accesses)

    def check_files(self) -> None:
        """Use the current content of the policy file."""
        if self.audit_policy is not None:
            self.audit_policy.file.check()

    def record_files(self, files: Iterable[Followed[Any, Any]]) -> None:
        """Record each new content of *files*, and of the policy file, in the audit log."""
        if self.audit is None:
            return
        recorder = FileRecorder(self.audit)
        for each in files:
            recorder.observe(each)
        if self.audit_policy is not None:
            recorder.observe(self.audit_policy.file, is_always_written=True)

    async def stop(self) -> None:
        """Write the last lines and close the files."""
        if self.accesses is not None:
            self.accesses.write()
        if self.audit is not None:
            self.audit.write()
            for destination in self.audit.destinations:
                await destination.backend.stop()
        if self.access_log is not None:
            await self.access_log.stop()
