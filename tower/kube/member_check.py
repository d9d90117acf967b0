"""Checks of a member: whether its API server answers, accepts the credential, and allows to impersonate.

The requests need no rights except those that every authenticated user has (``system:basic-user`` and
``system:public-info-viewer``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from attrs import define, evolve, field
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime

from tower.errors import ConfigurationError
from tower.escaping import VERSION_LIMIT, shortened
from tower.kube.client import APIClient, APIError, APIResponse
from tower.kube.connection_settings import CredentialFacts
from tower.kube.member_answers import (
    access_review,
    clock_offset,
    failed_checks,
    inside,
    is_good,
    listed,
    name_of,
    names_in,
    object_in,
    text_of,
)
from tower.kube.member_cures import LARGE_OFFSET, MemberTexts, found, is_about_dates
from tower.kube.member_failures import compared, late, misdated, skewed, slow, unreached
from tower.kube.member_status import API_SERVER, CREDENTIAL, IMPERSONATION, Check, CheckKind, MemberStatus
from tower.kube.timestamps import timestamp
from tower.reactor.timers import within

#: Time limit of one check, s.
TIMEOUT = 8.0

#: Duration of a request, s, from which on an unfinished check means a slow API server, not a frozen one.
SLOW = 1.0

#: Largest answer to a request of a check, B.
CHECK_LIMIT = 1024 * 1024

#: Longest name of the credential's user in a message, characters.
USER_LIMIT = 253

_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_RULES_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
_SELF_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ANONYMOUS = "system:anonymous"

#: Releases before 1.28 have no ``SelfSubjectReview`` in v1.
_NO_SUCH_API = frozenset((404, 405))


def _limited(resource: str, names: list[str]) -> str:
    """Return *resource* with its *names*, such as ``the user jane``."""
    return f"the {resource if len(names) > 1 else resource.removesuffix('s')} {listed(names)}"


@define(eq=False)
class MemberChecker:
    """Checks one member.

    :param api: a client with the credential, used by this object only.
    :param server: returns the API server's address, for messages.
    :param facts: returns the facts of the credential.
    :param epoch: returns the time of day, s since the epoch.
    :param impersonate: whether users are impersonated.
    :param unverified: a client that neither verifies the API server nor sends the credential; it reads the
        API server's clock if the certificate's dates are the problem.
    """

    _clock: IReactorTime
    _api: APIClient
    _server: Callable[[], str]
    _facts: Callable[[], CredentialFacts]
    _texts: MemberTexts
    _epoch: Callable[[], float] = field(kw_only=True)
    _impersonate: bool = field(default=True, kw_only=True)
    _unverified: APIClient | None = field(default=None, kw_only=True)

    async def check(self) -> MemberStatus:
        """Return the status, within `TIMEOUT`."""
        run = _Run(
            self._clock,
            self._api,
            self._server(),
            self._facts(),
            self._texts,
            self._epoch,
            impersonate=self._impersonate,
        )
        try:
            await within(self._clock, TIMEOUT, Deferred.fromCoroutine(run.run()), _Late)
        except _Late:
            state = slow if run.slowest >= SLOW else late
            run.status = evolve(run.status, api_server=state(run.server, self._texts))
        finally:
            self._api.close()
        status = run.status
        if status.api_server.status == "False" and (unused := run.unused_files()):
            status = evolve(
                status, api_server=evolve(status.api_server, message=status.api_server.message + unused)
            )
        if is_about_dates(status.api_server) and self._unverified is not None:
            status = await self._with_offset(status, run.server, self._unverified)
        return evolve(status, credential_expires=run.facts.lifetime.end)

    async def _with_offset(self, status: MemberStatus, server: str, unverified: APIClient) -> MemberStatus:
        """Return *status* with the API server's clock, which a server that is not verified reports."""
        began = self._epoch()
        try:
            answer = await unverified.request("GET", "/version")
        except (APIError, ConfigurationError):
            return status
        finally:
            unverified.close()
        offset = clock_offset(answer, began, self._epoch())
        return evolve(
            status,
            api_server=misdated(status.api_server, offset, server, self._texts),
            clock_offset=offset,
        )


