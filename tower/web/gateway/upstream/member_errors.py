"""Answers of a member's API server that are about the credential of its agent, not about the user.

A member answers 401 if it rejects the agent's credential, and 403 if that credential is not allowed to
impersonate the user.  The user is authenticated by Tower and has no part in this, so the answer is a 502 that
names the agent, the missing right and the cure.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tower.escaping import quoted, shortened
from tower.kube.member_answers import name_of
from tower.kube.member_cures import rights_cure
from tower.kube.request_info import parse_request_info
from tower.tunnels import SSH
from tower.tunnels.targets import KUBERNETES
from tower.web.outcome import Relay

if TYPE_CHECKING:
    from tower.web.gateway.upstream.cluster_upstream import ClusterUpstream

#: Longest body of a Status that is read, B; a Status about a credential has less than 1 KiB.
LONGEST = 8 * 1024

_AGENT_CREDENTIAL = "renew the token or client certificate of the agent; the agent's log has details"
_PROXY_CREDENTIAL = "an administrator must renew it, see 'tower cluster show'"

_REJECTED_BY_KUBELET = (
    "has a kubelet that rejects the credential that Tower uses there (401): kubelets accept tokens with "
    "--authentication-token-webhook, and certificates with --client-ca-file"
)

# Resources that can be impersonated, in messages.
_KINDS = {"users": "user", "groups": "group", "serviceaccounts": "service account"}

# The account of a request without a credential, or with one that a load balancer has removed.
_ANONYMOUS = "system:anonymous"

# The text of a Status for a forbidden impersonation.  With constrained impersonation (Kubernetes 1.35), the
# object is that of the request, and the verb is such as ``impersonate-on:user-info:list``.
_IMPERSONATION = re.compile(
    r'(?:[a-z][-a-z.0-9/]{0,127}(?: "(?P<name>[^"]{1,256})")? is )?forbidden: '
    r'User "(?P<account>[^"]{1,256})" cannot impersonate(?P<constrained>-[-:a-z]+)? '
    r'(?:resource|path) "(?P<object>[^"]{1,2048})"'
)

# A Status in Kubernetes' binary form, which typed Go clients request, up to the message and its length: one
# or two bytes of 7 bits each, the lower ones first.
_BINARY = re.compile(rb"k8s\x00.{0,40}Status.{0,40}\x12\x07Failure\x1a([\x80-\xff]?)([\x00-\x7f])", re.DOTALL)


def member_error(
    code: int, body: bytes, method: bytes, target: bytes, relay: Relay, upstream: ClusterUpstream, user: str
) -> str:
    """Return what a member did, if its answer is about Tower's credential there; else an empty string.

    :param body: of the answer; empty if it is too long or has no known length.
    :param target: path and query of the request, below `Relay.prefix`.
    :param user: name of the impersonated user.
    """
    if code == 401:
        if relay.target != KUBERNETES:
            return _REJECTED_BY_KUBELET
        return _rejected(upstream) if _is_of_api_server(body, method, target) else ""
    if relay.target != KUBERNETES:
        return ""
    match = _IMPERSONATION.match(_message(body, "Forbidden"))
    if match is None or match["account"] == user:
        return ""
    return _forbidden(match, upstream, user)


def _is_of_api_server(body: bytes, method: bytes, target: bytes) -> bool:
    """Return whether the API server made a 401 itself; a service behind it has its own users."""
    info = parse_request_info(method, target)
    if info.verb != "proxy" and info.subresource != "proxy":
        return True
    return _message(body, "Unauthorized") == "Unauthorized"


def _message(body: bytes, reason: str) -> str:
    """Return the message of a Status with *reason*; empty if *body* is anything else."""
    if (binary := _BINARY.match(body)) is not None:
        low, high = binary.groups()
        size = high[0] if not low else low[0] & 0x7F | high[0] << 7
        end = binary.end() + size
        if not body.startswith(b'"%c%b' % (len(reason), reason.encode()), end):
            return ""
        return body[binary.end() : end].decode("utf-8", "replace")
    try:
        status: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(status, dict) or (status.get("kind"), status.get("reason")) != ("Status", reason):
        return ""
    message = status.get("message")
    return message if isinstance(message, str) else ""


def _rejected(upstream: ClusterUpstream) -> str:
    status = upstream.tunnel.member_status
    if status is not None and status.credential.status == "False":
        return f"cannot be used: {status.credential.text}"
    if upstream.rewrite is not None:
        return f"rejects the credential that Tower uses there (401): {_PROXY_CREDENTIAL}"
    return f"rejects the credential of its agent (401): {_AGENT_CREDENTIAL}"


def _anonymous(upstream: ClusterUpstream) -> str:
    status = upstream.tunnel.member_status
    if status is not None and status.credential.status == "False":
        return f"cannot be used: {status.credential.text}"
    if upstream.rewrite is not None:
        return f"does not see a credential of Tower: {_PROXY_CREDENTIAL}"
    return f"does not see a credential of its agent: {_AGENT_CREDENTIAL}"


def _forbidden(match: re.Match[str], upstream: ClusterUpstream, user: str) -> str:
    if match["account"] == _ANONYMOUS:
        return _anonymous(upstream)
    status = upstream.tunnel.member_status
    if status is not None and status.impersonation.status == "False":
        return f"cannot be used: {status.impersonation.text}"
    resource, name = match["object"], match["name"]
    if match["constrained"] or not name:
        resource, name = "user", user
    account, name = name_of(shortened(match["account"], 128)), name_of(shortened(name, 64))
    whose = "its agent" if upstream.rewrite is None else "the credential that Tower uses there"
    kind = _KINDS.get(resource) or quoted(resource, 64)[1:-1]
    if resource == "uids" or resource.startswith("userextras"):  # the role of 'tower rbac agent' has none
        return (
            f"does not allow {whose} (user {account}) to impersonate {kind} {name}: let a role of this "
            "account in the member cluster allow it, as docs/authorization.md shows"
        )
    cure = rights_cure("tower-proxy" if upstream.tunnel.protocol == SSH else "tower-agent")
    return (
        f"does not allow {whose} (user {account}) to impersonate {kind} {name}: {cure}, or add the name "
        "to the resourceNames of that role"
    )
