"""The logs of requests: the audit log and the access log, each if an option names its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from tower.reactor.interfaces import IReactor
from tower.reactor.signals import Reloads
from tower.store.audit_log import AuditLog, open_access_log, open_audit_log
from tower.web.access.access_log import AccessLog
from tower.web.access.audit import Audit
from tower.web.access.audit_formats import FORMATS


@frozen
class RequestLogs:
    """The logs that were opened; the others are None.

    :ivar audit_log: writes the file of *audit*.
    :ivar access_log: writes the file of *accesses*.
    """

    audit_log: AuditLog | None
    audit: Audit | None
    access_log: AuditLog | None
    accesses: AccessLog | None

    @classmethod
    def open(
        cls, options: Mapping[str, Any], reactor: IReactor, epoch: Callable[[], float], reloads: Reloads
    ) -> RequestLogs:
        """Return the logs of ``--audit-log-…`` and ``--access-log``; *reloads* opens their files again.

        :param epoch: returns the time of day, s since the epoch.
        :raise OptionError: a file cannot be written; the text names the cure.
        """
        audit_log = open_audit_log(options, reactor, epoch)
        access_log = open_access_log(options["access-log"], reactor, epoch)
        audit = accesses = None
        if audit_log is not None:
            reloads.add("audit log", audit_log.reopen)
            audit = Audit(audit_log, FORMATS[options["audit-log-format"]](), epoch)
        if access_log is not None:
            reloads.add("access log", access_log.reopen)
            accesses = AccessLog(reactor, access_log, epoch)
        return cls(audit_log, audit, access_log, accesses)

    async def stop(self) -> None:
        """Write the last lines and close the files."""
        if self.accesses is not None:
            self.accesses.write()
        for log in (self.audit_log, self.access_log):
            if log is not None:
                await log.stop()
