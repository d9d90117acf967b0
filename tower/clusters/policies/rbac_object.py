"""Roles and bindings of Tower's own API, as records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from tower.kube.access.rbac import GROUP

#: Version of the objects.
API_VERSION = f"{GROUP}/v1"

#: Prefix of the ClusterRoles for Tower itself.
OWN_PREFIX = "tower:"


@frozen
class RbacKind:
    """A kind of objects.

    :ivar fields: those next to the metadata.
    """

    name: str
    plural: str
    fields: tuple[str, ...]
    is_namespaced: bool

    @property
    def is_binding(self) -> bool:
        """Whether objects grant a role to subjects."""
        return "roleRef" in self.fields


CLUSTER_ROLE = RbacKind("ClusterRole", "clusterroles", ("aggregationRule", "rules"), is_namespaced=False)
ROLE = RbacKind("Role", "roles", ("rules",), is_namespaced=True)
CLUSTER_ROLE_BINDING = RbacKind(
    "ClusterRoleBinding", "clusterrolebindings", ("roleRef", "subjects"), is_namespaced=False
)
ROLE_BINDING = RbacKind("RoleBinding", "rolebindings", ("roleRef", "subjects"), is_namespaced=True)

#: All kinds.
RBAC_KINDS = (CLUSTER_ROLE, ROLE, CLUSTER_ROLE_BINDING, ROLE_BINDING)


@frozen
class RbacObject:
    """A role or a binding.

    :ivar name: with the namespace before a slash, if it has one.
    :ivar body: its fields next to the metadata.
    :ivar managed: owners of its fields, as in the metadata.
    """

    kind: RbacKind
    name: str
    uid: str
    resource_version: int
    created: float
    body: Mapping[str, Any]
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)
    managed: tuple[Mapping[str, Any], ...] = ()

    @property
    def own_name(self) -> str:
        """Its name, without the namespace."""
        return self.name.rpartition("/")[2]

    @property
    def namespace(self) -> str:
        """Its namespace, or empty."""
        return self.name.rpartition("/")[0]

    def as_value(self) -> dict[str, Any]:
        """Return the object without what the API alone writes."""
        metadata: dict[str, Any] = {"name": self.own_name}
        if self.namespace:
            metadata["namespace"] = self.namespace
        for key, part in (("labels", self.labels), ("annotations", self.annotations)):
            if part:
                metadata[key] = dict(part)
        return {"apiVersion": API_VERSION, "kind": self.kind.name, "metadata": metadata, **self.body}
