"""The reasons of a member's checks, with the cure of each.  No I/O.

The reasons are a closed enumeration, which `docs/cluster-health.md` lists.  So a cure is always Tower's own
text, even if an agent reports the reason.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Final

from attrs import frozen

from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_status import (
    API_SERVER,
    CREDENTIAL,
    IMPERSONATION,
    TIMEOUT,
    Check,
    CheckKind,
    ConditionStatus,
)

#: Clock offset from which on it is reported, s.
LARGE_OFFSET = 60.0

#: Reason of a report whose reason is not one of these.
UNKNOWN_REASON: Final = "UnknownReason"

#: Reasons of checks that succeeded with a problem that does not affect users yet.
WARNINGS = frozenset(
    ("ClockSkew", "Slow", "TooManyRequests", "CredentialExpiresSoon", "CredentialFilesInvalid")
)

#: Cure of different clocks.
SYNCHRONIZE = "synchronize both machines with NTP"

#: Command that lets every authenticated user check its own rights, as by default in Kubernetes.
_BASIC = (
    "kubectl create clusterrolebinding tower-basic --clusterrole=system:basic-user "
    "--group=system:authenticated"
)

#: Cure of missing rights of an agent in a pod: those of ``tower rbac agent`` have no limits.
_APPLY_AGAIN = "if a manifest or chart installed the agent, apply it again; else "

#: User names that a shell takes as one word.
_WORD = re.compile(r"[A-Za-z0-9._:@/-]{1,253}")

_DATED = frozenset(("CertificateExpired", "CertificateNotYetValid"))


@frozen
class MemberTexts:
    """The names and cures in the messages about one member.

    :ivar checker: the program that checks, such as ``the agent``.
    :ivar peer: the other end of the checker's streams, whose texts may be quoted.
    :ivar address: cure of a wrong address of the API server.
    :ivar authority: cure of a certificate that is not trusted, or that has another name.
    :ivar credential: cure of a credential that the API server rejects.
    :ivar role: the ClusterRole, and the service account in ``tower-system``, that have the required rights;
        ``tower rbac`` prints a manifest of both.
    :ivar again: cure of missing rights that came with the agent, and may be limited to users and groups.
    """

    checker: str
    peer: str
    address: str
    authority: str
    credential: str
    role: str = "tower-agent"
    again: str = ""

    def rights(self, user: str) -> str:
        """Return the cure of a missing right of *user*, which may be empty: unknown."""
        cure = self.again + rights_cure(self.role)
        if user == f"system:serviceaccount:tower-system:{self.role}" or not is_word(user):
            return cure
        return (
            f"{cure}, and then 'kubectl create clusterrolebinding {self.role}-user --clusterrole={self.role} "
            f"--user={user}'"
        )


def agent_texts(kubeconfig: str, access: KubeAccess) -> MemberTexts:
    """Return the texts of an agent.

    :param kubeconfig: its kubeconfig; empty in a pod.
    :param access: the access that it has.
    """
    if not kubeconfig:
        return MemberTexts(
            checker="the agent",
            peer="the API server",
            address="check the Service default/kubernetes and the network policies of the agent's pod",
            authority="compare ConfigMap kube-root-ca.crt with the API server's CA, and restart the pod",
            credential=f"{rights_cure('tower-agent')}, and restart the pod",
            again=_APPLY_AGAIN,
        )
    return MemberTexts(
        checker="the agent",
        peer="the API server",
        address=f"correct the server in {kubeconfig}, or set --kubernetes-service",
        authority=f"correct certificate-authority, tls-server-name or server in {kubeconfig}",
        credential=f"{rights_cure('tower-agent')}, and then '{_renewal(kubeconfig, access)}'",
    )


def _renewal(kubeconfig: str, access: KubeAccess) -> str:
    """Return the command that gives the user of *kubeconfig* a new token, and keeps the rest of the file."""
    create = "kubectl -n tower-system create token tower-agent --duration 8760h"
    if access.token_file is not None:
        return f"{create} > {shlex.quote(str(access.token_file))}"
    user = shlex.quote(access.user or "tower-agent")
    return f"kubectl --kubeconfig {shlex.quote(kubeconfig)} config set-credentials {user} --token=$({create})"


def rights_cure(role: str) -> str:
    """Return the command that creates a role of Tower, and its service account, in a member."""
    return f"run 'tower rbac {role.removeprefix('tower-')} | kubectl apply -f -' in the member cluster"


#: The texts of a proxy for the reports of agents, which do not have to be true.
REPORTED_TEXTS = MemberTexts(
    checker="the agent",
    peer="the API server",
    address="correct its address in the agent's kubeconfig, or check the network policies of the agent's pod",
    authority="correct its CA or name in the agent's kubeconfig, or restart the agent's pod",
    credential="renew the agent's token or client certificate; the agent's log has the command",
    again=_APPLY_AGAIN,
)


def proxy_texts(cluster: str) -> MemberTexts:
    """Return the texts of a proxy that keeps the credential of *cluster*."""
    replace = f"run 'tower cluster set {cluster} --member-kubeconfig FILE' with a kubeconfig that has"
    return MemberTexts(
        checker="the proxy",
        peer=f"the node of cluster {cluster}",
        address=f"{replace} the right server",
        authority=f"{replace} the right CA",
        credential=f"{replace} a new token or client certificate",
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


#: The status and the cure of each reason; names in braces are fields of `MemberTexts`, or its `rights`.
REASONS: Mapping[CheckKind, Mapping[str, tuple[ConditionStatus, str]]] = {
    API_SERVER: {
        "Reachable": ("True", ""),
        "ClockSkew": ("True", SYNCHRONIZE),
        "Slow": ("True", "check the load of the API server and of etcd"),
        "TooManyRequests": ("True", "reduce the requests to the API server, or raise its limits"),
        "ConnectionRefused": ("False", "start the API server, or {address}"),
        "Unreachable": ("False", "start the API server if it is stopped, check the network, or {address}"),
        "NameNotResolved": ("False", "check the DNS, or {address}"),
        TIMEOUT: ("False", "restart the API server if it is frozen, check firewalls, or {address}"),
        "ConnectionLost": ("False", "restart the API server, or {address}"),
        "CertificateExpired": ("False", "renew it"),
        "CertificateNotYetValid": ("False", "synchronize the clocks; if they agree, renew the certificate"),
        "CertificateWrongName": ("False", "{authority}"),
        "CertificateUntrusted": ("False", "{authority}"),
        "TLSFailed": ("False", "{address}"),
        "NotAnAPIServer": ("False", "{address}"),
        "NotReady": ("False", "see the log of the API server and that of etcd"),
        "ServerError": ("False", "see the log of the API server"),
        "CheckFailed": ("Unknown", "close streams, or raise the limit of open files of {checker}"),
        "NotChecked": ("Unknown", ""),
    },
    CREDENTIAL: {
        "CredentialAccepted": ("True", ""),
        "CredentialExpiresSoon": ("True", "{credential}"),
        "CredentialFilesInvalid": ("True", "correct the changed files"),
        "CredentialRejected": ("False", "{credential}"),
        "CredentialExpired": ("False", "{credential}"),
        "CredentialMissing": ("False", "{credential}"),
        "CredentialIgnored": (
            "False",
            "connect without the load balancer that removes it, or {credential}",
        ),
        "CredentialInvalid": ("False", "{credential}"),
        "CredentialUnusable": ("False", "{credential}"),
        "ReviewFailed": ("Unknown", "see the log of the API server"),
        "NotChecked": ("Unknown", ""),
    },
    IMPERSONATION: {
        "ImpersonationAllowed": ("True", ""),
        "ImpersonationNotRequired": ("True", ""),
        "ImpersonationRestricted": ("True", "for all users and groups, {rights}"),
        "ImpersonationDenied": ("False", "{rights}"),
        "ReviewFailed": ("Unknown", f"run '{_BASIC}' in the member cluster"),
        "NotChecked": ("Unknown", ""),
    },
}


def is_known(kind: CheckKind, status: str, reason: str) -> bool:
    """Return whether a check of *kind* can have that status and reason."""
    return reason in REASONS[kind] and REASONS[kind][reason][0] == status


def cure_of(
    kind: CheckKind, reason: str, texts: MemberTexts, *, user: str = "", offset: float | None = None
) -> str:
    """Return the cure of *reason*; empty if it has none, or is unknown.

    :param user: of the credential; empty: unknown.
    :param offset: of the clocks, s; None: unknown.
    """
    _, cure = REASONS[kind].get(reason, ("Unknown", ""))
    if offset is not None and abs(offset) >= LARGE_OFFSET:
        if reason in _DATED:
            return SYNCHRONIZE
        if reason == "CredentialRejected":
            cure = f"{SYNCHRONIZE}, or {cure}"
    return cure.format(
        address=texts.address,
        authority=texts.authority,
        credential=texts.credential,
        checker=texts.checker,
        rights=texts.rights(user),
    )


def found(
    kind: CheckKind,
    reason: str,
    message: str,
    texts: MemberTexts,
    *,
    user: str = "",
    offset: float | None = None,
) -> Check:
    """Return the check of *kind* with the status and the cure of *reason*."""
    status, _ = REASONS[kind][reason]
    return Check(status, reason, message, cure_of(kind, reason, texts, user=user, offset=offset))


def is_warning(check: Check) -> bool:
    """Return whether *check* needs attention although it did not fail: it warns, or was not possible."""
    return check.reason in WARNINGS or (check.status == "Unknown" and bool(check.message))


def is_about_dates(check: Check) -> bool:
    """Return whether a wrong clock can be the cause of *check*."""
    return check.reason in _DATED


def is_about_clock(check: Check) -> bool:
    """Return whether the message of *check* may have the offset of a clock."""
    return check.reason == "ClockSkew" or is_about_dates(check)


def is_word(text: str) -> bool:
    """Return whether *text* is a name of a few plain characters, which no shell interprets."""
    return _WORD.fullmatch(text) is not None
