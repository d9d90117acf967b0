"""Conversion between a cluster's record and KubeSphere's ``Cluster`` object in the host cluster.  Sans-IO.

The object belongs to several programs, so a write keeps all fields that Tower does not know.  Secrets of
other programs in the object (kubeconfig, token) never get into the record.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import evolve, field, frozen

from tower.clusters.condition_types import AGENT_AVAILABLE, AVAILABLE, MEMBER_CHECKS, NODES_AVAILABLE
from tower.clusters.host.applied_object import APPLIED, without_secrets
from tower.clusters.host.host_conditions import HostConditions
from tower.clusters.host.host_statuses import HostStatuses
from tower.clusters.object_meta import ObjectMeta, check_name, decode_object_meta, encode_object_meta
from tower.clusters.ssh_spec_object import NAMES, from_record, read_spec, to_object, to_record
from tower.errors import Invalid
from tower.kube.rest.host_api import Object, ResourceType
from tower.kube.rest.well_known import CLUSTERS as CLUSTER_TYPE
from tower.kube.timestamps import parse_timestamp
from tower.store.kinds import CLUSTERS
from tower.store.kubernetes.object_codec import PREFIX, TRANSACTION, normal
from tower.store.records import Value

#: Identity of a cluster that Tower created, ``NAME/UID``.  With the name, because a copy of the object under
#: another name is another cluster.
UID = PREFIX + "uid"

#: Exact time of creation, s since the epoch.
CREATED = PREFIX + "created"

#: Metadata that clients of Tower's API maintain; in the object, owners would have the host delete it.
META = PREFIX + "metadata"

#: Types of conditions of Tower that are not in `TYPES`.
OTHER_TYPES = PREFIX + "conditions"

#: Distance of a cluster's port for KubeSphere from its port for Kubernetes.
KUBESPHERE_OFFSET = 10_000

#: Finalizer of KubeSphere, whose clean-up in the member needs the proxy.
KUBESPHERE_FINALIZER = "finalizer.cluster.kubesphere.io"

_PRIVATE = frozenset({UID, CREATED, META, OTHER_TYPES, TRANSACTION})

#: Types of the conditions that are true only while a proxy serves the cluster.
SERVED_TYPES = frozenset(
    {AVAILABLE, AGENT_AVAILABLE, NODES_AVAILABLE, *MEMBER_CHECKS, "Initialized", "ExternalAccessReady"}
)

#: Types of the conditions that Tower maintains.
TYPES = SERVED_TYPES | {"NodesSynced", "AgentVersionSupported"}


@frozen
class ClusterCodec:
    """The codec of `tower.store.kubernetes.object_codec.ObjectCodec` for clusters.

    :ivar statuses: facts to write with the conditions.
    """

    statuses: HostStatuses = field(factory=HostStatuses)
    kind: str = CLUSTERS
    resource: ResourceType = CLUSTER_TYPE
    selector: str = ""
    is_shared: bool = True

    def object_name(self, name: str) -> str:
        """Return the cluster's name."""
        return name

    def record(self, obj: Object, known: Value | None = None) -> tuple[str, Value] | None:
        """See `ObjectCodec.record`; other types than proxy and ssh are KubeSphere's own business."""
        self.statuses.read(obj)
        value = record_value(obj, known)
        return None if value is None else (obj["metadata"]["name"], value)

    def merged(self, base: Object | None, name: str, value: Value) -> Object:
        """See `ObjectCodec.merged`."""
        return self.statuses.added(name, base, merged(base, name, value))

    def is_deletion(self, base: Object, value: Value) -> bool:
        """See `ObjectCodec.is_deletion`."""
        return (
            value.get("meta", {}).get("deleted") is not None and "deletionTimestamp" not in base["metadata"]
        )

    def kept(self, obj: Object) -> Object:
        """See `ObjectCodec.kept`."""
        metadata = {key: part for key, part in obj["metadata"].items() if key != "managedFields"}
        return {**obj, "metadata": metadata}

    def owner(self, obj: Object) -> str:
        """See `ObjectCodec.owner`."""
        metadata = obj["metadata"]
        uid: str = _identity(metadata["name"], _texts(metadata, "annotations")) or metadata["uid"]
        return uid


