"""Keeps bearer tokens that open the front door from the targets of clusters.

A user with a client certificate may send a token for a target.  But a token that Tower accepts would let the
owner of the target enter every cluster as that user.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.errors import Forbidden, Unauthorized
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.oidc.tokens import KeysUnknown
from tower.web.access.authentication.presented import AuthenticationMethod, Presented
from tower.web.gateway.request import Request
from tower.web.outcome import Relay


@frozen(eq=False)
class DoorTokens:
    """A filter of `tower.web.access.filters`.

    :param methods: those that know their tokens without a question to another program.
    """

    _methods: Sequence[AuthenticationMethod]

    def __call__(self, request: Request, _cluster: str) -> None:
        """Reject a request that would bring such a token to a target."""
        destination, bearer, identity = request.destination, request.fields.bearer, request.identity
        if bearer is None or not (isinstance(destination, Relay) and destination.plain):
            return
        if isinstance(identity, Identity) and not identity.uses(bearer) and self.opens(bearer):
            raise Forbidden(
                f"the bearer token of {identity.user} opens Tower itself, or may do so later, and the target "
                f"{destination.target} would get it: omit Authorization, since the request has a client "
                "certificate"
            )

    def opens(self, bearer: bytes) -> bool:
        """Return whether one of the methods accepts a token, or may accept it later.

        That is a token of a configured issuer which is not valid yet, or whose key is not known: the issuer
        may have new keys, or may not have answered since the start.
        """
        for method in self._methods:
            try:
                found = method.authenticate(Presented(None, bearer))
            except Unauthorized as e:
                if isinstance(e, KeysUnknown) or e.kind == "not-yet-valid":
                    return True
                continue
            if isinstance(found, Deferred):  # its key is not known
                found.addErrback(_ignored)
                found.cancel()
            if found is not None:
                return True
        return False


def _ignored(_: Failure) -> None:
    pass
