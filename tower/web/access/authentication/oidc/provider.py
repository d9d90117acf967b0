"""The provider of one issuer: its discovery document and its keys, got in the background and kept."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.web.iweb import IAgent

from tower.cloud.http.exchange import CloudRequest, send
from tower.errors import PeerError, TowerError, one_line
from tower.http.verifying_agent import verifying_agent
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import RepeatingTask
from tower.web.access.authentication.oidc.issuer import IssuerSettings
from tower.web.access.authentication.oidc.key_set import KeySet, read_key_set
from tower.web.access.authentication.oidc.tokens import parsed_json

#: Pause after a failed attempt, as kube-apiserver's, s.
RETRY = 10.0

#: Age at which keys are got again, so that removed ones end, s.
REFRESH = 600.0

#: Shortest interval of attempts for tokens with an unknown key, s.
PAUSE = 5.0

#: Longest time for one document, and for an attempt, s.
TIMEOUT = 10.0
ATTEMPT = 25.0

#: Longest document, B.
DOCUMENT_LIMIT = 1 << 20

#: Most requests that wait for keys at a time.
WAITING_LIMIT = 500

#: Returns the JSON value at a URL.
Fetch: TypeAlias = Callable[[str], Awaitable[Any]]


#: OpenSSL's error for a certificate of an unknown CA.
_UNVERIFIED = "certificate verify failed"


class BadProvider(PeerError):
    """The provider's documents cannot be got or used."""


class Documents(Protocol):
    """Gets the documents of an issuer."""

    def __call__(self, issuer: IssuerSettings) -> Fetch:
        """Return the function for *issuer*."""


class ProviderDocuments:
    """Gets documents over verified TLS, by a new connection each; redirects are not followed.

    :param agent: None: Tower's verifying one with the issuer's CAs.
    """

    def __init__(self, reactor: IReactor, agent: IAgent | None = None) -> None:
        self._reactor = reactor
        self._agent = agent

    def __call__(self, issuer: IssuerSettings) -> Fetch:
        """Return the function for *issuer*."""

        async def fetch(url: str) -> Any:
            agent = self._agent or verifying_agent(
                self._reactor, TIMEOUT, issuer.ca_file, authorities=issuer.authorities
            )
            request = CloudRequest("GET", url, {"accept": "application/json"})
            answer = await send(self._reactor, agent, request, TIMEOUT)
            if answer.code != 200:
                more = " (redirects are not followed)" if 300 <= answer.code < 400 else ""
                raise BadProvider(f"{answer.url} answered {answer.code}{more}")
            if len(answer.body) > DOCUMENT_LIMIT:
                raise BadProvider(f"{answer.url} answered more than {DOCUMENT_LIMIT} B")
            try:
                return parsed_json(answer.body)
            except ValueError:
                raise answer.not_json() from None

        return fetch


class OIDCProvider(MultiService):
    """Keeps the keys of one issuer.

    :param documents: gets JSON documents of the provider.
    :param changed: called when the keys were replaced.
    :ivar keys: None: not got yet.
    :ivar document: the discovery document; empty: not got yet.
    :ivar problem: of the last attempt; empty: it succeeded, or there was none yet.
    """

    _log = Logger()

    def __init__(
        self, issuer: IssuerSettings, clock: IReactorTime, documents: Fetch, changed: Callable[[], object]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.issuer = issuer
        self.fingerprint = issuer.fingerprint
        self.keys: KeySet | None = None
        self.document: Mapping[str, Any] = {}
        self.problem = ""
        self._clock = clock
        self._fetch = documents
        self._changed = changed
        self._until = -math.inf  # when the keys are got again
        self._wanted = False
        self._waiting: set[Deferred[None]] = set()
        self._task = RepeatingTask(clock, RETRY, self._work, ATTEMPT)
        self._task.setServiceParent(self)  # type: ignore[no-untyped-call]

    def newer_keys(self) -> Deferred[None]:
        """Get the keys again, at most every `PAUSE` s; fire when that was tried.

        All callers wait for the same attempt, and too many callers do not wait.
        """
        if len(self._waiting) >= WAITING_LIMIT or not self.running:
            return succeed(None)
        self._wanted = True
        waiting: Deferred[None] = Deferred(self._waiting.discard)
        self._waiting.add(waiting)
        self._task.run_soon_at_most_every(PAUSE)
        return waiting

    def stopService(self) -> Deferred[None]:
        """Stop, and end the wait of all callers."""
        stopping: Deferred[None] = super().stopService()  # type: ignore[no-untyped-call]
        self._wake()
        return stopping

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for each in waiting:
            each.callback(None)

    async def _work(self) -> None:
        if not self._wanted and self._clock.seconds() < self._until:
            return
        self._wanted = False
        problem = f"no answer within {ATTEMPT:g} s"
        try:
            keys = await self._get()
            problem = ""
        except TowerError as e:
            problem = _with_cure(one_line(e))
        else:
            self._until = self._clock.seconds() + REFRESH
        finally:
            if self.running:
                self._note(problem)
            if not problem and keys != self.keys:
                self.keys = keys
                self._changed()
            self._wake()

    async def _get(self) -> KeySet:
        url = self.issuer.keys_url or await self._discovered()
        try:
            return read_key_set(await self._fetch(url))
        except ValueError as e:
            raise BadProvider(f"the keys at {url[:200]} cannot be used: {e}") from None

    async def _discovered(self) -> str:
        """Return the URL of the keys in the discovery document."""
        issuer = self.issuer
        document = await self._fetch(issuer.document_url)
        if not isinstance(document, dict):
            raise BadProvider(f"{issuer.document_url} is not a discovery document")
        if document.get("issuer") != issuer.url:
            raise BadProvider(
                f"oidc: issuer did not match the issuer returned by provider, expected {issuer.url!r} "
                f"got {str(document.get('issuer'))[:200]!r}"
            )
        url = document.get("jwks_uri")
        if not isinstance(url, str) or not url.startswith("https://"):
            raise BadProvider(f"{issuer.document_url} has no jwks_uri with https")
        self.document = document
        return url

    def _note(self, problem: str) -> None:
        """Log a new problem, and its end."""
        if problem and problem != self.problem:
            self._log.warn(
                "OIDC issuer {url}: {problem}; it is tried again every {retry:g} s{state}",
                url=self.issuer.url,
                problem=problem,
                retry=RETRY,
                state="" if self.keys is None else ", and the keys in use remain",
            )
        elif not problem and (self.keys is None or self.problem):
            self._log.info("OIDC issuer {url}: its keys are in use", url=self.issuer.url)
        self.problem = problem


def _with_cure(problem: str) -> str:
    if not problem.endswith(_UNVERIFIED):
        return problem
    return (
        f"{problem}: if its CA is your own, set --oidc-ca-file, or certificateAuthority in "
        "--authentication-config"
    )
