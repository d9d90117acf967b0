"""Reasons of events: those of Tower's own events, and those that the checks of a member may have."""

from __future__ import annotations

from typing import Final

from tower.kube.member_cures import REASONS

CONNECTED: Final = "Connected"
LOST: Final = "Lost"
PORT_ASSIGNED: Final = "PortAssigned"
CREDENTIAL_SET: Final = "CredentialSet"
CREDENTIAL_CHANGED: Final = "CredentialChanged"
AGENT_ENROLLED: Final = "AgentEnrolled"
AGENT_REVOKED: Final = "AgentRevoked"
AGENT_KEY_EXPIRED: Final = "AgentKeyExpired"

#: For reasons in the reports of agents that this version does not know.
MEMBER_CHECK_PASSED: Final = "MemberCheckPassed"
MEMBER_CHECK_FAILED: Final = "MemberCheckFailed"

#: Reasons that the checks of a member may give an event.
MEMBER_REASONS: Final = frozenset(
    reason for checks in REASONS.values() for reason, (status, _) in checks.items() if status != "Unknown"
)


def member_reason(reason: str, *, failed: bool) -> str:
    """Return *reason* of a member's check if it is known, else a general one."""
    if reason in MEMBER_REASONS:
        return reason
    return MEMBER_CHECK_FAILED if failed else MEMBER_CHECK_PASSED
