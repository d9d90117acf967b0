"""All records of a proxy."""

from __future__ import annotations

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters.agent_keys import AgentKeys
from tower.clusters.cluster_events import ClusterEvents
from tower.clusters.clusters import Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.login.login_sessions import LoginSessions
from tower.clusters.manifest_imports import ManifestImports
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.policies.access_policies import AccessPolicies
from tower.clusters.policies.rbac_objects import RbacObjects
from tower.clusters.ports.port_assignment import PortAssignment
from tower.clusters.v1_tokens import V1Tokens
from tower.store import IStore
from tower.trust.vault import Vault


@frozen
class Records:
    """The records in a store, by kind; each kind is described in its module."""

    store: IStore
    member_credentials: MemberCredentials
    clusters: Clusters
    port_assignment: PortAssignment
    credentials: Credentials
    tokens: JoinTokens
    imports: ManifestImports
    v1_tokens: V1Tokens
    agent_keys: AgentKeys
    events: ClusterEvents
    policies: AccessPolicies
    rbac: RbacObjects
    login_sessions: LoginSessions

    @classmethod
    def of(
        cls,
        store: IStore,
        vault: Vault,
        ports: range | None,
        clock: IReactorTime,
        max_ttl: float,
        quarantine: float = 0.0,
    ) -> Records:
        """Return the records in *store*.

        :param vault: encrypts the members' credentials and providers' refresh tokens.
        :param ports: those of clusters; None: clusters have no ports.
        :param clock: its ``seconds()`` are since the epoch.
        :param max_ttl: longest validity of users' credentials, s.
        :param quarantine: how long the port of a removed cluster is not assigned again, s.
        """
        member_credentials = MemberCredentials(store, vault)
        clusters = Clusters(store, ports, clock, member_credentials, quarantine)
        return cls(
            store,
            member_credentials,
            clusters,
            PortAssignment(store, clusters),
            Credentials(store, clock, max_ttl),
            JoinTokens(store, clock),
            ManifestImports(store, clock),
            V1Tokens(store, clock),
            AgentKeys(store, clock),
            ClusterEvents(store, clock),
            AccessPolicies(store, clock),
            RbacObjects(store, clock),
            LoginSessions(store, clock, vault),
        )

    def stop(self) -> None:
        """Stop to follow the store."""
        for each in (self.credentials, self.clusters, self.v1_tokens, self.login_sessions):
            each.stop()
