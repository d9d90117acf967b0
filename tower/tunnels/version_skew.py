"""The supported difference between the versions of agents and proxy: one minor version newer, two older."""

from __future__ import annotations

import re

#: How many minor versions an agent may be newer, and older, than its proxy; see docs/operations.md.
NEWER, OLDER = 1, 2

_VERSION = re.compile(r"v?([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")


def skew(agent: str, proxy: str) -> str:
    """Return why the versions of an agent and its proxy are not supported together, with the cure, or "".

    Unreadable versions are not judged: they are those of other programs.
    """
    theirs, ours = _VERSION.match(agent), _VERSION.match(proxy)
    if theirs is None or ours is None:
        return ""
    (major, minor), (own_major, own_minor) = map(int, theirs.groups()), map(int, ours.groups())
    if major == own_major and own_minor - OLDER <= minor <= own_minor + NEWER:
        return ""
    older = "agent" if (major, minor) < (own_major, own_minor) else "proxy"
    return (
        f"agent {theirs[0]} and proxy {ours[0]} are too far apart (supported: agents {NEWER} minor version "
        f"newer than the proxy, or {OLDER} older): upgrade the {older}"
    )
