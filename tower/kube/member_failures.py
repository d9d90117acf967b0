"""Reasons why a member's API server is not usable, as checks with the cause and the cure.  No I/O."""

from __future__ import annotations

import re

from attrs import frozen
from twisted.internet import defer

from tower.errors import ClusterUnreachable, ConfigurationError, StreamRefused, TunnelLost
from tower.kube.client import APIError
from tower.kube.member_status import TIMEOUT, UNCHECKED, Check
from tower.net.connecting import ConnectFailed

#: Clock offset from which on it is reported, s.
LARGE_OFFSET = 60.0

#: User names that a shell takes as one word.
_WORD = re.compile(r"[A-Za-z0-9._:@/-]{1,253}")


@frozen
class MemberTexts:
    """The names and cures in the messages about one member.

    :ivar checker: the program that checks, such as ``the agent``.
    :ivar peer: the other end of the checker's streams, whose texts may be quoted.
    :ivar address: cure of a wrong address of the API server.
    :ivar authority: cure of a certificate that is not trusted, or that has another name.
    :ivar credential: cure of a credential that the API server rejects.
    :ivar role: the ClusterRole, and the service account in ``tower-system``, that have the required rights;
        ``deploy/`` has a manifest of both.
    """

    checker: str
    peer: str
    address: str
    authority: str
    credential: str
    role: str = "tower-agent"

    def rights(self, user: str) -> str:
        """Return the cure of a missing right of *user*, which may be empty: unknown."""
        manifest = f"deploy/{self.role.removeprefix('tower-')}-rbac.yaml"
        cure = f"run 'kubectl apply -f {manifest}' in the member cluster"
        if user == f"system:serviceaccount:tower-system:{self.role}" or _WORD.fullmatch(user) is None:
            return cure
        return (
            f"{cure}, and then 'kubectl create clusterrolebinding {self.role}-user --clusterrole={self.role} "
            f"--user={user}'"
        )


def agent_texts(kubeconfig: str) -> MemberTexts:
    """Return the texts of an agent.

    :param kubeconfig: its kubeconfig; empty in a pod.
    """
    if not kubeconfig:
        return MemberTexts(
            checker="the agent",
            peer="the API server",
            address="check the Service default/kubernetes and the network policies of the agent's pod",
            authority="compare ConfigMap kube-root-ca.crt with the API server's CA, and restart the pod",
            credential="check that the pod's service account exists, and restart the pod",
        )
    return MemberTexts(
        checker="the agent",
        peer="the API server",
        address=f"correct the server in {kubeconfig}, or set --kubernetes-service",
        authority=f"correct certificate-authority, tls-server-name or server in {kubeconfig}",
        credential=(
            "create a token with 'kubectl -n tower-system create token tower-agent --duration 8760h' and "
            f"write it to {kubeconfig}"
        ),
    )


def proxy_texts(cluster: str) -> MemberTexts:
    """Return the texts of a proxy that keeps the credential of *cluster*."""
    replace = f"run 'tower cluster set {cluster} --member-kubeconfig FILE'"
    return MemberTexts(
        checker="the proxy",
        peer=f"the node of cluster {cluster}",
        address=f"with another server in its kubeconfig, {replace}",
        authority=f"with the right CA in its kubeconfig, {replace}",
        credential=f"with a new token or client certificate, {replace}",
        role="tower-proxy",
    )


def old_agent_texts(cluster: str) -> MemberTexts:
    """Return the texts of a proxy for an agent of ``kubesphere-v1``, which has sent its credential."""
    return MemberTexts(
        checker="the proxy",
        peer=f"the agent of {cluster}",
        address="correct the API server's address in the agent's configuration, and restart it",
        authority="correct the CA in the agent's kubeconfig, and restart the agent",
        credential="renew the credential in the agent's kubeconfig, and restart the agent",
    )


#: Reason and statement for the kinds of `ConnectFailed` and the codes of `StreamRefused`.
_KINDS = {
    "refused": ("ConnectionRefused", "refuses connections: start it, or"),
    "unreachable": ("Unreachable", "cannot be reached: check the network, or"),
    "name": ("NameNotResolved", "has a name that cannot be resolved: check the DNS, or"),
}

