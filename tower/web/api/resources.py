"""The table of resources of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from tower.clusters.login.login_session import LoginSession
from tower.clusters.node_status import SSHStatus
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.records import Records
from tower.rotation.rotations import Rotations
from tower.tunnels import Tunnels
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.access.authorization.own_rights import OwnRights
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
from tower.web.api.policies.access_reviews import AccessReviewsApi
from tower.web.api.policies.policies_api import AccessPoliciesApi
from tower.web.api.policies.policy_preview import PolicyPreview
from tower.web.api.policies.rbac_api import RbacApi
from tower.web.api.reviews import ReviewsApi
from tower.web.api.rotations import RotationsApi
from tower.web.api.watch import WatchLimits
from tower.web.api.writes.cluster_writer import CheckFiles
from tower.web.login.sessions_api import LoginSessionsApi


def tower_api(
    records: Records,
    tunnels: Tunnels,
    issuer: Issuer,
    clock: IReactorTime,
    ssh_status: Callable[[str], SSHStatus | None],
    check_files: CheckFiles,
    rotations: Rotations,
    policies: PolicyIndex,
    rights: OwnRights,
    watch_limits: WatchLimits | None = None,
    rules: ModeAuthorization | None = None,
    revoke: Callable[[LoginSession], object] = lambda _: None,
) -> Api:
    """Return the API; for the parameters see `ClusterApi` and `LoginSessionsApi`.

    *clock* counts from the epoch.
    """
    limits = watch_limits or WatchLimits()
    store, clusters, events = records.store, records.clusters, records.events
    agents = AgentsApi(records.tokens, records.v1_tokens, tunnels, clock, records.agent_keys)
    join_tokens = JoinTokensApi(issuer)
    nodes = NodesApi(ssh_status, clock)
    host_keys = HostKeysApi(store, clock)
    reviews = ReviewsApi(rights)
    below: dict[str, Subresource] = {
        "agents": agents,
        "jointokens": join_tokens,
        "kubeconfigs": KubeconfigsApi(issuer),
        "trustedcallers": KubeconfigsApi(issuer, "trusted-caller"),
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
                accesses=records.member_credentials,
                ssh_status=ssh_status,
                check_files=check_files,
                rights=rights,
                limits=limits,
            ),
            "kubeconfigs": AdminKubeconfigsApi(issuer),
            "credentials": CredentialsApi(store, records.credentials, clusters, clock, rights),
            "agents": AcrossClusters(clusters, "Agent", agents, AGENT_COLUMNS, clock, rows_by_tunnel),
            "nodes": AcrossClusters(clusters, "Node", nodes, NODE_COLUMNS, clock),
            "hostkeys": AcrossClusters(clusters, "HostKey", host_keys, HOST_KEY_COLUMNS, clock),
            "jointokens": AnyJoinTokens(clusters, join_tokens, records.tokens, clock),
            "rotations": RotationsApi(rotations, clock),
            "accesspolicies": AccessPoliciesApi(
                records.policies, version, clock, PolicyPreview(policies, clusters, clock), limits, rights
            ),
            "accessreviews": AccessReviewsApi(clusters, records.credentials, policies, clock, rules),
            "loginsessions": LoginSessionsApi(records.login_sessions, clock, revoke),
        },
        {
            discovery.CORE.group: EventsApi(discovery.CORE, clusters, events, version, clock, limits),
            discovery.EVENTS.group: EventsApi(discovery.EVENTS, clusters, events, version, clock, limits),
            discovery.AUTHENTICATION: reviews,
            discovery.AUTHORIZATION: reviews,
            discovery.RBAC.group: RbacApi(records.rbac, rights, version, clock, limits),
        },
    )
