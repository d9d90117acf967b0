"""The method of authentication ``oidc`` of a proxy, and the file that configures it."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service

from tower.control.front_door.oidc_options import OIDCOptions
from tower.options.followed_file import PERIOD, FollowedFile
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.oidc.configuration import AuthenticationConfiguration
from tower.web.access.authentication.oidc.method import OIDCMethod
from tower.web.access.authentication.oidc.provider import ProviderDocuments


class ConfigurationReloads:
    """Counts the changes of the file of ``--authentication-config`` that were used or could not be.

    :param epoch: returns Unix time, s.
    :ivar counts: by ``success`` and ``failure``; `times` of the last ones, s since the epoch.
    :ivar digest: of the content in use.
    """

    def __init__(self, epoch: Callable[[], float], digest: str) -> None:
        self._epoch = epoch
        self.counts = {"success": 0, "failure": 0}
        self.times: dict[str, float] = {}
        self.digest = digest

    def count(self, status: str) -> None:
        """Count one."""
        self.counts[status] += 1
        self.times[status] = self._epoch()


class OIDCAuthentication:
    """The method, if options configure it.

    :param epoch: returns Unix time, s.
    :raise ConfigurationError: the file cannot be used.
    :ivar methods: none or one.
    :ivar anonymous: accepts requests without a credential; None: they are rejected.
    :ivar services: needed by the method.
    :ivar file_reloads: those of the file; None: there is no file.
    :ivar files: none or one.
    :ivar on_change: called when users may have lost their access.
    """

    def __init__(
        self, options: OIDCOptions, reactor: IReactor, epoch: Callable[[], float], reloads: Reloads
    ) -> None:
        self.methods: tuple[OIDCMethod, ...] = ()
        self.files: tuple[FollowedFile[AuthenticationConfiguration], ...] = ()
        self.services: tuple[Service, ...] = ()
        self.file_reloads: ConfigurationReloads | None = None
        self.on_change: Callable[[], object] = lambda: None
        self.anonymous = AnonymousAuthenticator() if options["anonymous-auth"] else None
        path, issuer = options["authentication-config"], options.issuer
        if path is None and issuer is None:
            return
        method = OIDCMethod((), reactor, epoch, ProviderDocuments(reactor))
        self.methods = (method,)
        self.services = (method,)
        method.on_change = self._changed
        if issuer is not None:
            method.use((issuer,))
        if path is None:
            return
        first: list[AuthenticationConfiguration] = []

        def parse(data: bytes) -> AuthenticationConfiguration:
            found = options.read_configuration(data)
            if first and (found.has_anonymous, found.anonymous) != (
                first[0].has_anonymous,
                first[0].anonymous,
            ):
                raise ValueError(
                    "invalid authentication configuration: anonymous: Forbidden: changed from initial "
                    "configuration file: restart the proxy"
                )
            return found

        file = FollowedFile("authentication-config", path, parse)
        self.files = (file,)
        first.append(file.value)
        if file.value.has_anonymous:
            paths = file.value.anonymous
            encoded = None if paths is None else [each.encode() for each in paths]
            self.anonymous = None if encoded is None else AnonymousAuthenticator(frozenset(encoded))
        self.file_reloads = ConfigurationReloads(epoch, file.value.digest)
        self._follow(method, file, self.file_reloads)
        reloads.add(file.option, file.reload)
        self.services = (method, periodic(reactor, PERIOD, file.check))

    def reads(self, bearer: bytes) -> bool:
        """Return whether a token names one of the issuers; it is not verified."""
        return any(method.reads(bearer) for method in self.methods)

    def _changed(self) -> None:
        self.on_change()

    def _follow(
        self,
        method: OIDCMethod,
        file: FollowedFile[AuthenticationConfiguration],
        file_reloads: ConfigurationReloads,
    ) -> None:
        def changed() -> None:
            method.use(file.value.issuers)
            file_reloads.count("success")
            file_reloads.digest = file.value.digest
            self._changed()

        method.use(file.value.issuers)
        file.on_change = changed
        file.on_failure = lambda: file_reloads.count("failure")
