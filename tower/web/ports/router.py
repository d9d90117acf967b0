"""Where a request goes, by the port it came to and its path.

Only Tower's own part of a path is looked at, byte for byte; what follows `/clusters/<name>` is the cluster's,
and what follows `/clusters/<name>/targets/<target>` that target's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred

from tower.clusters.credentials import PREFIX
from tower.kube.status import StatusError
from tower.net.pipes import Pipe
from tower.tunnels.targets import KUBERNETES
from tower.web.access.admission_cache import AdmissionGeneration, CachedAdmission
from tower.web.access.authentication import ANYBODY
from tower.web.access.filters import FilterChain
from tower.web.api import discovery
from tower.web.gateway.request import Request
from tower.web.outcome import HandOver, Outcome, RawStream, Relay, Response
from tower.web.ports.kubelet_targets import KUBELET, NODE, FindKubelets, Kubelets, admitted, no_kubelets
from tower.web.ports.probes import (
    OK,
    PLAIN,
    PROBES,
    SSH_TUNNEL,
    Check,
    nothing_wrong,
    only_read,
    ssh_tunnel_check,
)

Answer: TypeAlias = "Outcome | Deferred[Outcome]"

TOWER_STREAM = b"tower-stream"
#: The subprotocols by which agents are known.
AGENT_PROTOCOLS = frozenset({b"tower-v2", b"kubesphere-v1"})

_CLUSTER = re.compile(rb"/clusters/([^/?]*)")
_NAME = re.compile(rb"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_TARGET = re.compile(rb"/targets/([a-z0-9](?:[-.a-z0-9]{0,61}[a-z0-9])?)")
_TO_TARGET = re.compile(_TARGET.pattern + rb"(?=[/?]|\Z)")
_KUBERNETES = frozenset(
    {b"api", b"apis", b"openapi", b"version", b"healthz", b"livez", b"readyz", b"metrics"}
)
_OWN_GROUP = b"/apis/" + discovery.GROUP.encode("ascii")
_API_ROOTS = (b"/api", b"/apis", b"/openapi")
_OWN_TOKEN = PREFIX.encode()

#: Gets an agent's connection and every byte of it so far.
TakeAgent: TypeAlias = Callable[[Pipe, bytes], None]


class _ClusterRouter:
    """What the routers of users' ports have in common: ways into clusters, through the chain."""

    def __init__(self, chain: FilterChain, rights: AdmissionGeneration) -> None:
        self._chain = chain
        self._rights = rights

    def __call__(self, request: Request) -> Answer:
        """Return where *request* goes: mostly where the last one of its connection went."""
        standing = request.channel.standing
        if standing is not None and standing.covers(request, self._rights):
            request.identity = standing.identity
            request.audit(standing.relay.cluster)
            return standing.relay
        return self._route(request)

    def _route(self, request: Request) -> Answer:
        raise NotImplementedError

    def _follow(self, request: Request, way: _Route) -> Answer:
        """Send *request* through the chain and on its way."""
        generation = self._rights.generation
        outcome = self._chain(request, way.name, way.end)
        if outcome is way.relay:  # every filter decided at once, so nothing changed in between
            request.channel.standing = CachedAdmission(request, way.relay, generation)
        return outcome


