"""The state of a member's API server as its agent, or the proxy, found it.  No I/O.

Its JSON form is part of tower-v2 (``docs/protocol-tower-v2.md``): unknown keys are ignored, missing ones have
a default.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, Literal, TypeAlias, get_args

from attrs import field, frozen

from tower.errors import PeerError
from tower.escaping import VERSION_LIMIT, escaped, shortened

#: Status of a condition, as in Kubernetes.
ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]

#: Longest encoded status accepted, B, and longest message, characters.
LONGEST_STATUS = 16 * 1024
LONGEST_MESSAGE = 1024

_STATUSES = frozenset(get_args(ConditionStatus))
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9]{0,63})")

#: Latest time accepted, s since the epoch: the year 9999.
_END_OF_TIME = 253_402_300_799.0


@frozen
class Check:
    """The result of one check.

    :ivar reason: CamelCase, as in a Kubernetes condition.
    :ivar message: one sentence; if *status* is not True, with the cause and the cure.
    """

    status: ConditionStatus = "Unknown"
    reason: str = "NotChecked"
    message: str = field(default="", converter=escaped)


#: Reason of a failed check of an API server that accepts connections but does not answer.
TIMEOUT: Final = "Timeout"

#: The result of a check that was not made.
UNCHECKED: Final = Check()


@frozen
class MemberStatus:
    """The results of all checks.

    :ivar api_server: condition ``APIServerReachable``: it answers, and its certificate is valid.
    :ivar credential: condition ``MemberCredential``: the API server accepts it.
    :ivar impersonation: condition ``ImpersonationAllowed``: of users and groups.
    :ivar version: the API server's ``gitVersion``; empty while unknown.
    :ivar credential_expires: end of the token or certificate, s since the epoch; None: unknown or never.
    :ivar clock_offset: time of the checking program minus the API server's ``Date``, s; None: unknown.
    """

    api_server: Check = UNCHECKED
    credential: Check = UNCHECKED
    impersonation: Check = UNCHECKED
    version: str = ""
    credential_expires: float | None = None
    clock_offset: float | None = None

    def encode(self) -> bytes:
        """Return the status as JSON."""
        checks = {
            "apiServer": self.api_server,
            "credential": self.credential,
            "impersonation": self.impersonation,
        }
        value: dict[str, Any] = {
            key: {"status": check.status, "reason": check.reason, "message": check.message[:LONGEST_MESSAGE]}
            for key, check in checks.items()
        }
        value["version"] = self.version
        value["credentialExpires"] = self.credential_expires
        value["clockOffset"] = self.clock_offset
        return json.dumps(value, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, data: bytes) -> MemberStatus:
        """Return the status that a peer sent.

        :raise PeerError: *data* is not a valid status.
        """
        if len(data) > LONGEST_STATUS:
            raise PeerError(f"a member status of {len(data)} B exceeds the limit of {LONGEST_STATUS} B")
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            raise PeerError("member status: not JSON") from None
        if not isinstance(value, dict):
            raise PeerError("member status: not a JSON object")
        version = value.get("version", "")
        if not isinstance(version, str) or not version.isprintable():
            raise PeerError("member status: version is not printable text")
        expires, offset = _seconds(value, "credentialExpires"), _seconds(value, "clockOffset")
        return cls(
            api_server=_check(value, "apiServer"),
            credential=_check(value, "credential"),
            impersonation=_check(value, "impersonation"),
            version=shortened(version, VERSION_LIMIT),
            credential_expires=expires,
            clock_offset=offset,
        )


def _check(value: dict[str, Any], key: str) -> Check:
    found = value.get(key, {})
    if not isinstance(found, dict):
        raise PeerError(f"member status: {key} is not a JSON object")
    status, reason = found.get("status", "Unknown"), found.get("reason", "NotChecked")
    message = found.get("message", "")
    if not isinstance(status, str) or status not in _STATUSES:
        raise PeerError(f"member status: {key}.status is not True, False or Unknown")
    if not isinstance(reason, str) or _REASON.fullmatch(reason) is None:
        raise PeerError(f"member status: {key}.reason is not a CamelCase word of at most 64 characters")
    if not isinstance(message, str) or len(message) > LONGEST_MESSAGE:
        raise PeerError(f"member status: {key}.message is not text of at most {LONGEST_MESSAGE} characters")
    return Check(status, reason, message)  # type: ignore[arg-type]


def _seconds(value: dict[str, Any], key: str) -> float | None:
    seconds = value.get(key)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise PeerError(f"member status: {key} is not a number")
    if abs(seconds) > _END_OF_TIME or not math.isfinite(seconds):
        raise PeerError(f"member status: {key} is out of range")
    return float(seconds)
