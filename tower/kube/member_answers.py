"""The answers of API servers to the requests of `tower.kube.member_check`.  No I/O."""

from __future__ import annotations

import json
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Any

from tower.escaping import VERSION_LIMIT, quoted, reported, shortened
from tower.kube.client import APIResponse
from tower.kube.member_cures import is_word

#: Most names of users or groups in a message.
_NAMED = 5


def access_review(resource: str) -> dict[str, Any]:
    """Return a review of the right to impersonate all of *resource*."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "impersonate", "resource": resource}},
    }


def clock_offset(answer: APIResponse, began: float, ended: float) -> float | None:
    """Return our clock minus the API server's, s, to half a second and half of the request's duration."""
    try:
        there = parsedate_to_datetime(answer.date).timestamp() + 0.5  # the field has no fractions
        return round((began + ended) / 2 - there, 1)
    except (ValueError, TypeError, OverflowError):
        return None


def object_in(answer: APIResponse) -> dict[str, Any]:
    """Return the JSON object in *answer*; an empty one if there is no object."""
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def inside(value: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the object at *keys* in *value*; an empty one if there is no object."""
    for key in keys:
        found = value.get(key)
        value = found if isinstance(found, dict) else {}
    return value


def is_good(answer: APIResponse) -> bool:
    """Return whether the status is 2xx."""
    return 200 <= answer.code < 300


def text_of(answer: APIResponse) -> str:
    """Return the text of an error, attributed to the server."""
    message = object_in(answer).get("message")
    text = message if isinstance(message, str) else answer.body
    return reported("it", text) if text else "an empty body"


def failed_checks(readiness: APIResponse) -> str:
    """Return the failed checks of ``/readyz``, or ""; a server that shuts down still serves requests."""
    if readiness.code < 500:
        return ""
    lines = readiness.body.decode("utf-8", "replace").splitlines()
    failed = [line[3:] for line in lines if line.startswith("[-]")]
    if not failed:
        return text_of(readiness)
    serious = [line for line in failed if not line.startswith("shutdown")]
    return reported("it", ", ".join(serious)) if serious else ""


def names_in(rules: object, resource: str) -> list[str]:
    """Return the names that *rules* allow to impersonate."""
    found: dict[str, None] = {}
    for rule in rules if isinstance(rules, list) else []:
        if not isinstance(rule, dict):
            continue
        if (
            _has(rule, "verbs", "impersonate")
            and _has(rule, "resources", resource)
            and _has(rule, "apiGroups", "")
        ):
            found.update(dict.fromkeys(name for name in _texts_of(rule, "resourceNames") if name))
    return list(found)


def _has(rule: dict[str, Any], key: str, value: str) -> bool:
    texts = list(_texts_of(rule, key))
    return value in texts or "*" in texts


def _texts_of(rule: dict[str, Any], key: str) -> Iterable[str]:
    values = rule.get(key)
    return (value for value in values if isinstance(value, str)) if isinstance(values, list) else ()


def listed(names: list[str]) -> str:
    """Return the first *names* and the number of the others."""
    shown = ", ".join(name_of(shortened(name, VERSION_LIMIT)) for name in names[:_NAMED])
    return f"{shown} and {len(names) - _NAMED} more" if len(names) > _NAMED else shown


def name_of(text: str) -> str:
    """Return a name that a peer chose, in quotation marks unless it is plain."""
    return text if is_word(text) else quoted(text)