class FrontDoor(_ClusterRouter):
    """The router of the one TLS port for everything.

    :param who: finds out who asks, and no more.
    :param api: answers the requests to Tower's own API, for those who passed the chain.
    :param take_agent: gets the connections of agents.
    :param ready: says whether requests can be served; for `/readyz`.
    :param ssh_tunnel: for `/healthz/ssh-tunnel`.
    """

    def __init__(
        self,
        chain: FilterChain,
        who: FilterChain,
        api: Callable[[Request], Answer],
        take_agent: TakeAgent,
        rights: AdmissionGeneration,
        ready: Callable[[], bool] = lambda: True,
        *,
        ssh_tunnel: Check = nothing_wrong,
        kubelets: FindKubelets = no_kubelets,
    ) -> None:
        super().__init__(chain, rights)
        self._who = who
        self._api = api
        self._agent = HandOver(take_agent)
        self._ready = ready
        self._ssh_tunnel = ssh_tunnel
        self._kubelets = kubelets
        self._ways: dict[bytes, _Route] = {}

    def _route(self, request: Request) -> Answer:
        target = request.target
        to_cluster = _CLUSTER.match(target)
        if to_cluster is not None:
            return self._to_cluster(request, to_cluster[1], to_cluster.end())
        path = request.path
        if asks_for_agent(request, path):
            return self._agent
        if _is_kubernetes(path) and (request.fields.bearer is not None or request.certificate is not None):
            return self._who(request, "", lambda: self._at_home(request, path))
        return self._own(request, path)

    def _at_home(self, request: Request, path: bytes) -> Answer:
        """Send a request that leaves out ``/clusters/<name>`` to the cluster that its credential is for.

        ``kubectl proxy``, and ``--raw`` up to kubectl 1.33, drop the path of the server's URL.  A credential
        opens one cluster only, so there is no doubt which one is meant.
        """
        identity: Any = request.identity
        cluster: str = identity.credential.cluster
        if not cluster:
            return self._own(request, path)
        return self._chain(request, cluster, _Route(cluster, b"", scope=b"/clusters/" + cluster.encode()).end)

    def _own(self, request: Request, path: bytes) -> Answer:
        """Answer what is Tower's own."""
        _plain(path)
        if path in PROBES:
            return self._probe(request, path)
        if path == SSH_TUNNEL:
            return ssh_tunnel_check(request, self._ssh_tunnel)
        if path == b"/version":
            return _version(request)
        if path == b"/agent":
            raise StatusError(426, "agents connect here by WebSocket, with the subprotocol tower-v2")
        if any(path == root or path.startswith(root + b"/") for root in _API_ROOTS):
            return self._chain(request, "", lambda: self._api(request))
        raise _nothing_here(path)

    def _to_cluster(self, request: Request, name: bytes, end: int) -> Answer:
        way = self._ways.get(name) or self._new_way(name)
        upgrade = request.fields.upgrade
        if upgrade and upgrade.lower() == TOWER_STREAM:
            return self._chain(request, way.name, lambda: _raw_stream(way.name, request.target[end:]))
        if request.target.startswith(b"/targets/", end):
            return self._to_target(request, way.name, end)
        return self._follow(request, way)

    def _to_target(self, request: Request, cluster: str, end: int) -> Answer:
        match = _TO_TARGET.match(request.target, end)
        target = match[1].decode("ascii") if match is not None else ""
        if match is None or target == KUBERNETES:
            return self._chain(request, cluster, lambda: _no_target(cluster, target))
        if target == KUBELET and (kubelets := self._kubelets(cluster)) is not None:
            return self._to_kubelet(request, cluster, kubelets, match.end())
        prefix = request.target[: match.end()]
        way = self._ways.get(prefix) or self._keep(prefix, _Route(cluster, prefix, target, prefix))
        return self._follow(request, way)

    def _to_kubelet(self, request: Request, cluster: str, kubelets: Kubelets, end: int) -> Answer:
        match = NODE.match(request.target, end)
        if match is None:
            return self._chain(request, cluster, lambda: _no_node(cluster))
        node, prefix = match[1].decode("ascii"), request.target[: match.end()]
        way = self._ways.get(prefix) or self._keep(
            prefix, _Route(cluster, prefix, f"{KUBELET}/{node}", prefix)
        )
        return self._chain(request, cluster, lambda: admitted(request, kubelets, node, way.relay))

    def _new_way(self, name: bytes) -> _Route:
        _plain(name)
        if _NAME.fullmatch(name) is None:
            raise StatusError(404, f"there is no cluster {name.decode('latin-1')!r}: that is no name for one")
        prefix = b"/clusters/" + name
        return self._keep(name, _Route(name.decode("ascii"), prefix, scope=prefix))

    def _keep(self, key: bytes, way: _Route) -> _Route:
        if len(self._ways) >= _WAYS:
            self._ways.clear()
        self._ways[key] = way
        return way

    def _probe(self, request: Request, path: bytes) -> Response:
        only_read(request)
        if path == b"/readyz" and not self._ready():
            raise StatusError(503, "this proxy is not ready: it starts, or it stops")
        return OK


#: How many ways are kept made.
_WAYS = 20_000


class _Route:
    """The way to one cluster's API server, or to another of its targets, made once: most requests take it."""

    __slots__ = ("name", "relay")

    def __init__(self, name: str, prefix: bytes, target: str = KUBERNETES, scope: bytes = b"") -> None:
        self.name = name
        self.relay = Relay(name, prefix, target, plain=target != KUBERNETES, scope=scope)

    def end(self) -> Outcome:
        return self.relay


