"""System identities: users and groups of the cluster itself, which users of Tower must not impersonate.

Kubernetes reserves names that begin with ``system:``, and distributions have other names for their
administrators.  The right to impersonate any of them is equivalent to cluster-admin.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from attrs import field, frozen

from tower.errors import Invalid

#: Prefix reserved by Kubernetes.
PREFIX = "system:"

#: Prefix reserved by Tower.
OWN_PREFIX = "tower:"

#: Administrators' names without that prefix: names that a distribution binds to cluster-admin or treats as
#: administrators, and that are unlikely for other users or groups.
ADMINISTRATORS = frozenset(
    {
        # kubeadm since 1.29, and what builds on it: `ClusterAdminsGroupAndClusterRoleBinding` of
        # kubernetes/cmd/kubeadm/app/constants, the group of admin.conf.
        "kubeadm:cluster-admins",
        # OpenShift: `BootstrapUser` of openshift/library-go, "that can perform any action".
        "kube:admin",
        # Red Hat's managed OpenShift: privileged in openshift/managed-cluster-validating-webhooks.
        "backplane-cluster-admin",
        "osd-sre-cluster-admins",
        # Amazon EKS, User Guide: ClusterRoleBinding eks:addon-cluster-admin ("Amazon EKS add-ons"), and the
        # two special identities of "View Kubernetes resources".
        "eks:addon-manager",
        "eks:cluster-bootstrap",
        "eks:support-engineer",
        # Azure AKS: ClusterRoleBinding aks-cluster-admin-binding, the local accounts of a cluster.
        "clusterAdmin",
        "clusterUser",
        # Gardener: the groups of its AdminKubeconfig (gardener/gardener pull requests 12673 and 12674).
        "gardener.cloud:system:admins",
        "gardener.cloud:project:admins",
    }
)

#: The group that the API server adds to all impersonated users; requesting it grants nothing.
AUTHENTICATED = "system:authenticated"

#: Kubernetes' names for the user and the group of a client without a credential.
ANONYMOUS_USER = "system:anonymous"
UNAUTHENTICATED_GROUP = "system:unauthenticated"

#: Longest allowed name, characters, and most allowed names.
NAME_LIMIT = 253
ALLOWED_LIMIT = 100

_BLANKS = " \t"


@lru_cache(maxsize=1024)
def all_groups(user: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Return the groups of *user* as rules name them: with the one of all authenticated users."""
    if user == ANONYMOUS_USER or AUTHENTICATED in groups or UNAUTHENTICATED_GROUP in groups:
        return groups
    return (*groups, AUTHENTICATED)


def is_system(name: str) -> bool:
    """Return whether *name*, from a header field, is a system identity.

    Kubernetes compares names byte by byte; Go's header parser trims blanks and tabs at both ends.
    """
    name = name.strip(_BLANKS)
    return name.startswith(PREFIX) or name in ADMINISTRATORS


def check_allowed(name: str) -> str:
    """Return *name* if it is a system identity that can be allowed.

    :raise Invalid: with the name and the cure.
    """
    if not (0 < len(name) <= NAME_LIMIT and name.isascii() and name.isprintable() and name == name.strip()):
        raise Invalid(
            f"{name!r}: must be 1 to {NAME_LIMIT} printable ASCII characters, without blanks at the ends"
        )
    if name == AUTHENTICATED:
        raise Invalid(f"{name!r} needs no permission: Kubernetes adds this group to every user; omit it")
    if not is_system(name):
        raise Invalid(
            f"{name!r} is not a system identity and needs no permission: correct the name (such as "
            f"{PREFIX}monitoring) or omit it"
        )
    if name == PREFIX or "*" in name:
        raise Invalid(f"{name!r} is not a name, and patterns are not supported: list each name in full")
    return name


def _as_set(names: Collection[str]) -> frozenset[str]:
    return frozenset(names)


@frozen
class SystemIdentities:
    """The rule for system identities of one cluster.

    :param allowed: names that users may impersonate.
    :param allow_all: whether users may impersonate all system identities.
    """

    allowed: frozenset[str] = field(default=(), converter=_as_set)
    allow_all: bool = field(default=False, kw_only=True)

    def refuses(self, name: str) -> bool:
        """Return whether users must not impersonate the user or group *name*."""
        if self.allow_all or not is_system(name):
            return False
        return name.strip(_BLANKS) not in self.allowed


#: No system identity is allowed.
NONE_ALLOWED = SystemIdentities()


def is_reserved(name: str, identities: SystemIdentities = NONE_ALLOWED) -> bool:
    """Return whether users of a cluster with these rules must not have *name*."""
    return name.strip(_BLANKS).startswith(OWN_PREFIX) or identities.refuses(name)