def record_value(obj: Object, known: Value | None = None) -> Value | None:
    """Return the value of the cluster's record; None for a cluster that Tower does not serve.

    :param known: the record's value before, if it is still the same object: its identity stays, even if
        another program removed the annotations.
    :raise Invalid: the object is malformed; with the field and the cure.
    """
    metadata, connection = obj["metadata"], _connection(obj)
    kind, name = connection.get("type"), metadata["name"]
    if kind not in ("proxy", "ssh"):
        return None
    check_name(name)
    texts = _texts(metadata, "annotations")
    created = parse_timestamp(metadata.get("creationTimestamp")) or 0
    conditions = HostConditions.read(obj.get("status"), _own_types(texts), created)
    meta = evolve(
        _private_meta(texts),
        generation=metadata.get("generation", 1),
        deleted=parse_timestamp(metadata.get("deletionTimestamp")),
        finalizers=tuple(metadata.get("finalizers", ())),
        conditions=conditions.others,
    )
    value: dict[str, Any] = {
        "uid": _identity(name, texts) or metadata["uid"],
        "created": _number(texts.get(CREATED), created),
        "enabled": is_enabled(obj),
        "kubernetes_port": connection.get("kubernetesAPIServerPort") or None,
        "conditions": conditions.own,
        "labels": _texts(metadata, "labels"),
        "annotations": _public(texts),
    }
    if known is not None:
        value |= {"uid": known["uid"], "created": known["created"]}
    if kind == "ssh":
        spec = connection.get("ssh")
        value["ssh"] = to_record(read_spec(spec if isinstance(spec, dict) else {}))
    if meta != ObjectMeta():
        value["meta"] = encode_object_meta(meta)
    return normal(value)


def merged(base: Object | None, name: str, value: Value) -> Object:
    """Return the object with *value*; unknown fields of *base* stay.

    :param base: the object before; None: it is new.
    """
    meta = decode_object_meta(value.get("meta", {}))
    old: Mapping[str, Any] = base or {}
    metadata = {**old.get("metadata", {"name": name})}
    for key, part in (
        ("labels", value["labels"]),
        ("annotations", _annotations(base, name, value, meta)),
        ("finalizers", list(meta.finalizers)),
    ):
        metadata.pop(key, None)
        if part:
            metadata[key] = part
    result: Object = {
        **old,
        "apiVersion": CLUSTER_TYPE.api_version,
        "kind": CLUSTER_TYPE.kind,
        "metadata": metadata,
        "spec": _spec(base, value),
    }
    status = old.get("status")
    own = TYPES | {condition["type"] for condition in value["conditions"]}
    conditions = HostConditions(list(value["conditions"]), meta.conditions).write(status, own)
    if conditions or (status and "conditions" in status):
        result["status"] = {**(status or {}), "conditions": conditions}
    return result


def is_enabled(obj: Object) -> bool:
    """Return whether the cluster is served; ``enable`` may be missing.

    A cluster that is being deleted is served until KubeSphere has cleaned up, which needs the member.
    """
    spec, metadata = obj.get("spec") or {}, obj["metadata"]
    is_wanted = spec.get("joinFederation") is True and spec.get("enable") is not False
    is_kept = KUBESPHERE_FINALIZER in (metadata.get("finalizers") or ())
    return is_wanted and (is_kept or "deletionTimestamp" not in metadata)


def _connection(obj: Object) -> dict[str, Any]:
    spec = obj.get("spec")
    connection = spec.get("connection") if isinstance(spec, dict) else None
    return connection if isinstance(connection, dict) else {}


