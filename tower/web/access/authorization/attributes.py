"""Attributes of a request on which authorizers decide, and the text of a rejection.

The verb and the object are those of kube-apiserver's RequestInfo.
"""

from __future__ import annotations

import attrs

from tower.escaping import quoted
from tower.kube.request_info import RequestInfo, parse_request_info
from tower.kube.status import StatusError
from tower.web.access.authentication.identity import UserInfo

_NO_HTML = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


@attrs.frozen
class Attributes:
    """A request of *user* to *cluster*."""

    user: UserInfo
    request: RequestInfo
    cluster: str

    def refusal(self, reason: str = "", cure: str = "") -> StatusError:
        """Return the rejection, with kube-apiserver's text, the authorizers' *reason* and the *cure*."""
        info = self.request
        message = self._text().translate(_NO_HTML) + (f": {reason}" if reason else "")
        details = {}
        if info.resource:
            kind = f"{info.resource}.{info.group}" if info.group else info.resource
            name = f" {quoted(info.name)}" if info.name else ""
            message = f"{kind}{name} is forbidden: {message}"
            details = {"name": info.name, "group": info.group, "kind": info.resource}
        else:
            message = f"forbidden: {message}"
        if cure:
            message += f"; {cure}"
        present = {key: value for key, value in details.items() if value}
        kind = "impersonation" if info.verb == "impersonate" else "authorization-mode"
        return StatusError(403, message, details=present, kind=kind)

    def _text(self) -> str:
        info = self.request
        begin = f"User {quoted(self.user.name)} cannot {info.verb} "
        if not info.is_resource:
            return f"{begin}path {quoted(info.path)}"
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        where = f"in the namespace {quoted(info.namespace)}" if info.namespace else "at the cluster scope"
        return f"{begin}resource {quoted(resource)} in API group {quoted(info.group)} {where}"


def attributes_of(user: UserInfo, method: bytes, target: bytes, cluster: str) -> Attributes:
    """Return the attributes of a request with *method* and *target*, the API server's path and query."""
    return Attributes(user, parse_request_info(method, target), cluster)
