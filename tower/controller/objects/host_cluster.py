"""View of a ``Cluster`` object of the host: the fields that the controller reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from attrs import field, frozen

from tower.clusters.cluster import API_VERSION
from tower.clusters.host.host_object import KUBESPHERE_FINALIZER
from tower.clusters.host.host_statuses import AGENT_VERSION, KUBERNETES_VERSION
from tower.kube.rest.host_api import Object

#: Prefix of Tower's own annotations and labels.
PREFIX = "tower.kubesphere.io/"

#: Annotation with the annotations of the load balancer's Service, as JSON; misspelled by KubeSphere Tower.
BALANCER_ANNOTATION = PREFIX + "external-lb-service-annoations"

#: Annotation with the ID of the agents' token; see `tower.clusters.v1_tokens`.
TOKEN_ANNOTATION = PREFIX + "agent-token-id"

#: Annotation with namespace and name of the Secret that has the kubeconfig and the token.
SECRET_ANNOTATION = PREFIX + "secret"

#: Annotation with the stamp of the kubeconfig, on the Secret or the object that has the kubeconfig.
STAMP_ANNOTATION = PREFIX + "kubeconfig"

#: Annotation with ``NAME/ADDRESS``: the cluster and the last ClusterIP of its Service.
ADDRESS_ANNOTATION = PREFIX + "cluster-ip"

_ANNOTATIONS = (
    BALANCER_ANNOTATION,
    TOKEN_ANNOTATION,
    SECRET_ANNOTATION,
    STAMP_ANNOTATION,
    ADDRESS_ANNOTATION,
)

#: The finalizer that keeps a deleted object until its Service and port are released.
FINALIZER = PREFIX + "cluster"

#: Type of connection of the clusters that have an agent.
PROXY = "proxy"

#: Type of connection of the clusters whose nodes Tower connects to.
SSH = "ssh"


@frozen
class HostCluster:
    """A ``Cluster`` object; two are equal unless a change needs work of the controller.

    :ivar is_deleted: its deletion was requested.
    :ivar annotations: those that the controller reads or writes.
    :ivar is_federated: ``joinFederation`` is true.
    :ivar is_enabled: ``enable`` is not false; it may be missing.
    :ivar is_exported: it should have a load balancer.
    :ivar connection: ``spec.connection``; may contain secrets.
    :ivar versions: of Kubernetes and of the agent, in the status.
    """

    name: str
    uid: str
    resource_version: str = field(eq=False)
    generation: int = field(eq=False)
    observed_generation: int | None = field(eq=False)
    is_deleted: bool
    finalizers: tuple[str, ...]
    annotations: Mapping[str, str] = field(repr=False)
    is_federated: bool
    is_enabled: bool
    is_exported: bool
    connection: Mapping[str, Any] = field(repr=False)
    versions: Mapping[str, str] = field(eq=False)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Return the view of an object; fields of a wrong type count as missing."""
        metadata, spec, status = obj["metadata"], _map(obj, "spec"), _map(obj, "status")
        annotations = _map(metadata, "annotations")
        observed = status.get("observedGeneration")
        return cls(
            metadata["name"],
            metadata["uid"],
            metadata["resourceVersion"],
            metadata.get("generation", 0),
            observed if isinstance(observed, int) else None,
            metadata.get("deletionTimestamp") is not None,
            tuple(metadata.get("finalizers") or ()),
            {key: str(annotations[key]) for key in _ANNOTATIONS if key in annotations},
            spec.get("joinFederation") is True,
            spec.get("enable") is not False,
            spec.get("externalKubeAPIEnabled") is True,
            _map(spec, "connection"),
            {key: str(status[key]) for key in (KUBERNETES_VERSION, AGENT_VERSION) if key in status},
        )

    @property
    def type(self) -> str:
        """Type of its connection."""
        return self.text("type")

    @property
    def is_joined(self) -> bool:
        """Whether its users want it served."""
        return self.is_federated and self.is_enabled

    @property
    def is_served(self) -> bool:
        """Whether it has a port and a Service now; see `tower.clusters.host.host_object.is_enabled`."""
        is_kept = not self.is_deleted or KUBESPHERE_FINALIZER in self.finalizers
        return self.type == PROXY and self.is_joined and is_kept

    def is_same_wish(self, other: HostCluster) -> bool:
        """Return whether *other* has the same values in all fields that other programs set."""
        return self._wish == other._wish

    @property
    def _wish(self) -> tuple[object, ...]:
        secrets = self.text("token"), self.text("proxyToken"), self.text("kubeconfig")
        is_wanted = self.is_deleted, self.is_joined, self.is_exported
        return self.uid, self.type, is_wanted, secrets, dict(self.annotations)

    def text(self, key: str) -> str:
        """Return a text of ``spec.connection``; empty without one."""
        value = self.connection.get(key)
        return value if isinstance(value, str) else ""

    @property
    def last_address(self) -> str:
        """The last ClusterIP of its Service; empty: unknown."""
        name, _, address = self.annotations.get(ADDRESS_ANNOTATION, "").partition("/")
        return address if name == self.name else ""  # else it is the copy of another cluster

    @property
    def owner(self) -> dict[str, Any]:
        """The owner reference of objects that Kubernetes removes with it."""
        return {"apiVersion": API_VERSION, "kind": "Cluster", "name": self.name, "uid": self.uid}


@frozen
class HostObjects:
    """The objects of one cluster, as the controller knows them.

    :ivar cluster: None: it does not exist.
    """

    cluster: HostCluster | None
    service: Object | None
    slices: Sequence[Object] = ()


def _map(obj: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = obj.get(key)
    return value if isinstance(value, dict) else {}
