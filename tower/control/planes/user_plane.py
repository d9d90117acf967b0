"""Users: their authentication, their entry into clusters, and their rights there, in one chain of filters."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any, Self

from attrs import frozen
from prometheus_client.registry import Collector
from twisted.application.service import Service

from tower.clusters.login.login_session import LoginSession
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.records import Records
from tower.control.front_door.followed_kubeconfigs import followed_kubeconfigs
from tower.control.front_door.logins import Logins
from tower.control.front_door.oidc_authentication import OIDCAuthentication
from tower.control.front_door.token_authentication import TokenAuthentication
from tower.control.front_door.user_authentication import UserAuthentication
from tower.control.front_door.user_authorization import UserAuthorization
from tower.control.metrics.authentication_metrics import AuthenticationCollector
from tower.control.metrics.oidc_metrics import OIDCCollector
from tower.control.planes.runtime import RecordFollower, Runtime
from tower.control.planes.trust_plane import TrustPlane
from tower.options.followed_file import PERIOD as FILES_PERIOD
from tower.options.followed_file import Followed
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.authentication.attempts import Attempts
from tower.web.access.authentication.tower_credentials import CredentialAuthenticator
from tower.web.access.authentication.union import AuthenticatorUnion
from tower.web.access.authorization.cluster_entry import ClusterEntry
from tower.web.access.authorization.entry_sweep import PERIOD as ENTRY_PERIOD
from tower.web.access.authorization.entry_sweep import EntrySweep
from tower.web.access.authorization.own_rbac import OwnRbac
from tower.web.access.door_tokens import DoorTokens
from tower.web.access.filters import FilterChain, authentication_chain, user_chain
from tower.web.access.sessions import SWEEP_PERIOD as SESSIONS_PERIOD
from tower.web.access.sessions import Sessions
from tower.web.ports.door_reviews import DoorReviews


@frozen(eq=False)
class UserPlane:
    """Filters that decide on the requests of users.

    :ivar chain: all filters of a request, in order.
    :ivar authentication: the first of them only.
    :ivar generation: changes with each record or file that a decision depends on.
    :ivar reviews: answers requests of users about themselves at the clusters.
    :ivar files: those that authentication and authorization follow, and the kubeconfigs of all options.
    :ivar is_for_door: returns whether a bearer token is for the front door, and not for a cluster.
    """

    chain: FilterChain
    authentication: FilterChain
    generation: AdmissionGeneration
    sessions: Sessions
    reviews: DoorReviews
    policies: PolicyIndex
    authorization: UserAuthorization
    logins: Logins
    metrics: Collector
    files: Sequence[Followed[Any, Any]]
    services: Sequence[Service]
    followers: Sequence[RecordFollower]
    _oidc: OIDCAuthentication
    _tokens: TokenAuthentication

    @classmethod
    def of(cls, runtime: Runtime, records: Records, trust: TrustPlane) -> Self:
        """Return the plane.

        :raise ConfigurationError: a file cannot be used; names option and file.
        """
        options, reactor, epoch = runtime.options, runtime.reactor, runtime.epoch
        reloads, clusters = runtime.reloads, records.clusters

        # Authentication: upstream's order, Tower's own credentials after other CAs
        foreign = UserAuthentication.of(options, trust.keys.users, trust.serving, epoch, reloads)
        oidc = OIDCAuthentication(options, reactor, epoch, reloads)
        tokens = TokenAuthentication(options, reactor, epoch, reloads)
        policies = PolicyIndex(records.policies)
        logins = Logins(
            options.login,
            reactor,
            records,
            oidc.methods,
            policies,
            epoch,
            lambda: trust.named.kubeconfig_authority(trust.keys.authority.pem),
            lambda: trust.serving.names,
        )
        attempts = Attempts(perf_counter)
        authenticator = AuthenticatorUnion(
            *foreign.by_certificate,
            CredentialAuthenticator(records.credentials, runtime.day),
            *logins.methods,
            *foreign.by_token,
            *tokens.accounts,
            *oidc.methods,
            *tokens.reviewers,
            anonymous=oidc.anonymous,
            attempts=attempts,
        )
        sessions = Sessions(authenticator)
        logins.in_use = lambda: sessions.credentials

        # Authorization: entry into a cluster, then the modes
        entry = ClusterEntry(policies, epoch)
        sweep = EntrySweep(records.store, sessions, entry, clusters.get, reactor, epoch)
        rbac = OwnRbac(records.rbac)
        authorization = UserAuthorization(options, reactor, reloads, rbac)

        # The chain, and what ends its decisions
        front_proxies = options.front_proxy_fields
        chain = user_chain(
            authenticator,
            clusters.get,
            front_proxies,
            entry,
            authorization.rules,
            authorization.own_rules,
            authorization.impersonation,
            DoorTokens((*foreign.by_token, *tokens.accounts, *oidc.methods)),
        )
        kubeconfigs = followed_kubeconfigs(options)
        generation = AdmissionGeneration(records.store, epoch, chain.rules)

        def access_changed() -> None:
            generation.advance()
            sessions.sweep()

        def login_changed(session: LoginSession, has_ended: bool) -> None:
            if has_ended:
                sessions.cut("the login session has ended", credential=session.id)
            access_changed()

        foreign.on_change = oidc.on_change = tokens.on_change = access_changed
        logins.on_change = login_changed
        return cls(
            chain,
            authentication_chain(authenticator, front_proxies),
            generation,
            sessions,
            DoorReviews(entry, clusters.get, authorization.rules),
            policies,
            authorization,
            logins,
            AuthenticationCollector(
                attempts,
                tokens.reviewers,
                tokens.clients,
                oidc.file_reloads,
                [*logins.metrics, *map(OIDCCollector, oidc.methods)],
            ),
            [*foreign.files, *oidc.files, *tokens.files, *authorization.files, *kubeconfigs],
            [
                *oidc.services,
                tokens,
                *logins.services,
                authorization,
                *runtime.every(SESSIONS_PERIOD, sessions.sweep),
                *runtime.every(FILES_PERIOD, foreign.check_files, *(each.check for each in kubeconfigs)),
                *runtime.every(ENTRY_PERIOD, sweep.check),
            ],
            [generation, sweep, policies, rbac],
            oidc,
            tokens,
        )

    def is_for_door(self, bearer: bytes) -> bool:
        """See `tower.web.ports.cluster_ports.TokenClusterPort`."""
        return self._oidc.reads(bearer) or self._tokens.reads(bearer)
