"""The kinds of records in the host cluster; that of clusters is in `tower.clusters.host.host_object`."""

from __future__ import annotations

from tower.kube.rest.host_api import ResourceType
from tower.kube.rest.well_known import SECRETS
from tower.store import kinds
from tower.store.kubernetes.object_codec import ObjectCodec, RecordCodec, SecretCodec

#: Group of Tower's own kinds.
GROUP = "tower.kubesphere.io"
VERSION = "v1alpha1"

#: Unfinished transactions; see `tower.store.kubernetes.transaction_log`.
TRANSACTIONS = ResourceType(GROUP, VERSION, "transactions", "Transaction")

#: Names of Tower's own kinds, in the singular.
NAMES = {
    kinds.SETTINGS: "Setting",
    kinds.PORTS: "ClusterPort",
    kinds.JOIN_TOKENS: "JoinToken",
    kinds.V1_TOKENS: "V1Token",
    kinds.AGENT_KEYS: "AgentKey",
    kinds.REVOKED_KEYS: "RevokedKey",
    kinds.CREDENTIALS: "Credential",
    kinds.NODES: "ClusterNodes",
    kinds.HOST_KEYS: "HostKey",
    kinds.EVENTS: "ClusterEvent",
    kinds.ACCESS_POLICIES: "AccessPolicy",
    kinds.RBAC_OBJECTS: "RbacObject",
    kinds.LOGIN_SESSIONS: "LoginSession",
}

_PLURALS = {"AccessPolicy": "accesspolicies"}


def own_type(kind: str) -> ResourceType:
    """Return the type of objects of one of Tower's own kinds of records."""
    name = NAMES[kind]
    plural = _PLURALS.get(name) or (name.lower() if name.endswith("s") else f"{name.lower()}s")
    return ResourceType(GROUP, VERSION, plural, name)


def own_codecs() -> list[ObjectCodec]:
    """Return the codecs of all kinds but clusters."""
    own = [RecordCodec(kind, own_type(kind)) for kind in NAMES]
    return [*own, SecretCodec(kinds.MEMBER_ACCESS, SECRETS)]
