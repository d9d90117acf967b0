"""The form in which an agent reports the state of its API server; part of tower-v2.  No I/O.

All texts of a report are the agent's.  `read_report` attributes them to it, so that nothing after it can take
them for Tower's own: the message is quoted, the reason is one that Tower knows, and the cure is Tower's.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, get_args

from tower.errors import PeerError
from tower.escaping import VERSION_LIMIT, reported
from tower.kube.member_cures import REPORTED_TEXTS, UNKNOWN_REASON, cure_of, is_known
from tower.kube.member_status import (
    API_SERVER,
    CHECK_KINDS,
    CREDENTIAL,
    IMPERSONATION,
    Check,
    CheckKind,
    ConditionStatus,
    MemberStatus,
)

#: Longest report accepted, B, and longest message, characters.
LONGEST_REPORT = 16 * 1024
LONGEST_MESSAGE = 1024

_STATUSES = frozenset(get_args(ConditionStatus))
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9]{0,63})")

#: Versions of API servers: all others are unknown, so that none can be a sentence.
_VERSION = re.compile(rf"[-A-Za-z0-9.+_~]{{1,{VERSION_LIMIT}}}")

#: Latest time accepted, s since the epoch: the year 9999.
_END_OF_TIME = 253_402_300_799.0


def write_report(status: MemberStatus) -> bytes:
    """Return *status* as JSON, without the cures: proxies have their own."""
    value: dict[str, Any] = {
        kind.key: {
            "status": check.status,
            "reason": check.reason,
            "message": check.message[:LONGEST_MESSAGE],
        }
        for kind, check in zip(CHECK_KINDS, status.checks, strict=True)
    }
    value["version"] = status.version
    value["credentialExpires"] = status.credential_expires
    value["clockOffset"] = status.clock_offset
    return json.dumps(value, separators=(",", ":")).encode()


def read_report(data: bytes, peer: str) -> MemberStatus:
    """Return the status that an agent reports; unknown keys are ignored, missing ones have a default.

    :param peer: the agent, such as ``the agent of alpha``, which the texts are attributed to.
    :raise PeerError: *data* is not a valid report.
    """
    if len(data) > LONGEST_REPORT:
        raise PeerError(f"a member status of {len(data)} B exceeds the limit of {LONGEST_REPORT} B")
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        raise PeerError("member status: not JSON") from None
    if not isinstance(value, dict):
        raise PeerError("member status: not a JSON object")
    version = value.get("version", "")
    if not isinstance(version, str) or not version.isprintable():
        raise PeerError("member status: version is not printable text")
    offset = _seconds(value, "clockOffset")
    return MemberStatus(
        api_server=_check(value, API_SERVER, peer, offset),
        credential=_check(value, CREDENTIAL, peer, offset),
        impersonation=_check(value, IMPERSONATION, peer, offset),
        version=version if _VERSION.fullmatch(version) else "",
        credential_expires=_seconds(value, "credentialExpires"),
        clock_offset=offset,
    )


def _check(value: dict[str, Any], kind: CheckKind, peer: str, offset: float | None) -> Check:
    key = kind.key
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
    if not is_known(kind, status, reason):
        reason, message = UNKNOWN_REASON, f"{reason}: {message}"
    elif not message and status != "False":
        return Check(status, reason)  # type: ignore[arg-type]
    cure = cure_of(kind, reason, REPORTED_TEXTS, offset=offset)
    return Check(status, reason, reported(peer, message), cure)  # type: ignore[arg-type]


def _seconds(value: dict[str, Any], key: str) -> float | None:
    seconds = value.get(key)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise PeerError(f"member status: {key} is not a number")
    if abs(seconds) > _END_OF_TIME or not math.isfinite(seconds):
        raise PeerError(f"member status: {key} is out of range")
    return float(seconds)
