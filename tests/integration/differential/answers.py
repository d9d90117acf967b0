"""The comparison of two answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.differential.rows import Difference
from tests.integration.differential.servers import Answer


def difference(theirs: Answer, ours: Answer) -> str:
    """Return how Tower's answer differs; it may have a cure after the message."""
    if theirs.status != ours.status:
        return f"status {ours.status} in place of {theirs.status}"
    compare = {
        "Status": _of_status,
        "SelfSubjectReview": _of_identity,
        "SelfSubjectAccessReview": _of_access,
    }.get(theirs.value.get("kind", ""), _of_object)
    found = compare(theirs.value, ours.value)
    if found or not theirs.logged:
        return found
    message = f"Unauthorized: {theirs.logged}"
    return "" if ours.value["message"].startswith(message) else f"message without {theirs.logged!r}"


def is_as_stated(other: Difference, theirs: Answer, ours: Answer) -> bool:
    """Return whether the answers differ, and are those of the row."""
    return bool(difference(theirs, ours)) and all(
        str(answer).startswith(text) for answer, text in ((theirs, other.theirs), (ours, other.ours))
    )


def _of_status(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    for key in ("kind", "status", "reason", "code"):
        if theirs.get(key) != ours.get(key):
            return f"{key} {ours.get(key)} in place of {theirs.get(key)}"
    text = ours["message"].rpartition(" (request ")[0].replace("\\n", "\n")  # Tower escapes it
    expected = theirs["message"]
    if text == expected or text.startswith((f"{expected}; ", f"{expected}: ")):
        return ""
    return f"message {text!r} in place of {expected!r}"


def _of_identity(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    users = [each["status"]["userInfo"] for each in (theirs, ours)]
    parts = [{**user, "groups": sorted(set(user.get("groups", ())))} for user in users]
    return "" if parts[0] == parts[1] else f"{parts[1]} in place of {parts[0]}"


def _of_access(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    return "" if theirs["status"] == ours["status"] else f"{ours['status']} in place of {theirs['status']}"


def _of_object(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> str:
    for key in ("apiVersion", "kind", "rules", "roleRef", "subjects", "aggregationRule"):
        if (theirs.get(key) or None) != (ours.get(key) or None):
            return f"{key} {ours.get(key)} in place of {theirs.get(key)}"
    return ""
