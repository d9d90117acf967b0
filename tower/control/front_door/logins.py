"""Logins of users: the method of authentication, its pages and its timers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from prometheus_client.registry import Collector
from twisted.application.service import Service

from tower.clusters.login.login_session import LoginSession
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.records import Records
from tower.control.metrics.login_metrics import LoginCollector
from tower.reactor.closing import Closing
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.web.access.authentication.login.confirmer import PERIOD, Confirmer
from tower.web.access.authentication.login.method import LoginMethod
from tower.web.access.authentication.login.revoker import Revoker
from tower.web.access.authentication.login.token_endpoint import TokenEndpoint
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.login.entered_clusters import EnteredClusters
from tower.web.login.issuer_authorities import IssuerAuthorities
from tower.web.login.login_pages import LoginPages
from tower.web.login.login_settings import LoginSettings
from tower.web.login.session_requests import SessionRequests


class Logins:
    """The parts, if there is an issuer of ID tokens.

    :param oidc: none or one method.
    :param seconds: returns the time, s since the epoch.
    :param authorities: returns the CAs that verify the front door for users, PEM; empty: those of their
        systems.
    :param names: returns the names of the front door; see `ServingCertificate.names`.
    :ivar methods: none or one.
    :ivar pages: None: users cannot log in.
    :ivar services: needed by them.
    :ivar metrics: of them.
    :ivar in_use: returns the IDs of the identities that have requests in progress.
    :ivar on_change: called with a session that has ended, or whose user may have changed.
    :ivar revoke: begins to revoke the refresh token of a session that has ended.
    """

    def __init__(
        self,
        settings: LoginSettings,
        reactor: IReactor,
        records: Records,
        oidc: Sequence[OIDCMethod],
        policies: PolicyIndex,
        seconds: Callable[[], float],
        authorities: Callable[[], bytes],
        names: Callable[[], Collection[str]],
    ) -> None:
        self.methods: tuple[LoginMethod, ...] = ()
        self.pages: LoginPages | None = None
        self.services: tuple[Service, ...] = ()
        self.metrics: tuple[Collector, ...] = ()
        self.in_use: Callable[[], Collection[str]] = tuple
        self.on_change: Callable[[LoginSession, bool], object] = lambda *_: None
        self.revoke: Callable[[LoginSession], object] = lambda _: None
        for method in oidc:
            self._enable(method, settings, reactor, records, policies, seconds, authorities, names)

    def _enable(
        self,
        oidc: OIDCMethod,
        settings: LoginSettings,
        reactor: IReactor,
        records: Records,
        policies: PolicyIndex,
        seconds: Callable[[], float],
        authorities: Callable[[], bytes],
        names: Callable[[], Collection[str]],
    ) -> None:
        def known(issuer: str) -> str:
            provider = oidc.provider(issuer)
            return "" if provider is None else provider.fingerprint

        if settings.is_exclusive:
            oidc.login_clients = settings.clients
        sessions = records.login_sessions
        requests = TokenEndpoint(reactor, secrets=settings.secrets)
        revoker = Revoker(sessions, oidc, settings.client_of, requests)
        confirmer = Confirmer(
            sessions, oidc, settings.client_of, requests, revoker.revoke, self._in_use, seconds, reactor
        )
        clusters = EnteredClusters(records.clusters, policies, reactor, seconds)
        beginning = SessionRequests(sessions, confirmer, revoker, oidc, clusters, settings, seconds, names)
        self.methods = (LoginMethod(sessions, confirmer, known, seconds),)
        self.pages = LoginPages(
            beginning, clusters, settings, lambda: oidc.issuers, authorities, IssuerAuthorities(seconds)
        )
        self.metrics = (LoginCollector(sessions, confirmer),)
        self.services = (
            Closing(confirmer.stop),
            Closing(revoker.stop),
            periodic(reactor, PERIOD, confirmer.check),
        )
        sessions.watch(self._changed)
        self.revoke = revoker.revoke

    def _in_use(self) -> Collection[str]:
        return self.in_use()

    def _changed(self, session: LoginSession, has_ended: bool) -> None:
        self.on_change(session, has_ended)