#: Parts of OpenSSL's texts, with reason and statement; the first that matches counts.
_CERTIFICATES = (
    (("expired",), "CertificateExpired", "has an expired certificate"),
    (("not yet valid",), "CertificateNotYetValid", "has a certificate that is not yet valid"),
    (("mismatch",), "CertificateWrongName", "has a certificate for another name"),
    (
        ("self-signed", "self signed", "issuer", "unable to verify", "signature failure", "invalid CA"),
        "CertificateUntrusted",
        "has a certificate of a CA that is not trusted",
    ),
)
#: Reasons of checks that succeeded with a problem that does not affect users yet.
WARNINGS = frozenset(("ClockSkew", "CredentialExpiresSoon", "CredentialFilesInvalid"))

_DATED = frozenset(("CertificateExpired", "CertificateNotYetValid"))


def is_about_clock(check: Check) -> bool:
    """Return whether the message of *check* may have the offset of a clock."""
    return check.reason == "ClockSkew" or is_about_dates(check)


def is_about_dates(check: Check) -> bool:
    """Return whether a wrong clock can be the cause of *check*."""
    return check.reason in _DATED


def describe_offset(offset: float) -> str:
    """Return a clock offset as a user would express it, such as ``1 h 5 min behind``."""
    minutes, seconds = divmod(round(abs(offset)), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        span = f"{days} d {hours} h"
    elif hours:
        span = f"{hours} h {minutes} min"
    else:
        span = f"{minutes} min" if minutes > 4 else f"{minutes * 60 + seconds} s"
    return f"{span} {'behind' if offset < 0 else 'ahead of'}"


def skewed(server: str, offset: float, texts: MemberTexts) -> Check:
    """Return the check of an API server that answers, with a large difference of the clocks."""
    return Check(
        "True",
        "ClockSkew",
        f"API server {server} answers, but the clock of {texts.checker} is {describe_offset(offset)} that of "
        "the API server: synchronize both machines with NTP",
    )


def unreached(error: APIError, server: str, texts: MemberTexts) -> Check:
    """Return the check of *server*, which did not answer."""
    cause = error.cause
    if isinstance(cause, TunnelLost | ClusterUnreachable):
        return UNCHECKED
    if isinstance(cause, ConfigurationError):
        return Check("Unknown", "NotChecked", str(cause))
    kind, detail = "", error.message
    if isinstance(cause, ConnectFailed):
        kind = cause.kind
    elif isinstance(cause, StreamRefused):
        kind, detail = cause.code, cause.reported_by(texts.peer)
    if kind == "timeout" or isinstance(cause, defer.TimeoutError):
        return late(server, texts)
    if kind in _KINDS:
        reason, statement = _KINDS[kind]
        return Check("False", reason, f"API server {server} {statement} {texts.address}")
    if kind == "tls":
        return _insecure(server, detail, texts)
    if kind == "busy":
        text = f"{texts.checker} could not check API server {server} ({detail})"
        return Check("Unknown", "CheckFailed", f"{text}: close streams, or raise its limit of open files")
    return Check(
        "False",
        "ConnectionLost",
        f"API server {server} did not answer ({detail}): restart it, or {texts.address}",
    )


def late(server: str, texts: MemberTexts) -> Check:
    """Return the check of *server*, which did not answer in time."""
    return Check(
        "False",
        TIMEOUT,
        f"API server {server} did not answer {texts.checker} in time: restart it if it is frozen, check "
        f"firewalls, or {texts.address}",
    )


def _insecure(server: str, detail: str, texts: MemberTexts) -> Check:
    for parts, reason, statement in _CERTIFICATES:
        if any(part in detail for part in parts):
            cure = "renew it" if reason in _DATED else texts.authority
            return Check("False", reason, f"API server {server} {statement} ({detail}): {cure}")
    return Check("False", "TLSFailed", f"no TLS with API server {server} ({detail}): {texts.address}")


def misdated(check: Check, offset: float | None, server: str, texts: MemberTexts) -> Check:
    """Return *check*, see `is_about_dates`, with the clock as the cause if *offset* is large."""
    if offset is None or abs(offset) < LARGE_OFFSET:
        return check
    state = "expired" if check.reason == "CertificateExpired" else "not yet valid"
    return Check(
        "False",
        check.reason,
        f"the certificate of API server {server} is {state} by the clock of {texts.checker}, which is "
        f"{describe_offset(offset)} that of the API server: synchronize both machines with NTP",
    )
