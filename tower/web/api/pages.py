"""Lists in pages (`limit`, `continue`) and at a resource version.

A page shows the current objects and the version of the first page.  A client that watches from that version
gets all changes since then, so the pages and the watch together are complete.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

from tower.kube.status import StatusError
from tower.web.api.calls.call import Call
from tower.web.api.table import Object
from tower.web.api.writes.cluster_object import is_version

#: Longest continue token, characters.
TOKEN_LIMIT = 1024


def paged(
    call: Call, items: list[Object], version: int, check: Callable[[int], None]
) -> tuple[list[Object], dict[str, Any]]:
    """Return the requested part of *items*, which are sorted by name, and the metadata of the list.

    :param version: the current one.
    :param check: raises `tower.store.records.Expired` if the changes since a version are no longer known.
    :raise TowerError: a parameter is invalid, or its version is not available.
    """
    limit, token = _number(call, "limit"), call.query.get("continue", "")
    check_version(call, version, check)
    if token:
        version, start = _read(token)
        check(version)
        items = [item for item in items if item["metadata"]["name"] > start]
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if 0 < limit < len(items):
        metadata["continue"] = _token(version, items[limit - 1]["metadata"]["name"])
        if not call.query.get("labelSelector") and not call.query.get("fieldSelector"):
            metadata["remainingItemCount"] = len(items) - limit
        items = items[:limit]
    return items, metadata


def check_version(call: Call, current: int, check: Callable[[int], None]) -> None:
    """Check the parameters `resourceVersion` and `resourceVersionMatch` of a read.

    :raise TowerError: one is invalid, or the version is not available.
    """
    text, match = call.query.get("resourceVersion", ""), call.query.get("resourceVersionMatch", "")
    if text and not is_version(text):
        raise StatusError(400, f"resourceVersion {text!r}: must be one that this API returned, or 0")
    if match not in ("", "Exact", "NotOlderThan"):
        raise StatusError(422, f"resourceVersionMatch: {match!r}: must be Exact or NotOlderThan")
    if match and (not text or call.query.get("continue")):
        raise StatusError(422, "resourceVersionMatch: only with resourceVersion, and without continue")
    if match == "Exact" and text == "0":
        raise StatusError(422, "resourceVersionMatch: Exact is forbidden for resourceVersion 0")
    version = int(text or 0)
    if version > current:
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise StatusError(
            504,
            f"Too large resource version: {version}, current: {current}",
            reason="Timeout",
            details={"causes": [cause], "retryAfterSeconds": 1},
        )
    if match == "Exact" and version != current:
        check(version)
        raise StatusError(410, f"version {version} is not the current one: list again", reason="Expired")


def _number(call: Call, name: str) -> int:
    text = call.query.get(name, "") or "0"
    if not text.isdecimal() or len(text) > 18:
        raise StatusError(400, f"{name} {text!r}: must be a number")
    return int(text)


def _token(version: int, start: str) -> str:
    text = json.dumps({"v": version, "start": start})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(token: str) -> tuple[int, str]:
    """Return version and last name in a continue token."""
    try:
        if len(token) > TOKEN_LIMIT:
            raise ValueError(token)
        value = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = value["v"], value["start"]
        if isinstance(version, bool) or not isinstance(version, int) or not isinstance(start, str):
            raise TypeError(token)
    except (ValueError, LookupError, TypeError) as e:
        raise StatusError(400, "continue: not a value that this API returned: list again") from e
    return version, start
