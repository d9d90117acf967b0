"""RBAC of a host cluster: its roles and bindings, followed, and the authorizer that they make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from twisted.logger import Logger

from tower.escaping import quoted, shortened
from tower.kube.access.rbac import GROUP, Binding, RbacRole
from tower.kube.rest.host_api import Object, ResourceType, WatchEvent
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import ANNOTATION, ENTRIES, wrong_entries
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.rbac_index import RbacIndex

#: The types of objects.
ROLE_TYPES = (
    ResourceType(GROUP, "v1", "clusterroles", "ClusterRole", namespaced=False),
    ResourceType(GROUP, "v1", "roles", "Role"),
)
BINDING_TYPES = (
    ResourceType(GROUP, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    ResourceType(GROUP, "v1", "rolebindings", "RoleBinding"),
)

_UNKNOWN = Decision(
    Ruling.NO_OPINION,
    error="RBAC: the roles and bindings of --authorization-kubeconfig are not known yet",
    may_be_kept=False,
)

T = TypeVar("T")


class _Objects(Generic[T]):
    """The objects of one type; a `tower.kube.rest.reflector.Follower`.

    :param put: adds an object or replaces it; returns whether that is a change.
    :param remove: removes an object, by namespace and name; returns whether there was one.
    """

    def __init__(
        self,
        read: Callable[[Any], T],
        put: Callable[[T], bool],
        remove: Callable[[str, str], bool],
        on_change: Callable[[], object],
    ) -> None:
        self._read, self._put, self._remove, self._on_change = read, put, remove, on_change
        self._names: set[tuple[str, str]] = set()
        self.is_complete = False

    def replaced(self, items: list[Object], resource_version: str) -> None:
        """See `Follower`."""
        found = {_key(item): self._read(item) for item in items}
        removed = [self._remove(*key) for key in self._names - found.keys()]
        changed = [self._put(value) for value in found.values()]
        self._names = set(found)
        is_first, self.is_complete = not self.is_complete, True
        if is_first or any(removed) or any(changed):
            self._on_change()

    def changed(self, event: WatchEvent) -> None:
        """See `Follower`."""
        key = _key(event.object)
        if event.type == "DELETED":
            self._names.discard(key)
            is_change = self._remove(*key)
        else:
            self._names.add(key)
            is_change = self._put(self._read(event.object))
        if is_change:
            self._on_change()


def _key(value: Object) -> tuple[str, str]:
    meta = value["metadata"]
    return meta.get("namespace") or "", meta["name"]


class RbacFollower:
    """Decides by the current roles and bindings, once all lists are complete.

    :param on_change: called after the rules have changed.
    :ivar index: of the objects.
    :ivar roles: follow the types `ROLE_TYPES`.
    :ivar bindings: follow the types `BINDING_TYPES`.
    """

    _log = Logger()

    def __init__(self, on_change: Callable[[], object] = lambda: None) -> None:
        self.index = index = RbacIndex(aggregates=False)
        self._is_known = False
        self._on_change = on_change
        self.roles = tuple(
            _Objects(RbacRole.of, index.put_role, index.remove_role, self._changed) for _ in ROLE_TYPES
        )
        self.bindings = tuple(
            _Objects(Binding.of, self._put_binding, index.remove_binding, self._changed)
            for _ in BINDING_TYPES
        )

    def _put_binding(self, binding: Binding) -> bool:
        is_change = self.index.put_binding(binding)
        if is_change and (wrong := wrong_entries(binding.annotations)):
            self._log.warn(
                "binding {name} of --authorization-kubeconfig: ignored invalid entries in annotation "
                "{annotation}: {entries}; valid are: {valid}",
                name=f"{binding.namespace}/{binding.name}" if binding.namespace else binding.name,
                annotation=ANNOTATION,
                entries=shortened(", ".join(map(quoted, wrong)), 200),
                valid=ENTRIES,
            )
        return is_change

    def _changed(self) -> None:
        if not self._is_known:
            are_roles = all(each.is_complete for each in self.roles)
            self._is_known = are_roles and all(each.is_complete for each in self.bindings)
        if self._is_known:
            self._on_change()

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        return self.index.authorize(attributes) if self._is_known else _UNKNOWN
