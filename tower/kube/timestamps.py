"""Times in the form of Kubernetes."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(seconds: float) -> str:
    """Return a time, s since the epoch, in Kubernetes' format (RFC 3339, UTC, whole seconds)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: object) -> float | None:
    """Return a time in Kubernetes' format, s since the epoch; None if it is malformed."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
    if moment is None or moment.tzinfo is None:
        return None
    seconds = moment.timestamp()
    return int(seconds) if seconds.is_integer() else seconds


def micro_time(seconds: float) -> str:
    """Return a time, s since the epoch, as Kubernetes' MicroTime (with microseconds)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
