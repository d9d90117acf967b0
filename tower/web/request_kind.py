"""Kinds of requests to clusters, in logs and metrics."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tower.kube.request_info import parse_request_info

#: The kinds.
SHORT: Final = "short"
WATCH: Final = "watch"
EXEC: Final = "exec"
PORT_FORWARD: Final = "portforward"
LOGS: Final = "logs"
RAW: Final = "raw"

_KINDS: Final = {"exec": EXEC, "attach": EXEC, "portforward": PORT_FORWARD, "log": LOGS}

_PREFIX: Final = re.compile(rb"/clusters/[^/?]*(/targets/)?")

#: Stands for the target of any watch or stream.
_LONG_RUNNING: Final = b"/api/v1/pods?watch=1"


def is_surely_short(target: bytes) -> bool:
    """Return whether *target* has no word of long-running requests, and no escape that could hide one.

    It may be several targets.
    """
    find = target.find  # `in` raises and drops a TypeError first: the left side might be a number
    return (
        find(b"watch") < 0
        and find(b"/log") < 0
        and find(b"/proxy") < 0
        and find(b"/debug") < 0
        and find(b"%") < 0
    )


#: Longest target whose kind is cached, B: the cache must not hold much of clients' data.
_LONGEST_CACHED: Final = 256


def request_kind(method: bytes, target: bytes, upgrade: bytes) -> str:
    """Return the kind of a request of a user; *upgrade* is empty if it is not an upgrade."""
    if not upgrade and is_surely_short(target):
        return SHORT
    kind = _kind if len(target) <= _LONGEST_CACHED else _kind.__wrapped__
    prefix = _PREFIX.match(target)
    if prefix is None:
        return kind(method, target, bool(upgrade))
    if prefix[1]:
        return RAW if upgrade else SHORT
    return kind(method, target[prefix.end() :], bool(upgrade))


def is_long_running(method: bytes, target: bytes) -> bool:
    """Return whether verb and subresource of a user's request make it long-running, as in kube-apiserver.

    An upgrade alone does not: the server may ignore it.
    """
    prefix = _PREFIX.match(target)
    if prefix is None:
        return parse_request_info(method, target).is_long_running
    return not prefix[1] and parse_request_info(method, target[prefix.end() :]).is_long_running


@lru_cache(maxsize=1024)
def _kind(method: bytes, target: bytes, upgrades: bool) -> str:
    """Return the kind of a request to a cluster's API server; *target* is the server's path and query."""
    info = parse_request_info(method, target)
    if kind := _KINDS.get(info.subresource):
        return kind
    if info.verb == "watch":
        return WATCH
    return RAW if upgrades or info.is_long_running else SHORT


def stand_in(method: bytes, target: bytes, upgrade: bytes) -> bytes:
    """Return a short target for a long one, which is short or long-running as well."""
    return b"" if request_kind(method, target, upgrade) == SHORT else _LONG_RUNNING
