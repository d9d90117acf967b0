"""A cluster, its record, and its Kubernetes object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from attrs import asdict, field, frozen

from tower.clusters import ssh_spec_object
from tower.clusters.object_meta import (
    ALLOW_LONE_TOKENS,
    ALLOW_TOKENS,
    DRAIN,
    LONGEST_DRAIN,
    MEMBER_TOKENS,
    NEW,
    ObjectMeta,
    check_object_meta,
    decode_object_meta,
    encode_object_meta,
)
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import ConfigurationError, Invalid, NotFound
from tower.escaping import escaped
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities
from tower.kube.timestamps import timestamp
from tower.options.values import parse_duration
from tower.store.kinds import CLUSTERS
from tower.store.records import (
    Create,
    Record,
    RecordMissing,
    Require,
    Value,
    check_fields,
    known_fields,
)

if TYPE_CHECKING:
    from tower.store import IStore

#: API group and version of clusters, as in KubeSphere Tower.
API_VERSION = "cluster.kubesphere.io/v1alpha1"

#: Total size limit of labels and annotations, characters (Kubernetes' limit for annotations).
_METADATA_LIMIT = 256 * 1024

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]

#: ``proxy``: the cluster's agent connects to the proxy; ``ssh``: the proxy connects to its nodes.
ClusterType: TypeAlias = Literal["proxy", "ssh"]


@frozen
class Condition:
    """A condition of a cluster.

    :ivar type: such as ``AgentAvailable``.
    :ivar message: human-readable; escaped, as it may quote a member.
    :ivar last_transition: when *status* last changed, s since the epoch.
    """

    type: str
    status: ConditionStatus
    reason: str
    message: str = field(converter=escaped)
    last_transition: float


@frozen
class Cluster:
    """A member cluster.

    :ivar uid: unique, even among later clusters of the same name.
    :ivar created: s since the epoch.
    :ivar enabled: whether it is served; see `Clusters.set_enabled`.
    :ivar kubernetes_port: its own TLS port; None if none was ever assigned.
    :ivar ssh: SSH access to its nodes; None: it has an agent.
    :ivar meta: maintained by other programs.
    """

    name: str
    uid: str
    resource_version: int
    created: float
    enabled: bool = True
    kubernetes_port: int | None = None
    conditions: tuple[Condition, ...] = ()
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)
    ssh: SSHSpec | None = None
    meta: ObjectMeta = NEW

    @property
    def type(self) -> ClusterType:
        """``proxy`` or ``ssh``."""
        return "proxy" if self.ssh is None else "ssh"

    @property
    def identities(self) -> SystemIdentities:
        """The proxy's rule for system identities; agents have their own."""
        return NONE_ALLOWED if self.ssh is None else self.ssh.identities

    @property
    def allows_member_tokens(self) -> bool:
        """Whether tokens of the cluster's own accounts may pass old agents; new agents have a flag."""
        return self.annotations.get(MEMBER_TOKENS) in (ALLOW_TOKENS, ALLOW_LONE_TOKENS)

    @property
    def allows_lone_tokens(self) -> bool:
        """Whether the cluster's own port accepts such tokens without a credential of Tower."""
        return self.annotations.get(MEMBER_TOKENS) == ALLOW_LONE_TOKENS

    @property
    def drain(self) -> float:
        """Time that requests have to end when the cluster is disabled, s."""
        try:
            return min(parse_duration(self.annotations.get(DRAIN, "0s")), LONGEST_DRAIN)
        except ValueError:
            return 0.0

    def condition(self, kind: str) -> Condition | None:
        """Return the condition of type *kind*, or None."""
        return next((condition for condition in self.conditions if condition.type == kind), None)


@frozen
class MemberFacts:
    """Public facts of the credential that the proxy keeps for a cluster of type ssh.

    :ivar server: URL of the API server, as seen from the nodes.
    :ivar expires: s since the epoch; None: unknown.
    """

    server: str
    credential: Literal["certificate", "token", "none"]
    expires: float | None = None


@frozen
class Live:
    """The current state of a cluster, which is not stored.

    :ivar endpoint: URL for users; may be empty.
    :ivar tunnels: number of connected agents.
    :ivar version: of the agent; may be empty.
    :ivar kubernetes_version: of the API server, last known; may be empty.
    :ivar last_seen: when an agent was last connected, s since the epoch.
    :ivar round_trip: to the agent and back, s.
    :ivar member: of clusters of type ssh.
    :ivar credential_expires: end of the credential for the API server, s since the epoch; None: unknown.
    """

    endpoint: str = ""
    tunnels: int = 0
    version: str = ""
    last_seen: float | None = None
    round_trip: float | None = None
    member: MemberFacts | None = None
    kubernetes_version: str = ""
    credential_expires: float | None = None


def cluster_not_found(name: str) -> NotFound:
    """Return the error for an unknown cluster, with the cure."""
    return NotFound(f"cluster {name} not found: 'tower cluster list' shows all, 'tower cluster add' adds one")


def cluster_record(store: IStore, name: str) -> Record:
    """Return the record of a cluster.

    :raise NotFound: with the cure.
    """
    record = store.get(CLUSTERS, name)
    if record is None:
        raise cluster_not_found(name)
    return record


async def create_owned(store: IStore, owner: Record, kind: str, name: str, value: Value) -> None:
    """Create a record that belongs to a cluster; its cluster and uid are added to *value*.

    The cluster may have been updated, but not removed; a new one has another uid.

    :raise NotFound: it was removed.
    :raise RecordExists: as `Create`.
    """
    owned = {"cluster": owner.name, "cluster_uid": owner.value["uid"], **value}
    try:
        await store.transact([Require("clusters", owner.name), Create(kind, name, owned)])
    except RecordMissing as e:
        raise cluster_not_found(owner.name) from e


