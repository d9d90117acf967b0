"""The methods of authentication for tokens of service accounts, reviewed tokens and anonymous users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import MultiService

from tower.control.front_door.token_options import TokenOptions
from tower.errors import ConfigurationError
from tower.kube.access.token_reviews import PATH
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.webhook_client import WebhookClient
from tower.options.followed_file import PERIOD, FollowedFile
from tower.reactor.closing import Closing
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads
from tower.web.access.authentication.account_keys import (
    AccountKeys,
    FileKeys,
    IssuerKeys,
    read_public_keys,
)
from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings
from tower.web.access.authentication.oidc.provider import OIDCProvider, ProviderDocuments
from tower.web.access.authentication.service_accounts import ServiceAccountAuthenticator
from tower.web.access.authentication.token_reviewer import Reviewing, TokenReviewer

_WEBHOOK = "authentication-token-webhook-config-file"
_DELEGATED = "authentication-kubeconfig"
_KEYS = "service-account-key-file"

#: Defaults of ``--authentication-token-webhook-cache-ttl``, s, and longest times for an answer, s.
WEBHOOK_TTL, DELEGATED_TTL = 120.0, 10.0
WEBHOOK_TIMEOUT, DELEGATED_TIMEOUT = 30.0, 10.0


class TokenAuthentication(MultiService):
    """The methods that options configure, and the services that they need.

    :param epoch: returns Unix time, s.
    :raise ConfigurationError: a file cannot be used; names option and file.
    :ivar accounts: none or one, before OpenID Connect, which may have to ask a provider.
    :ivar reviewers: the last methods.
    :ivar clients: of the reviewers, by method.
    :ivar files: those that the methods follow.
    :ivar on_change: called when users may have lost their access.
    """

    def __init__(
        self, options: TokenOptions, reactor: IReactor, epoch: Callable[[], float], reloads: Reloads
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._options, self._reactor, self._epoch, self._reloads = options, reactor, epoch, reloads
        self.on_change: Callable[[], object] = lambda: None
        self.files: Sequence[FollowedFile[Any]] = ()
        self.clients: dict[str, WebhookClient] = {}
        issuers = options.account_issuers
        self.accounts: Sequence[ServiceAccountAuthenticator] = ()
        if issuers:
            keys = self._file_keys() if options.account_key_files else self._issuer_keys(issuers)
            self.accounts = (ServiceAccountAuthenticator(issuers, options.account_audiences, keys, epoch),)
        self.reviewers: Sequence[TokenReviewer] = tuple(self._reviewers())

    def reads(self, bearer: bytes) -> bool:
        """Return whether a key for the tokens of service accounts has signed a token."""
        return any(method.reads(bearer) for method in self.accounts)

    def _changed(self) -> None:
        self.on_change()

    def _file_keys(self) -> AccountKeys:
        files = [FollowedFile(_KEYS, path, read_public_keys) for path in self._options.account_key_files]
        self.files = files
        for number, each in enumerate(files, 1):
            each.on_change = self._changed
            self._reloads.add(f"{_KEYS} {number}" if len(files) > 1 else _KEYS, each.reload)
            periodic(self._reactor, PERIOD, each.check).setServiceParent(self)
        return FileKeys(files)

    def _issuer_keys(self, issuers: Sequence[str]) -> AccountKeys:
        documents = ProviderDocuments(self._reactor)
        providers = {}
        for url in issuers:
            settings = IssuerSettings(
                url, (), ClaimSource("sub"), keys_url=self._options["service-account-jwks-uri"] or ""
            )
            providers[url] = OIDCProvider(settings, self._reactor, documents(settings), self._changed)
            providers[url].setServiceParent(self)  # type: ignore[no-untyped-call]
        return IssuerKeys(providers)

    def _reviewers(self) -> list[TokenReviewer]:
        options = self._options
        ttl = options["authentication-token-webhook-cache-ttl"]
        found = []
        if options[_WEBHOOK] is not None:
            reviewing = Reviewing(
                "webhook",
                "the authentication webhook",
                options["authentication-token-webhook-version"],
                options.account_audiences,
                WEBHOOK_TTL if ttl is None else ttl,
                WEBHOOK_TIMEOUT,
            )
            found.append(self._reviewer(reviewing, self._client(_WEBHOOK)))
        if options[_DELEGATED] is not None:
            reviewing = Reviewing(
                "delegated",
                "the API server of --authentication-kubeconfig",
                "v1",
                options["api-audiences"] or (),
                DELEGATED_TTL if ttl is None else ttl,
                DELEGATED_TIMEOUT,
            )
            found.append(self._reviewer(reviewing, self._client(_DELEGATED, PATH)))
        return found

    def _client(self, option: str, path: str = "") -> WebhookClient:
        try:
            config = RestConfig.from_kubeconfig(self._options[option], self._reactor)
        except ConfigurationError as e:
            raise ConfigurationError(f"--{option}: {e}") from e
        return WebhookClient(self._reactor, config, path=path)

    def _reviewer(self, reviewing: Reviewing, client: WebhookClient) -> TokenReviewer:
        self.clients[reviewing.method] = client
        Closing(client.close).setServiceParent(self)  # type: ignore[no-untyped-call]
        return TokenReviewer(client, reviewing, self._reactor, self._epoch)