def _spec(base: Object | None, value: Value) -> dict[str, Any]:
    old = {} if base is None else base.get("spec") or {}
    spec = {**old, "connection": _merged_connection(_connection(base or {}), value)}
    if base is None:
        spec |= {"enable": value["enabled"], "joinFederation": True}
    elif is_enabled(base) != value["enabled"]:
        spec["enable"] = value["enabled"]
        if value["enabled"]:
            spec["joinFederation"] = True
    return spec


def _merged_connection(old: Mapping[str, Any], value: Value) -> dict[str, Any]:
    connection = {**old, "type": "ssh" if "ssh" in value else "proxy"}
    port = value["kubernetes_port"]
    if port != (old.get("kubernetesAPIServerPort") or None):
        for key, number in (("kubernetesAPIServerPort", port), ("kubesphereAPIServerPort", _second(port))):
            connection.pop(key, None)
            if number is not None:
                connection[key] = number
    if "ssh" in value:
        before = old.get("ssh") or {}
        spec = from_record(value["ssh"])
        if not before or read_spec(before) != spec:
            unknown = {key: part for key, part in before.items() if key not in NAMES.values()}
            connection["ssh"] = {**unknown, **to_object(spec)}
    return connection


def _second(port: int | None) -> int | None:
    """Return the cluster's port for KubeSphere, as in KubeSphere Tower; None if there is none."""
    return None if port is None or port + KUBESPHERE_OFFSET > 65535 else port + KUBESPHERE_OFFSET


def _annotations(base: Object | None, name: str, value: Value, meta: ObjectMeta) -> dict[str, str]:
    old = {} if base is None else _texts(base["metadata"], "annotations")
    texts = {key: text for key, text in value["annotations"].items() if key not in _PRIVATE}
    if APPLIED in old and without_secrets(old[APPLIED]) == texts.get(APPLIED):
        texts[APPLIED] = old[APPLIED]
    stored = None if base is None else base["metadata"]
    if stored is None or (_identity(name, old) or stored["uid"]) != value["uid"] or UID in old:
        texts[UID] = f"{name}/{value['uid']}"
    stamp = None if stored is None else parse_timestamp(stored.get("creationTimestamp"))
    if stamp != value["created"]:
        texts[CREATED] = json.dumps(value["created"])
    private = {"owners": list(meta.owners), "managed": list(meta.managed)}
    if any(private.values()):
        texts[META] = _json({key: part for key, part in private.items() if part})
    others = sorted({condition["type"] for condition in value["conditions"]} - TYPES)
    if others:
        texts[OTHER_TYPES] = ",".join(others)
    return texts


def _public(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations without Tower's private ones and without secrets."""
    shown = {key: text for key, text in texts.items() if key not in _PRIVATE}
    if APPLIED in shown:
        applied = without_secrets(shown.pop(APPLIED))
        if applied is not None:
            shown[APPLIED] = applied
    return shown


def _texts(metadata: Mapping[str, Any], key: str) -> dict[str, str]:
    return dict(metadata.get(key) or {})


def _own_types(texts: Mapping[str, str]) -> frozenset[str]:
    return TYPES | frozenset(texts.get(OTHER_TYPES, "").split(","))


def _identity(name: str, texts: Mapping[str, str]) -> str:
    """Return the uid in the annotations of the cluster *name*; empty without a valid one."""
    owner, _, uid = texts.get(UID, "").partition("/")
    return uid if owner == name else ""


def _private_meta(texts: Mapping[str, str]) -> ObjectMeta:
    try:
        return decode_object_meta(json.loads(texts.get(META, "{}")))
    except (ValueError, TypeError, AttributeError):
        raise Invalid(f"metadata.annotations: {META}: malformed: remove this annotation") from None


def _number(text: str | None, default: float) -> float:
    try:
        found = default if text is None else json.loads(text)
        return found if isinstance(found, int | float) else default
    except (ValueError, TypeError):
        return default


def _json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
