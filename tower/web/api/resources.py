"""The table of resources of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from tower.clusters import Clusters
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.cluster_events import ClusterEvents
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.clusters.v1_tokens import V1Tokens
from tower.rotation.rotations import Rotations
from tower.store import IStore
from tower.tunnels import Tunnels
from tower.web.api import discovery
from tower.web.api.across_clusters import AcrossClusters, AnyJoinTokens
from tower.web.api.agents import AGENT_COLUMNS, AgentsApi, rows_by_tunnel
from tower.web.api.clusters import ClusterApi, Subresource
from tower.web.api.credentials import CredentialsApi
from tower.web.api.dispatch import Api
from tower.web.api.events import EventsApi
from tower.web.api.issue import AdminKubeconfigsApi, JoinTokensApi, KubeconfigsApi
from tower.web.api.issuer import Issuer
from tower.web.api.nodes import HOST_KEY_COLUMNS, NODE_COLUMNS, HostKeysApi, NodesApi
from tower.web.api.reviews import ReviewsApi
from tower.web.api.rotations import RotationsApi
from tower.web.api.writes.cluster_writer import CheckFiles


def tower_api(
    store: IStore,
    clusters: Clusters,
    credentials: Credentials,
    tokens: JoinTokens,
    v1_tokens: V1Tokens,
    tunnels: Tunnels,
    issuer: Issuer,
    clock: IReactorTime,
    accesses: MemberCredentials | None = None,
    ssh_status: Callable[[str], SSHStatus | None] = lambda _: None,
    *,
    check_files: CheckFiles,
    events: ClusterEvents,
    rotations: Rotations,
    agent_keys: AgentKeys,
) -> Api:
    """Return the API; for the parameters see `ClusterApi`.  *clock* counts from the epoch."""
    agents = AgentsApi(tokens, v1_tokens, tunnels, clock, agent_keys)
    join_tokens = JoinTokensApi(issuer)
    nodes = NodesApi(ssh_status, clock)
    host_keys = HostKeysApi(store, clock)
    reviews = ReviewsApi()
    below: dict[str, Subresource] = {
        "agents": agents,
        "jointokens": join_tokens,
        "kubeconfigs": KubeconfigsApi(issuer),
        "nodes": nodes,
        "hostkeys": host_keys,
    }

    def version() -> int:
        return store.version

    return Api(
        {
            "clusters": ClusterApi(
                clusters,
                tunnels,
                version,
                issuer.published,
                clock,
                below,
                accesses=accesses,
                ssh_status=ssh_status,
                check_files=check_files,
            ),
            "kubeconfigs": AdminKubeconfigsApi(issuer),
            "credentials": CredentialsApi(store, credentials, clock),
            "agents": AcrossClusters(clusters, "Agent", agents, AGENT_COLUMNS, clock, rows_by_tunnel),
            "nodes": AcrossClusters(clusters, "Node", nodes, NODE_COLUMNS, clock),
            "hostkeys": AcrossClusters(clusters, "HostKey", host_keys, HOST_KEY_COLUMNS, clock),
            "jointokens": AnyJoinTokens(clusters, join_tokens),
            "rotations": RotationsApi(rotations, clock),
        },
        {
            discovery.CORE.group: EventsApi(discovery.CORE, events, version, clock),
            discovery.EVENTS.group: EventsApi(discovery.EVENTS, events, version, clock),
            discovery.AUTHENTICATION: reviews,
            discovery.AUTHORIZATION: reviews,
        },
    )
