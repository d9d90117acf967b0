"""Reasons for which an agent is not allowed to serve a cluster."""

from __future__ import annotations

from typing import Final

from tower.errors import Unauthorized

#: Kinds: the cluster is disabled; the key or token was revoked; the cluster does not exist; the key is not
#: enrolled; the token is invalid; anything else.
DISABLED: Final = "disabled"
REVOKED: Final = "revoked"
UNKNOWN_CLUSTER: Final = "unknown-cluster"
UNKNOWN_KEY: Final = "unknown-key"
INVALID: Final = "invalid-token"
AUTHENTICATION: Final = "authentication"

#: All kinds; if there are several reasons, the first of these is the cause.
AGENT_REJECTIONS: Final = (DISABLED, REVOKED, UNKNOWN_CLUSTER, INVALID, UNKNOWN_KEY, AUTHENTICATION)


class AgentRejected(Unauthorized):
    """An agent is not allowed to serve a cluster; its ``kind`` is one of `AGENT_REJECTIONS`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason=reason, kind=kind)
