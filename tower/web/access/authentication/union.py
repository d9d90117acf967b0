"""The union of the authentication methods that are configured, with the semantics of kube-apiserver.

The methods are asked in order, and the first user that one of them finds is the user.  Credentials that no
method accepts are rejected: they never make a request anonymous.
"""

from __future__ import annotations

from collections.abc import Iterator

from twisted.internet.defer import Deferred

from tower.errors import Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import AuthenticationMethod, Presented


class AuthenticatorUnion:
    """Authenticates users by the first method that knows them."""

    def __init__(self, *methods: AuthenticationMethod) -> None:
        self._methods = methods
        self._by_name = {each.method: each for each in methods}

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity]:
        """Return the user with these credentials.

        :raise Unauthorized: no method accepts them, also through the Deferred; the text is for the client,
            `Unauthorized.reason` for the log.
        """
        refusals: list[Unauthorized] = []
        methods = iter(self._methods)
        for method in methods:
            try:
                found = method.authenticate(presented)
            except Unauthorized as e:
                refusals.append(e)
                continue
            if isinstance(found, Deferred):
                return Deferred.fromCoroutine(self._wait(found, methods, presented, refusals))
            if found is not None:
                return found
        raise _refusal(refusals)

    def check(self, identity: Identity) -> None:
        """Check that *identity*, cached on a connection, is still valid.

        :raise Unauthorized: it has expired, or was revoked or removed.
        """
        self._by_name[identity.method].check(identity)

    async def _wait(
        self,
        waiting: Deferred[Identity | None],
        rest: Iterator[AuthenticationMethod],
        presented: Presented,
        refusals: list[Unauthorized],
    ) -> Identity:
        try:
            found = await waiting
        except Unauthorized as e:
            refusals.append(e)
            found = None
        for method in rest:
            if found is not None:
                return found
            try:
                answer = method.authenticate(presented)
                found = await answer if isinstance(answer, Deferred) else answer
            except Unauthorized as e:
                refusals.append(e)
        if found is not None:
            return found
        raise _refusal(refusals)


def _refusal(refusals: list[Unauthorized]) -> Unauthorized:
    """Return the most specific refusal: that of a method that knows the credential."""
    for each in refusals:
        if each.kind != "unknown":
            return each
    if refusals:
        return refusals[0]
    return Unauthorized(
        "no credential was sent: use a kubeconfig made by 'tower kubeconfig CLUSTER --user NAME'",
        "no credential",
        "no-credential",
    )
