"""Users and groups that belong to the cluster itself: nobody is let act as one through Tower.

Kubernetes reserves names that begin with ``system:`` for itself, and distributions bind their administrators
under names of their own.  Who may impersonate any of them is as good as a cluster-admin.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import field, frozen

from tower.errors import Invalid

#: What Kubernetes reserves for itself.
PREFIX = "system:"

#: Administrators' names outside that prefix: those that a distribution itself binds to cluster-admin, or
#: knows as its administrators, and that people would not choose for a user or a group of their own.
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

#: The group that the API server adds by itself to whoever is impersonated: asking for it gives nothing.
AUTHENTICATED = "system:authenticated"

#: Longest name that may be allowed, characters, and most of them.
NAME_LIMIT = 253
ALLOWED_LIMIT = 100

_BLANKS = " \t"


def is_system(name: str) -> bool:
    """Return whether *name* belongs to the cluster itself, as Kubernetes would read it from a header field.

    Kubernetes compares names byte for byte; Go's reader of header fields takes blanks and tabs off both ends.
    """
    name = name.strip(_BLANKS)
    return name.startswith(PREFIX) or name in ADMINISTRATORS


def check_allowed(name: str) -> str:
    """Return *name* if it makes sense to allow it.

    :raise Invalid: naming it and the cure.
    """
    if not (0 < len(name) <= NAME_LIMIT and name.isascii() and name.isprintable() and name == name.strip()):
        raise Invalid(f"{name!r}: must be 1 to {NAME_LIMIT} printable ASCII characters, no blank at an end")
    if name == AUTHENTICATED:
        raise Invalid(f"{name!r} needs no permission: Kubernetes adds this group to every user; leave it out")
    if not is_system(name):
        raise Invalid(
            f"{name!r} is not a system identity and needs no permission: correct the name (such as "
            f"{PREFIX}monitoring) or leave it out"
        )
    if name == PREFIX or "*" in name:
        raise Invalid(f"{name!r} is not a name, and patterns are not supported: give each name in full")
    return name


def _as_set(names: Collection[str]) -> frozenset[str]:
    return frozenset(names)


@frozen
class SystemIdentities:
    """The rule for users and groups of one cluster.

    :param allowed: names that its owner lets users act as all the same.
    :param allow_all: let users act as every one.
    """

    allowed: frozenset[str] = field(default=(), converter=_as_set)
    allow_all: bool = field(default=False, kw_only=True)

    def refuses(self, name: str) -> bool:
        """Return whether nobody may act as the user or the group *name*."""
        if self.allow_all or not is_system(name):
            return False
        return name.strip(_BLANKS) not in self.allowed


#: No system identity is allowed.
NONE_ALLOWED = SystemIdentities()
