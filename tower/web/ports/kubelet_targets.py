"""The target ``kubelet`` of a cluster: one kubelet for each node, each with its own authorization."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

from twisted.internet.defer import Deferred

from tower.nodes.kubelets import Kubelets
from tower.web.gateway.request import Request
from tower.web.outcome import Outcome, Relay

#: The name of the target.
KUBELET = "kubelet"

#: Path segment after the target: a node's name, or its address (IPv6 as in ``::1``).
NODE = re.compile(rb"/([:A-Za-z0-9](?:[-.:_A-Za-z0-9]{0,251}[:A-Za-z0-9])?)(?=[/?]|\Z)")


#: Returns the kubelets of a cluster; None if the cluster has no target of this kind.
FindKubelets: TypeAlias = Callable[[str], Kubelets | None]


def no_kubelets(_cluster: str) -> None:
    """Return None."""


def admitted(request: Request, kubelets: Kubelets, node: str, relay: Relay) -> Outcome | Deferred[Outcome]:
    """Return *relay*, which is to a node's kubelet, once the cluster has authorized the user.

    :raise TowerError: also through the Deferred: the user is not authorized.
    """
    identity = request.identity
    assert identity is not None, "the request was authenticated"
    path = request.target[len(relay.prefix) :].partition(b"?")[0]
    asking = kubelets.authorize(
        identity.user, identity.groups, node, request.method, path, upgrade=bool(request.fields.upgrade)
    )
    if asking is None:
        return relay
    return asking.addCallback(lambda _: relay)