class ClusterPort(_ClusterRouter):
    """The router of a cluster's own port: everything is the cluster's."""

    def __init__(self, chain: FilterChain, cluster: str, rights: AdmissionGeneration) -> None:
        super().__init__(chain, rights)
        self._way = _Route(cluster, b"")

    def _route(self, request: Request) -> Answer:
        return self._follow(request, self._way)


class OpenClusterPort(ClusterPort):
    """The same while the port is open to everybody, as all of KubeSphere Tower's were.

    Who shows a token of Tower's is asked who he is, as ever.  Everybody else acts as the agent itself, if the
    agent lends its credential at all; see `tower.web.gateway.proxy_client`.
    """

    def __init__(self, chain: FilterChain, cluster: str, rights: AdmissionGeneration) -> None:
        super().__init__(chain, cluster, rights)
        self._open = Relay(cluster, plain=True)

    def __call__(self, request: Request) -> Answer:
        """Return where *request* goes."""
        bearer = request.fields.bearer
        if bearer is not None and bearer.startswith(_OWN_TOKEN):
            return super().__call__(request)
        request.identity = ANYBODY
        request.audit(self._open.cluster)
        return self._open


class PlainPort:
    """The router of the port without TLS: for agents and for health checks, and for nobody else.

    :param ssh_tunnel: for `/healthz/ssh-tunnel`.
    """

    def __init__(self, take_agent: TakeAgent, ssh_tunnel: Check = nothing_wrong) -> None:
        self._agent = HandOver(take_agent)
        self._ssh_tunnel = ssh_tunnel

    def __call__(self, request: Request) -> Answer:
        """Return where *request* goes."""
        path = request.path
        if asks_for_agent(request, path):
            return self._agent
        answer = PLAIN.get(path)
        if answer is not None:
            only_read(request)
            return answer
        if path == SSH_TUNNEL:
            return ssh_tunnel_check(request, self._ssh_tunnel)
        raise StatusError(
            404,
            "this port is for agents alone; clusters and Tower's API are served with TLS, on --secure-port",
        )


def asks_for_agent(request: Request, path: bytes) -> bool:
    """Say whether *request* is an agent's: a WebSocket at `/agent`, or by its exact subprotocol anywhere."""
    if request.fields.upgrade.lower() != b"websocket":
        return False
    return path == b"/agent" or request.fields.get(b"sec-websocket-protocol") in AGENT_PROTOCOLS


def _is_kubernetes(path: bytes) -> bool:
    """Say whether *path* is one of every Kubernetes API server, and not of Tower's own group."""
    if path == _OWN_GROUP or path.startswith(_OWN_GROUP + b"/"):
        return False
    return path[1:].partition(b"/")[0] in _KUBERNETES


def _raw_stream(cluster: str, rest: bytes) -> Outcome:
    match = _TARGET.fullmatch(rest)
    if match is None:
        raise StatusError(400, f"a raw stream is opened with GET /clusters/{cluster}/targets/TARGET")
    target = match[1].decode("ascii")
    if target == KUBERNETES:
        # the agent believes what comes on such a stream about who asks
        raise StatusError(
            403, f"the target {target} gives no raw streams: send requests to /clusters/{cluster}/"
        )
    return RawStream(cluster, target)


def _no_target(cluster: str, target: str) -> Outcome:
    if target == KUBERNETES:
        raise StatusError(
            403, f"the target {target} is the API server: send requests to /clusters/{cluster}/"
        )
    raise StatusError(404, f"a target is at /clusters/{cluster}/targets/TARGET/, and that is no name for one")


def _no_node(cluster: str) -> Outcome:
    raise StatusError(404, f"a kubelet is at /clusters/{cluster}/targets/{KUBELET}/NODE/")


def _plain(path: bytes) -> None:
    """Refuse what another program might read as another path."""
    if b"%" in path or b"\\" in path or b"//" in path:
        raise StatusError(400, "no escapes, backslashes or empty segments in this part of a path", close=True)


def _version(request: Request) -> Response:
    only_read(request)
    return Response.of_json(discovery.version_info())


def _nothing_here(path: bytes) -> StatusError:
    return StatusError(
        404,
        f"the server could not find the requested resource: nothing is at {path.decode('latin-1')}; "
        "clusters are below /clusters/, Tower's own API below /apis/",
        reason="NotFound",
    )
