"""Names of users and groups that Kubernetes and Tower reserve, so that no credential may have them."""

from __future__ import annotations

from collections.abc import Iterable

from tower.errors import Forbidden, Invalid
from tower.kube.access.service_accounts import groups_of_account
from tower.kube.canonical_head import identity_lines
from tower.kube.system_identities import (
    AUTHENTICATED,
    NAME_LIMIT,
    NONE_ALLOWED,
    OWN_PREFIX,
    SystemIdentities,
    is_reserved,
)
from tower.kube.system_identities import PREFIX as _SYSTEM
from tower.web.access.authentication.identity import Identity

#: Maximum number of groups of a user; each is a header field of every request.
GROUPS_LIMIT = 256

#: Largest size of these fields, B; agents accept heads of 64 KiB.
NAMES_LIMIT = 32 * 1024

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
        if (what, name) != _EVERY_USER and is_reserved(name, identities):
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
        if is_reserved(name, identities):
            raise Invalid(
                f"{what} {name!r}: {_why(name)}: choose another name, and bind it to a role "
                "(such as cluster-admin)" + _allowing(name, allowing)
            )
    size = len(identity_lines(user, [name for _, name in names[1:]]))
    if size > NAMES_LIMIT:
        raise Invalid(f"the names have {size} B in a request, and {NAMES_LIMIT} are the limit: omit groups")


def check_foreign(user: str, groups: Iterable[str]) -> tuple[str, ...]:
    """Check the names of a user that Tower did not issue a credential for; return the groups.

    The group that Kubernetes adds to every user is dropped.

    :raise ValueError: with the value and the rule.
    """
    names = [each for each in _names(user, groups) if each != _EVERY_USER]
    if len(names) > GROUPS_LIMIT + 1:
        raise ValueError(f"{len(names) - 1} groups: the limit is {GROUPS_LIMIT}")
    for what, name in names:
        if not (0 < len(name) <= NAME_LIMIT and name.isprintable() and name == name.strip()):
            raise ValueError(
                f"{what} {name!r}: must be 1 to {NAME_LIMIT} printable characters, without blanks at the ends"
            )
        if is_reserved(name):
            raise ValueError(f"{what} {name!r}: {_why(name)}")
    return tuple(name for _, name in names[1:])


def check_reviewed(user: str, groups: Iterable[str]) -> tuple[str, ...]:
    """Do the same for a user that another authenticator found: it may be a service account.

    Access policies give service accounts other names in members.

    :raise ValueError: with the value and the rule.
    """
    own = groups_of_account(user)
    if not own or len(user) > NAME_LIMIT:
        return check_foreign(user, groups)
    found = list(dict.fromkeys(groups))
    others = check_foreign("account", [each for each in found if each not in own])
    return (*(each for each in found if each in own), *others)


def _names(user: str, groups: Iterable[str]) -> list[tuple[str, str]]:
    return [("user", user), *(("group", group) for group in groups)]


def _why(name: str) -> str:
    if name.startswith(OWN_PREFIX):
        return f"names with the prefix {OWN_PREFIX!r} are reserved for Tower"
    if name.startswith(_SYSTEM):
        return f"names with the prefix {_SYSTEM!r} are reserved for the cluster itself"
    return "it is an administrator's name in a Kubernetes distribution"


def _allowing(name: str, cluster: str) -> str:
    """Return how to allow *name* in *cluster*, if that is possible."""
    if not cluster or name.startswith(OWN_PREFIX):
        return ""
    return f"; or allow it with 'tower cluster set {cluster} --allow-system-identity {name}'"
