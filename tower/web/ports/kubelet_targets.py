"""The kubelets below a cluster's target ``kubelet``: one for each node, each with rights of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred

from tower.web.outcome import Outcome, Relay

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: The target below which they are.
KUBELET = "kubelet"

#: What follows that target: a node, as it is called by its cluster or whoever lists it; IPv6 as in ``::1``.
NODE = re.compile(rb"/([:A-Za-z0-9](?:[-.:_A-Za-z0-9]{0,251}[:A-Za-z0-9])?)(?=[/?]|\Z)")


class Kubelets(Protocol):
    """What is needed of `tower.nodes.kubelets.Kubelets`."""

    def authorize(
        self, user: str, groups: Sequence[str], name: str, method: bytes, path: bytes, *, upgrade: bool
    ) -> Deferred[None] | None:
        """Return None if *user* may do this at the node called *name*, or what fires when he may.

        :raise TowerError: also through the Deferred: he may not, or nobody can tell.
        """


#: Returns the kubelets of a cluster; None where they are no target, or a target as all others are.
FindKubelets: TypeAlias = Callable[[str], Kubelets | None]


def no_kubelets(_cluster: str) -> None:
    """Know of none."""


def admitted(request: Request, kubelets: Kubelets, node: str, relay: Relay) -> Outcome | Deferred[Outcome]:
    """Return *relay*, which leads to a node's kubelet, once its cluster says that the user may go there.

    :raise TowerError: also through the Deferred: he may not.
    """
    identity: Any = request.identity
    path = request.target[len(relay.prefix) :].partition(b"?")[0]
    asking = kubelets.authorize(
        identity.user, identity.groups, node, request.method, path, upgrade=bool(request.fields.upgrade)
    )
    if asking is None:
        return relay
    return asking.addCallback(lambda _: relay)
