"""The union of the authentication methods that are configured, with the semantics of kube-apiserver.

The methods are asked in order, and the first user that one of them finds is the user.  Credentials that no
method accepts are rejected: they never make a request anonymous.  Only a request without any is asked of the
method for such requests, if there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from twisted.internet.defer import Deferred

from tower.errors import Unauthorized
from tower.web.access.authentication.anonymous import AnonymousAuthenticator
from tower.web.access.authentication.attempts import Attempts
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import AuthenticationMethod, Presented


class AuthenticatorUnion:
    """Authenticates users by the first method that knows them.

    :param anonymous: for requests without a credential; None: they are rejected.
    :param attempts: to count in; None: nothing is counted.
    """

    def __init__(
        self,
        *methods: AuthenticationMethod,
        anonymous: AnonymousAuthenticator | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self._methods = methods
        self._anonymous = anonymous
        self._attempts = attempts
        self._by_name: dict[str, AuthenticationMethod] = {each.method: each for each in methods}
        if anonymous is not None:
            self._by_name[anonymous.method] = anonymous
        self._lasting: dict[str, Callable[[Identity], None]] = {
            name: getattr(each, "check_lasting", each.check) for name, each in self._by_name.items()
        }

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity]:
        """Return the user with these credentials.

        :raise Unauthorized: no method accepts them, also through the Deferred; the text is for the client,
            `Unauthorized.reason` for the log.
        """
        return (
            self._authenticate(presented)
            if self._attempts is None
            else self._attempts.measured(self._authenticate, presented)
        )

    def _authenticate(self, presented: Presented) -> Identity | Deferred[Identity]:
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
        return self._unknown(presented, refusals)

    def check(self, identity: Identity) -> None:
        """Check that *identity*, cached on a connection, is still valid.

        :raise Unauthorized: it has expired, or was revoked or removed.
        """
        self._by_name[identity.method].check(identity)

    def check_lasting(self, identity: Identity) -> None:
        """Check that requests of *identity* which are in progress may go on; like `check`."""
        self._lasting[identity.method](identity)

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
        return self._unknown(presented, refusals) if found is None else found

    def _unknown(self, presented: Presented, refusals: list[Unauthorized]) -> Identity:
        """Return the anonymous user for a request that no method knows.

        :raise Unauthorized: it has a credential, or must have one.
        """
        if self._anonymous is not None and not refusals:
            user = self._anonymous.authenticate(presented)
            if user is not None:
                return user
        raise _refusal(refusals)


def _refusal(refusals: list[Unauthorized]) -> Unauthorized:
    """Return the most specific refusal, that of a method that knows the credential, with all reasons."""
    if refusals:
        chosen = next((each for each in refusals if each.kind != "unknown"), refusals[0])
        reasons = list(dict.fromkeys(each.reason for each in refusals))
        if len(reasons) == 1:
            return chosen
        return Unauthorized(str(chosen), f"[{', '.join(reasons)}]", chosen.kind)
    return Unauthorized(
        "no credential was sent: use a kubeconfig that 'tower login' or 'tower kubeconfig' made",
        "no credential",
        "no-credential",
    )
