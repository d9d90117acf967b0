"""Users and groups that belong to the cluster itself: nobody is let act as one through Tower.

Kubernetes reserves names that begin with ``system:`` for itself, and distributions bind their administrators
under names of their own.  Who may impersonate any of them is as good as a cluster-admin.
"""

from __future__ import annotations

from collections.abc import Collection

#: What Kubernetes reserves for itself.
PREFIX = "system:"

#: Administrators' names outside that prefix.
ADMINISTRATORS = frozenset({"kubeadm:cluster-admins"})

#: The group that the API server adds by itself to whoever is impersonated, so that asking for it gives nothing.
AUTHENTICATED = "system:authenticated"


class SystemIdentities:
    """The rule for users and groups of one cluster.

    :param allowed: names that its owner lets users act as all the same.
    :param allow_all: let users act as every one.
    """

    def __init__(self, allowed: Collection[str] = (), *, allow_all: bool = False) -> None:
        self.allowed = frozenset(allowed)
        self.allow_all = allow_all

    def refuses(self, name: str) -> bool:
        """Return whether nobody may act as the user or the group *name*."""
        if self.allow_all or name in self.allowed:
            return False
        return name.startswith(PREFIX) or name in ADMINISTRATORS


#: No system identity is allowed.
NONE_ALLOWED = SystemIdentities()