def check_metadata(cluster: Cluster) -> None:
    """Raise `Invalid` unless labels, annotations and the rest of the metadata are within their limits."""
    items = [*cluster.labels.items(), *cluster.annotations.items()]
    if not all(isinstance(key, str) and isinstance(value, str) for key, value in items):
        raise Invalid(f"cluster {cluster.name}: labels and annotations must be strings")
    if sum(len(key) + len(value) for key, value in items) > _METADATA_LIMIT:
        raise Invalid(f"cluster {cluster.name}: labels and annotations exceed {_METADATA_LIMIT} characters")
    check_object_meta(cluster.meta)


def encode(cluster: Cluster) -> Value:
    """Return the record value of *cluster*; name and version are the record's."""
    value: dict[str, Any] = {
        "uid": cluster.uid,
        "created": cluster.created,
        "enabled": cluster.enabled,
        "kubernetes_port": cluster.kubernetes_port,
        "conditions": [asdict(condition) for condition in cluster.conditions],
        "labels": dict(cluster.labels),
        "annotations": dict(cluster.annotations),
    }
    if cluster.ssh is not None:
        value["ssh"] = ssh_spec_object.to_record(cluster.ssh)
    if cluster.meta != NEW:
        value["meta"] = encode_object_meta(cluster.meta)
    return value


def decode(record: Record) -> Cluster:
    """Return the cluster of *record*."""
    value = record.value
    ssh = value.get("ssh")  # records before 0.6 have none
    return Cluster(
        name=record.name,
        uid=value["uid"],
        resource_version=record.version,
        created=value["created"],
        enabled=value["enabled"],
        kubernetes_port=value["kubernetes_port"],
        conditions=tuple(Condition(**known_fields(Condition, each)) for each in value["conditions"]),
        labels=value["labels"],
        annotations=value["annotations"],
        ssh=None if ssh is None else _ssh(record.name, ssh),
        meta=decode_object_meta(value.get("meta", {})),
    )


def _ssh(name: str, value: Mapping[str, Any]) -> SSHSpec:
    try:
        check_fields(SSHSpec, value)
    except Invalid as e:
        raise ConfigurationError(
            f"cluster {name}: the ssh part of its record has {e}, as written by a newer Tower: start that "
            "version again, or restore a backup from before the upgrade"
        ) from None
    return ssh_spec_object.from_record(value)


def to_object(cluster: Cluster, live: Live | None = None) -> dict[str, Any]:
    """Return the Kubernetes object of *cluster*, with the fields of upstream's CRD and without secrets.

    Tower's additions are ``spec.connection.ssh`` and ``status.agents``, ``agentVersion``, ``lastSeen``,
    ``roundTripMilliseconds``, ``member``; ``status.kubernetesVersion`` is upstream's.
    """
    connection: dict[str, Any] = {"type": cluster.type}
    if cluster.ssh is not None:
        connection["ssh"] = ssh_spec_object.to_object(cluster.ssh)
    if cluster.kubernetes_port is not None:
        connection["kubernetesAPIServerPort"] = cluster.kubernetes_port
    if live is not None and live.endpoint:
        connection["kubernetesAPIEndpoint"] = live.endpoint
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": _metadata(cluster),
        "spec": {"enable": cluster.enabled, "connection": connection},
        "status": _status(cluster, live),
    }


def _metadata(cluster: Cluster) -> dict[str, Any]:
    meta = cluster.meta
    shown: dict[str, Any] = {
        "name": cluster.name,
        "uid": cluster.uid,
        "resourceVersion": str(cluster.resource_version),
        "generation": meta.generation,
        "creationTimestamp": timestamp(cluster.created),
    }
    if meta.deleted is not None:
        shown |= {"deletionTimestamp": timestamp(meta.deleted), "deletionGracePeriodSeconds": 0}
    more = {
        "labels": dict(cluster.labels),
        "annotations": dict(cluster.annotations),
        "finalizers": list(meta.finalizers),
        "ownerReferences": list(meta.owners),
        "managedFields": list(meta.managed),
    }
    return shown | {name: part for name, part in more.items() if part}


def _status(cluster: Cluster, live: Live | None) -> dict[str, Any]:
    status: dict[str, Any] = {
        "conditions": [
            {
                "type": condition.type,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": timestamp(condition.last_transition),
            }
            for condition in cluster.conditions
        ]
    }
    status["conditions"] += [
        condition for condition in cluster.meta.conditions if cluster.condition(condition["type"]) is None
    ]
    if live is not None:
        if cluster.ssh is None:
            status["agents"] = live.tunnels
        if live.kubernetes_version:
            status["kubernetesVersion"] = live.kubernetes_version
        if live.version:
            status["agentVersion"] = live.version
        if live.last_seen is not None:
            status["lastSeen"] = timestamp(live.last_seen)
        if live.round_trip is not None:
            status["roundTripMilliseconds"] = round(live.round_trip * 1000, 3)
        member = _member(live.member, live.credential_expires)
        if member:
            status["member"] = member
    return status


def _member(facts: MemberFacts | None, expires: float | None) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if facts is not None:
        shown = {"server": facts.server, "credential": facts.credential}
        expires = expires if facts.expires is None else facts.expires
    if expires is not None:
        shown["expirationTimestamp"] = timestamp(expires)
    return shown
