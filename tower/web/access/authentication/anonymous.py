"""Anonymous users: requests without any credential, where ``--anonymous-auth`` or a file permits them."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from tower.kube.system_identities import ANONYMOUS_USER, UNAUTHENTICATED_GROUP
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented

#: Name of the method.
ANONYMOUS_METHOD = "anonymous"

_IDENTITY = Identity(ANONYMOUS_USER, (UNAUTHENTICATED_GROUP,), method=ANONYMOUS_METHOD)


@attrs.define
class AnonymousAuthenticator:
    """Accepts requests without a credential, as one user.

    It comes after all methods, and only if none of them has rejected a credential.

    :ivar paths: exact paths of such requests; empty: all.
    """

    paths: Collection[bytes] = ()
    method: str = attrs.field(default=ANONYMOUS_METHOD, init=False)

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the anonymous user; None: the request has a credential, or another path."""
        if presented.bearer is not None or presented.certificate is not None:
            return None
        return _IDENTITY if not self.paths or presented.path in self.paths else None

    def check(self, identity: Identity) -> None:
        """Do nothing: a restart alone changes the setting."""
