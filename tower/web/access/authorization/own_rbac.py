"""RBAC of Tower: the roles and bindings of its own API, for that API and for requests into clusters.

They are in the store, so that decisions never wait, and a change counts for the next request.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import define, field

from tower.clusters.policies.rbac_object import OWN_PREFIX, RbacObject
from tower.clusters.policies.rbac_objects import RbacObjects
from tower.kube.access.rbac import Binding, RbacRole
from tower.store.records import EventType, Watch
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Decision
from tower.web.access.authorization.rbac_index import RbacIndex


@define(eq=False, repr=False)
class OwnRbac:
    """Decides by the current objects.

    :ivar index: of the objects.
    :ivar on_change: called after the rules have changed.
    """

    _objects: RbacObjects
    on_change: list[Callable[[], object]] = field(factory=list, init=False)
    index: RbacIndex = field(init=False)
    _watch: Watch = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.index = RbacIndex(own_prefix=OWN_PREFIX)
        self._put(self._objects.list())
        self._watch = self._objects.watch(self._changed)

    def stop(self) -> None:
        """Stop to follow the store."""
        self._watch.stop()

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        return self.index.authorize(attributes)

    def _put(self, items: Iterable[RbacObject]) -> None:
        for each in items:
            if each.kind.is_binding:
                self.index.put_binding(binding_of(each))
            else:
                self.index.put_role(role_of(each))

    def _changed(self, event: EventType, item: RbacObject) -> None:
        if event != "DELETED":
            self._put([item])
        elif item.kind.is_binding:
            self.index.remove_binding(item.namespace, item.own_name)
        else:
            self.index.remove_role(item.namespace, item.own_name)
        for notify in self.on_change:
            notify()


def role_of(item: RbacObject) -> RbacRole:
    """Return the role that an object is."""
    return RbacRole.of(item.as_value())


def binding_of(item: RbacObject) -> Binding:
    """Return the binding that an object is."""
    return Binding.of(item.as_value())
