"""Names of the kinds of records."""

from __future__ import annotations

CLUSTERS = "clusters"
SETTINGS = "settings"
PORTS = "ports"
JOIN_TOKENS = "jointokens"
V1_TOKENS = "v1tokens"
AGENT_KEYS = "agentkeys"
REVOKED_KEYS = "revokedkeys"
CREDENTIALS = "credentials"
MEMBER_ACCESS = "memberaccess"
NODES = "nodes"
HOST_KEYS = "hostkeys"
EVENTS = "events"
ACCESS_POLICIES = "accesspolicies"
RBAC_OBJECTS = "rbacobjects"
LOGIN_SESSIONS = "loginsessions"

#: Kinds whose records belong to the cluster with uid ``cluster_uid`` and are removed with it.
CLUSTER_KINDS = (
    PORTS,
    JOIN_TOKENS,
    V1_TOKENS,
    AGENT_KEYS,
    REVOKED_KEYS,
    CREDENTIALS,
    MEMBER_ACCESS,
    NODES,
    HOST_KEYS,
    EVENTS,
)

#: All kinds of record.
KINDS = (CLUSTERS, SETTINGS, ACCESS_POLICIES, RBAC_OBJECTS, LOGIN_SESSIONS, *CLUSTER_KINDS)
