"""The table of resources of Tower's own API."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from tower.clusters import Clusters
from tower.clusters.agent_keys import AgentKeys
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.node_status import SSHStatus
from tower.clusters.v1_tokens import V1Tokens
from tower.rotation.rotations import Rotations
from tower.store import IStore
from tower.tunnels import Tunnels
from tower.web.api.agents import AgentsApi
from tower.web.api.cluster_writer import CheckFiles
from tower.web.api.clusters import ClusterApi, Subresource
from tower.web.api.credentials import CredentialsApi
from tower.web.api.dispatch import Api
from tower.web.api.issue import AdminKubeconfigsApi, JoinTokensApi, KubeconfigsApi
from tower.web.api.issuer import Issuer
from tower.web.api.nodes import HostKeysApi, NodesApi
from tower.web.api.rotations import RotationsApi


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
    rotations: Rotations,
    agent_keys: AgentKeys,
) -> Api:
    """Return the API; for the parameters see `ClusterApi`.  *clock* counts from the epoch."""
    below: dict[str, Subresource] = {
        "agents": AgentsApi(tokens, v1_tokens, tunnels, clock, agent_keys),
        "jointokens": JoinTokensApi(issuer),
        "kubeconfigs": KubeconfigsApi(issuer),
        "nodes": NodesApi(ssh_status, clock),
        "hostkeys": HostKeysApi(store, clock),
    }
    return Api(
        {
            "clusters": ClusterApi(
                clusters,
                tunnels,
                lambda: store.version,
                issuer.published,
                clock,
                below,
                accesses=accesses,
                ssh_status=ssh_status,
                check_files=check_files,
            ),
            "kubeconfigs": AdminKubeconfigsApi(issuer),
            "credentials": CredentialsApi(store, credentials, clock),
            "rotations": RotationsApi(rotations, clock),
        }
    )
