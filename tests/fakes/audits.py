"""An audit log in memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed

from tower.kube.audit.policy import CompiledPolicy
from tower.kube.audit.policy_file import parse_audit_policy
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.destinations import BATCH, Destination
from tower.web.access.audit.formats import JSON

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


class Lines(list[bytes]):
    """A backend in memory.

    :ivar hastened: number of calls of `hasten`.
    :ivar results: of the next flushes; a stored one by default.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost = self.hastened = 0
        self.results: list[Deferred[bool]] = []

    def put(self, line: bytes, count: int = 1) -> None:
        """Keep it."""
        self.extend(line.splitlines(keepends=True))

    def hasten(self) -> None:
        """Count it."""
        self.hastened += 1

    def flush(self) -> Deferred[bool]:
        """Return the next result."""
        stored = True
        return self.results.pop(0) if self.results else succeed(stored)

    async def stop(self) -> None:
        """Do nothing."""

    def events(self) -> list[dict[str, Any]]:
        """Return the new events, decoded."""
        events = [json.loads(line) for line in self]
        self.clear()
        return events

    def stages(self) -> list[tuple[str, int | None]]:
        """Return stage and status of the new events."""
        return [(event["stage"], event.get("responseStatus", {}).get("code")) for event in self.events()]


def policy_of(rules: str) -> CompiledPolicy:
    """Return the policy with these lines of YAML after its head."""
    return CompiledPolicy(parse_audit_policy(f"{HEAD}{rules}".encode()))


def audit_to(
    lines: Any, seconds: Callable[[], float], form: str = JSON, mode: str = BATCH, limit: int = 0
) -> Audit:
    """Return the audit that writes to *lines*."""
    return Audit([Destination("log", lines, form, mode, limit)], seconds)
