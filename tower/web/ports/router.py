"""The router of the front door: the destination of a request, by its path.

It only interprets Tower's own part of a path, byte for byte.  The rest after `/clusters/<name>` belongs
to the cluster, and after `/clusters/<name>/targets/<target>` to that target.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from tower.kube.status import StatusError
from tower.nodes.kubelets import Kubelets
from tower.tunnels.targets import KUBERNETES
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.filters import FilterChain
from tower.web.api import discovery
from tower.web.gateway.raw_streams import TOWER_STREAM
from tower.web.gateway.request import Request
from tower.web.outcome import HandOver, Outcome, RawStream, Relay
from tower.web.ports.cluster_router import Answer, ClusterRoute, ClusterRouter, reviewed
from tower.web.ports.door_reviews import DoorReviews, is_review
from tower.web.ports.import_page import IMPORTS
from tower.web.ports.plain_port import TakeAgent, asks_for_agent

#: Maximum number of cached routes.
_MAX_ROUTES = 20_000

#: The name of the target.
KUBELET = "kubelet"

#: Path segment after the target: a node's name, or its address (IPv6 as in ``::1``).
NODE = re.compile(rb"/([:A-Za-z0-9](?:[-.:_A-Za-z0-9]{0,251}[:A-Za-z0-9])?)(?=[/?]|\Z)")

_CLUSTER = re.compile(rb"/clusters/([^/?]*)")
_NAME = re.compile(rb"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_TARGET = re.compile(rb"/targets/([a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?)")
_TO_TARGET = re.compile(_TARGET.pattern + rb"(?=[/?]|\Z)")
_KUBERNETES = frozenset(
    {b"api", b"apis", b"openapi", b"version", b"healthz", b"livez", b"readyz", b"metrics"}
)
_OWN_GROUP = b"/apis/" + discovery.GROUP.encode("ascii")

#: Returns the kubelets of a cluster; None if the cluster has no target of this kind.
FindKubelets: TypeAlias = Callable[[str], Kubelets | None]


def no_kubelets(_cluster: str) -> None:
    """Return None."""


class FrontDoor(ClusterRouter):
    """The router of the TLS port for users and agents: requests into clusters, and agents.

    :param authenticate: the chain that only authenticates.
    :param delegate: answers all other requests, by their path; see `tower.server.chain`.
    :param reviews: answers reviews of users' own rights in clusters; None: the clusters do.
    """

    def __init__(
        self,
        chain: FilterChain,
        authenticate: FilterChain,
        delegate: Callable[[Request, bytes], Answer],
        take_agent: TakeAgent,
        generation: AdmissionGeneration,
        *,
        kubelets: FindKubelets = no_kubelets,
        reviews: DoorReviews | None = None,
    ) -> None:
        super().__init__(chain, generation, reviews)
        self._authenticate = authenticate
        self._delegate = delegate
        self._agent = HandOver(take_agent)
        self._kubelets = kubelets
        self._routes: dict[bytes, ClusterRoute] = {}

    def _route(self, request: Request) -> Answer:
        target = request.target
        to_cluster = _CLUSTER.match(target)
        if to_cluster is not None:
            return self._to_cluster(request, to_cluster[1], to_cluster.end())
        path = request.path
        if asks_for_agent(request, path):
            return self._agent
        if _is_kubernetes(path) and (request.fields.bearer is not None or request.certificate is not None):
            return self._authenticate(request, "", lambda: self._by_credential(request, path))
        return self._own(request, path)

    def _by_credential(self, request: Request, path: bytes) -> Answer:
        """ClusterRoute a request without ``/clusters/<name>`` to the cluster of its credential.

        ``kubectl proxy``, and ``--raw`` up to kubectl 1.33, drop the path of the server's URL.  A credential
        is for one cluster only, so the cluster is unambiguous.
        """
        identity: Any = request.identity
        cluster: str = identity.cluster
        if not cluster:
            return self._own(request, path)
        route = ClusterRoute(cluster, b"", scope=b"/clusters/" + cluster.encode())
        request.destination = route.relay
        outcome = self._chain(request, cluster, route.end)
        if self._reviews is not None and is_review(request, route.relay):
            return reviewed(self._reviews, request, outcome)
        return outcome

    def _own(self, request: Request, path: bytes) -> Answer:
        """Answer a request to Tower itself."""
        if not path.startswith(IMPORTS):
            _plain(path)
        return self._delegate(request, path)

    def _to_cluster(self, request: Request, name: bytes, end: int) -> Answer:
        route = self._routes.get(name) or self._new_route(name)
        upgrade = request.fields.upgrade
        if upgrade and upgrade.lower() == TOWER_STREAM:
            match = _TARGET.fullmatch(request.target, end)
            request.destination = None if match is None else RawStream(route.name, match[1].decode("ascii"))
            return self._chain(request, route.name, lambda: _raw_stream(route.name, request.destination))
        if request.target.startswith(b"/targets/", end):
            return self._to_target(request, route.name, end)
        return self._follow(request, route)

    def _to_target(self, request: Request, cluster: str, end: int) -> Answer:
        match = _TO_TARGET.match(request.target, end)
        target = match[1].decode("ascii") if match is not None else ""
        if match is None or target == KUBERNETES:
            return self._chain(request, cluster, lambda: _no_target(cluster, target))
        if target == KUBELET and (kubelets := self._kubelets(cluster)) is not None:
            return self._to_kubelet(request, cluster, kubelets, match.end())
        prefix = request.target[: match.end()]
        route = self._routes.get(prefix) or self._keep(prefix, ClusterRoute(cluster, prefix, target, prefix))
        return self._follow(request, route)

    def _to_kubelet(self, request: Request, cluster: str, kubelets: Kubelets, end: int) -> Answer:
        match = NODE.match(request.target, end)
        if match is None:
            return self._chain(request, cluster, lambda: _no_node(cluster))
        node, prefix = match[1].decode("ascii"), request.target[: match.end()]
        route = self._routes.get(prefix) or self._keep(
            prefix, ClusterRoute(cluster, prefix, f"{KUBELET}/{node}", prefix)
        )
        request.destination = route.relay
        return self._chain(request, cluster, lambda: _authorized(request, kubelets, node, route.relay))

    def _new_route(self, name: bytes) -> ClusterRoute:
        _plain(name)
        if _NAME.fullmatch(name) is None:
            raise StatusError(404, f"there is no cluster {name.decode('latin-1')!r}: the name is invalid")
        prefix = b"/clusters/" + name
        return self._keep(name, ClusterRoute(name.decode("ascii"), prefix, scope=prefix))

    def _keep(self, key: bytes, route: ClusterRoute) -> ClusterRoute:
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        self._routes[key] = route
        return route


def _is_kubernetes(path: bytes) -> bool:
    """Return whether *path* is one of every Kubernetes API server, except those of Tower's own group."""
    if path == _OWN_GROUP or path.startswith(_OWN_GROUP + b"/"):
        return False
    return path[1:].partition(b"/")[0] in _KUBERNETES


