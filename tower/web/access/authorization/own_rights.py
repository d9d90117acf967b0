"""Rights at Tower's own API: the administrators' group, then the roles and bindings of that API.

They do not depend on ``--authorization-mode``, which is about clusters.
"""

from __future__ import annotations

from collections.abc import Collection

from tower.clusters.credentials import ADMINS
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.decision import Decision, Ruling
from tower.web.access.authorization.own_rbac import OwnRbac
from tower.web.access.authorization.union import AuthorizerUnion, PrivilegedGroups


class OwnRights:
    """Decides on requests to Tower's own API.

    :param privileged: groups whose users may do everything.
    """

    def __init__(self, rbac: OwnRbac, privileged: Collection[str] = (ADMINS,)) -> None:
        self._privileged = frozenset(privileged)
        self.rbac = rbac
        self._union = AuthorizerUnion(PrivilegedGroups(privileged), rbac)

    def is_privileged(self, user: UserInfo) -> bool:
        """Return whether a user may do everything."""
        return not self._privileged.isdisjoint(user.groups)

    def authorize(self, attributes: Attributes) -> Decision:
        """See `Authorizer`."""
        found = self._union.authorize(attributes)
        assert isinstance(found, Decision), "both decide at once"
        return found

    def allows(self, attributes: Attributes) -> bool:
        """Return whether a request is allowed."""
        return self.authorize(attributes).ruling is Ruling.ALLOW