class _Late(Exception):
    """The check took too long."""


@define(eq=False)
class _Run:
    """One check.

    :ivar status: what is known so far.
    :ivar slowest: the longest time until an answer, s.
    """

    _clock: IReactorTime
    _api: APIClient
    server: str
    facts: CredentialFacts
    _texts: MemberTexts
    _epoch: Callable[[], float]
    _impersonate: bool = field(kw_only=True)
    status: MemberStatus = field(factory=MemberStatus, init=False)
    slowest: float = field(default=0.0, init=False)
    _user: str = field(default="", init=False)

    async def run(self) -> None:
        """Check everything; a failure ends the check."""
        try:
            if await self._is_answering() and await self._is_authenticated():
                self._set(impersonation=await self._impersonation())
        except APIError as e:
            self._set(api_server=unreached(e, self.server, self._texts))
        except ConfigurationError as e:
            self._set(credential=Check("False", "CredentialInvalid", str(e)))

    def _set(self, **changes: Any) -> None:
        self.status = evolve(self.status, **changes)

    # The API server

    async def _is_answering(self) -> bool:
        began = self._epoch()
        answer = await self._request("GET", "/version")
        offset = clock_offset(answer, began, self._epoch())
        version = object_in(answer).get("gitVersion")
        if isinstance(version, str) and version.isprintable():
            self._set(version=shortened(version, VERSION_LIMIT))
        check = self._answering(answer, offset)
        self._set(api_server=check, clock_offset=offset)
        if answer.code == 401:
            self._set(credential=self._rejected())
            return False
        if check.status == "True":
            failed = failed_checks(await self._request("GET", "/readyz"))
            if failed:
                text = f"API server {self.server} is not ready ({failed})"
                self._set(api_server=found(API_SERVER, "NotReady", text, self._texts))
        return check.status == "True"

    def _answering(self, answer: APIResponse, offset: float | None) -> Check:
        server, texts = self.server, self._texts
        if answer.code >= 500:
            text = f"API server {server} answers {answer.code} ({text_of(answer)})"
            return found(API_SERVER, "ServerError", text, texts)
        if not self.status.version and object_in(answer).get("kind") != "Status":
            text = f"it answers {answer.code} to /version ({text_of(answer)})"
            return found(API_SERVER, "NotAnAPIServer", f"{server} is not an API server: {text}", texts)
        if answer.code == 429:
            text = f"API server {server} answers 429 to the checks ({text_of(answer)})"
            return found(API_SERVER, "TooManyRequests", text, texts)
        if offset is not None and abs(offset) >= LARGE_OFFSET:
            return skewed(server, offset, texts)
        return found(API_SERVER, "Reachable", f"API server {server} answers", texts)

    # The credential

    async def _is_authenticated(self) -> bool:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._post(_SELF_REVIEWS, review)
        if answer.code in _NO_SUCH_API:
            answer = await self._post(_ACCESS_REVIEWS, access_review("users"))
        elif is_good(answer):
            user = inside(object_in(answer), "status", "userInfo").get("username")
            self._user = shortened(user, USER_LIMIT) if isinstance(user, str) else ""
        check = self._credential(answer)
        self._set(credential=check)
        return check.status == "True"

    def _credential(self, answer: APIResponse) -> Check:
        if answer.code == 401:
            return self._rejected()
        message = object_in(answer).get("message")
        is_refused = answer.code == 403 and f'User "{_ANONYMOUS}"' in str(message)
        if self._user == _ANONYMOUS or is_refused:
            return self._anonymous()
        if is_good(answer) or answer.code == 403:
            return self._accepted()
        return self._not_reviewed(CREDENTIAL, answer)

    def _not_reviewed(self, kind: CheckKind, answer: APIResponse) -> Check:
        text = f"API server {self.server} answers {answer.code} to a review ({text_of(answer)})"
        return found(kind, "ReviewFailed", text, self._texts)

    def _rejected(self) -> Check:
        facts, checker = self.facts, self._texts.checker
        if not facts.kind:
            return self._anonymous()
        end = facts.lifetime.end
        if end is not None and end <= self._epoch():
            text = f"the {facts.kind} of {checker} expired at {timestamp(end)}{self.unused_files()}"
            return found(CREDENTIAL, "CredentialExpired", text, self._texts)
        text = f"API server {self.server} rejects the {facts.kind} of {checker} (401){self.unused_files()}"
        offset = self.status.clock_offset
        if offset is not None and abs(offset) >= LARGE_OFFSET:
            text += f", and {compared(offset, self._texts)}"
        return found(CREDENTIAL, "CredentialRejected", text, self._texts, offset=offset)

    def _anonymous(self) -> Check:
        checker, kind = self._texts.checker, self.facts.kind
        if not kind:
            text = f"{checker} has no credential for API server {self.server}{self.unused_files()}"
            return found(CREDENTIAL, "CredentialMissing", text, self._texts)
        text = f"API server {self.server} does not see the {kind} of {checker}, which is {_ANONYMOUS} there"
        text += self.unused_files()
        return found(CREDENTIAL, "CredentialIgnored", text, self._texts)

    def _accepted(self) -> Check:
        facts, unused = self.facts, self.unused_files()
        text = f"API server {self.server} accepts the {facts.kind} of {self._texts.checker}"
        if self._user:
            text += f" ({name_of(self._user)})"
        if facts.expires_soon(self._epoch()):
            text += f", but only until {timestamp(facts.lifetime.end or 0.0)}{unused}"
            return found(CREDENTIAL, "CredentialExpiresSoon", text, self._texts)
        reason = "CredentialFilesInvalid" if unused else "CredentialAccepted"
        return found(CREDENTIAL, reason, text + unused, self._texts)

    def unused_files(self) -> str:
        """Return that changed files are invalid, for the end of a message; empty if they are in use."""
        problem = self.facts.problem
        return f", and its changed files are not used ({problem})" if problem else ""

    # The rights

    async def _impersonation(self) -> Check:
        if not self._impersonate:
            text = "users are not impersonated: all of them act with the credential's own rights"
            return found(IMPERSONATION, "ImpersonationNotRequired", text, self._texts)
        missing: list[str] = []
        for resource in ("users", "groups"):
            answer = await self._post(_ACCESS_REVIEWS, access_review(resource))
            if not is_good(answer):
                return self._not_reviewed(IMPERSONATION, answer)
            if inside(object_in(answer), "status").get("allowed") is not True:
                missing.append(resource)
        if missing:
            return await self._restricted(missing)
        text = f"{self._texts.checker} is allowed to impersonate all users and groups"
        return found(IMPERSONATION, "ImpersonationAllowed", text, self._texts)

    async def _restricted(self, missing: list[str]) -> Check:
        """Return the check of a credential for which not all of *missing* can be impersonated."""
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectRulesReview",
            "spec": {"namespace": "default"},
        }
        answer = object_in(await self._post(_RULES_REVIEWS, review))
        rules = inside(answer, "status").get("resourceRules")
        names = {resource: names_in(rules, resource) for resource in missing}
        checker, user = self._texts.checker, self._user
        denied = " and ".join(resource for resource in missing if not names[resource])
        if denied:
            shown = f" ({name_of(user)})" if user else ""
            text = f"{checker}{shown} is not allowed to impersonate {denied}"
            return found(IMPERSONATION, "ImpersonationDenied", text, self._texts, user=user)
        allowed = " and ".join(_limited(resource, names[resource]) for resource in missing)
        text = f"{checker} is allowed to impersonate only {allowed} (resourceNames)"
        return found(IMPERSONATION, "ImpersonationRestricted", text, self._texts, user=user)

    async def _post(self, path: str, review: Any) -> APIResponse:
        return await self._request("POST", path, json.dumps(review).encode(), repeatable=True)

    async def _request(self, *arguments: Any, **options: Any) -> APIResponse:
        """Return the answer; see `APIClient.request`."""
        start = self._clock.seconds()
        answer = await self._api.request(*arguments, **options)
        self.slowest = max(self.slowest, self._clock.seconds() - start)
        return answer
