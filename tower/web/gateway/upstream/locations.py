"""The ``Location`` of an answer, as its user must request it; redirects out of the cluster are errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tower.http.responses import leads_away, rewritten_location
from tower.tunnels.targets import KUBERNETES
from tower.web.access.authentication.identity import ANONYMOUS
from tower.web.outcome import Relay

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: The error for a redirect that `leads_user_away`; as kube-apiserver's aggregator (CVE-2022-3172).
REDIRECTED = (
    "attempted to redirect this request, which is not permitted: the Location is not one of the cluster; "
    "check the cluster, or open the page in a browser"
)


def location_for_user(location: bytes, request: Request, relay: Relay, server: bytes) -> bytes:
    """Return *location* as the user must request it.

    :param server: name by which the cluster's API server knows itself.
    """
    host = request.fields.host
    if relay.target == KUBERNETES:
        return rewritten_location(location, relay.prefix, host, server)
    if not relay.prefix:
        return location
    # the target knows itself by Tower's host name, but not that Tower is served with TLS
    return rewritten_location(location, relay.prefix, b"", host)


def leads_user_away(location: bytes, request: Request, prefix: bytes) -> bool:
    """Return whether a redirect would lead a user's program out of the cluster, with its credential.

    A browser does not send bearer tokens to other hosts, and any page may redirect it.  Requests to a port
    without authentication have no credential that Tower accepts.

    :param location: from `location_for_user`.
    :param prefix: of the cluster's paths; empty at its own port.
    """
    if request.identity is ANONYMOUS or request.fields.get(b"sec-fetch-mode") == b"navigate":
        return False
    return leads_away(location, request.path, prefix)