def _raw_stream(cluster: str, stream: Outcome | None) -> Outcome:
    if not isinstance(stream, RawStream):
        raise StatusError(400, f"open a raw stream with GET /clusters/{cluster}/targets/TARGET")
    if stream.target == KUBERNETES:
        # the agent trusts the identity that such a stream carries
        raise StatusError(
            403,
            f"the target {stream.target} does not support raw streams: send requests to /clusters/{cluster}/",
        )
    return stream


def _no_target(cluster: str, target: str) -> Outcome:
    if target == KUBERNETES:
        raise StatusError(
            403, f"the target {target} is the API server: send requests to /clusters/{cluster}/"
        )
    raise StatusError(404, f"the target name is invalid: targets are at /clusters/{cluster}/targets/TARGET/")


def _no_node(cluster: str) -> Outcome:
    raise StatusError(404, f"kubelets are at /clusters/{cluster}/targets/{KUBELET}/NODE/")


def _plain(path: bytes) -> None:
    """Reject a path that another program might interpret differently."""
    if b"%" in path or b"\\" in path or b"//" in path:
        raise StatusError(
            400, "escapes, backslashes and empty segments are not allowed in this part of a path", close=True
        )


def _authorized(request: Request, kubelets: Kubelets, node: str, relay: Relay) -> Outcome | Deferred[Outcome]:
    """Return *relay*, which is to a node's kubelet, once the cluster has authorized the user.

    :raise TowerError: also through the Deferred: the user is not authorized.
    """
    identity = request.identity
    assert identity is not None, "the request was authenticated"
    path, known = request.target[len(relay.prefix) :].partition(b"?")[0], identity.in_member
    asking = kubelets.authorize(
        known.name, known.groups, node, request.method, path, upgrade=bool(request.fields.upgrade)
    )
    if asking is None:
        return relay
    return asking.addCallback(lambda _: relay)
