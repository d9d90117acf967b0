"""The right to create an object, which a server-side apply of a new object needs in addition to ``patch``."""

from __future__ import annotations

from attrs import frozen

from tower.kube.request_info import RequestInfo
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import OWN
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call
from tower.web.api.discovery import GroupVersion

_CURE = "a server-side apply of a new object needs this right, too: ask an administrator of Tower for it"


@frozen
class CreateRight:
    """The right to create objects of one resource."""

    _rights: OwnRights
    _version: GroupVersion
    _plural: str

    def check(self, call: Call, path: str) -> None:
        """Check that the user may create the object *path*; the name has the namespace before a slash.

        :raise StatusError: 403.
        """
        namespace, _, name = path.rpartition("/")
        group, version = self._version.group, self._version.version
        info = RequestInfo("create", "", group, version, namespace, self._plural, "", name, is_resource=True)
        attributes = Attributes(call.as_user, info, OWN)
        decision = self._rights.authorize(attributes)
        if not decision.is_allowed:
            raise attributes.refusal(decision.reason, _CURE)
