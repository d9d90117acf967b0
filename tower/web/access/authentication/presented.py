"""The credentials that a request presents, and the methods that authenticate them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import attrs
from twisted.internet.defer import Deferred

from tower.errors import Outdated
from tower.http.requests import Fields
from tower.web.access.authentication.identity import Identity


@attrs.frozen
class Presented:
    """The credentials of a request.

    :ivar certificate: of the client, DER, verified by TLS; None: there is none.
    :ivar bearer: the bearer token, or None.
    :ivar fields: the header, for methods that read other fields.
    :ivar path: of the request, without its query.
    :ivar chain: returns the certificates that the client sent, its own first, DER; a resumed TLS session has
        none.
    """

    certificate: bytes | None
    bearer: bytes | None
    fields: Fields | None = attrs.field(default=None, eq=False)
    chain: Callable[[], Sequence[bytes]] = attrs.field(default=tuple, eq=False)
    path: bytes = b""


class Stale(Outdated):
    """The user of an identity is not known to be the same: as `Outdated`, but requests in progress go on."""


class AuthenticationMethod(Protocol):
    """One method of authentication.

    :ivar method: its name, as in `Identity.method`.
    """

    method: str

    def authenticate(self, presented: Presented) -> Identity | Deferred[Identity | None] | None:
        """Return the user with these credentials; None: there are none of this method.

        :raise Unauthorized: they are not valid, also through the Deferred; the text is for the client,
            `Unauthorized.reason` for the log.
        """

    def check(self, identity: Identity) -> None:
        """Check that *identity* of this method, cached on a connection, is still valid.

        :raise Unauthorized: it has expired, or was revoked or removed.
        :raise Stale: that is not known; a session may go on until it is.
        """


class LastingMethod(AuthenticationMethod, Protocol):
    """A method whose requests in progress may last longer than the token that began them."""

    def check_lasting(self, identity: Identity) -> None:
        """Check that requests of *identity* which are in progress may go on; like `check`."""
