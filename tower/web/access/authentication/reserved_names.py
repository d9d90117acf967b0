"""Names of users and groups that Kubernetes and Tower reserve, so that no credential may have them."""

from __future__ import annotations

from collections.abc import Iterable

from tower.errors import Forbidden, Invalid
from tower.kube.system_identities import AUTHENTICATED, NONE_ALLOWED, SystemIdentities
from tower.kube.system_identities import PREFIX as _SYSTEM
from tower.web.access.authentication.identity import Identity

#: Maximum number of groups of a credential; each is a header of every request.
GROUPS_LIMIT = 64

# Prefix of names that Tower reserves.
_OWN = "tower:"

# Kubernetes adds this group to every user, so it grants nothing more.
_EVERY_USER = ("group", AUTHENTICATED)


def authorize_identity(
    identity: Identity, cluster: str, identities: SystemIdentities, *, is_ours: bool = False
) -> None:
    """Reject reserved names, also in credentials that an earlier version issued.

    :param identities: the system users and groups that users of that cluster may impersonate.
    :param is_ours: whether its record may allow more.
    :raise Forbidden: with the value and the cure.
    """
    for what, name in _names(identity.user, identity.groups):
        if (what, name) != _EVERY_USER and _is_reserved(name, identities):
            raise Forbidden(
                f"the credential of {identity.user} for cluster {cluster} is rejected because of its {what} "
                f"{name!r}: {_why(name)}; request a kubeconfig without it"
                + _allowing(name, cluster if is_ours else ""),
                "reserved-identity",
            )


def check_grant(
    user: str, groups: Iterable[str], identities: SystemIdentities = NONE_ALLOWED, allowing: str = ""
) -> None:
    """Reject names in a kubeconfig that Kubernetes and Tower reserve.

    `tower.clusters.credentials` checks the syntax of names.

    :param identities: the system users and groups that users of the cluster may impersonate.
    :param allowing: the cluster whose record may allow more, or empty.
    :raise Invalid: with the value and the rule.
    """
    names = _names(user, groups)
    if len(names) > GROUPS_LIMIT + 1:
        raise Invalid(f"{len(names) - 1} groups: a kubeconfig has {GROUPS_LIMIT} at most")
    for what, name in names:
        if (what, name) == _EVERY_USER:
            raise Invalid(f"group {name!r}: Kubernetes adds it to every user: omit it")
        if _is_reserved(name, identities):
            raise Invalid(
                f"{what} {name!r}: {_why(name)}: choose another name, and bind it to a role "
                "(such as cluster-admin)" + _allowing(name, allowing)
            )


def _names(user: str, groups: Iterable[str]) -> list[tuple[str, str]]:
    return [("user", user), *(("group", group) for group in groups)]


def _is_reserved(name: str, identities: SystemIdentities) -> bool:
    return name.startswith(_OWN) or identities.refuses(name)


def _why(name: str) -> str:
    if name.startswith(_OWN):
        return f"names with the prefix {_OWN!r} are reserved for Tower"
    if name.startswith(_SYSTEM):
        return f"names with the prefix {_SYSTEM!r} are reserved for the cluster itself"
    return "it is an administrator's name in a Kubernetes distribution"


def _allowing(name: str, cluster: str) -> str:
    """Return how to allow *name* in *cluster*, if that is possible."""
    if not cluster or name.startswith(_OWN):
        return ""
    return f"; or allow it with 'tower cluster set {cluster} --allow-system-identity {name}'"
