"""Names of service accounts and of their groups."""

from __future__ import annotations

import re

#: Prefix of users that are service accounts, and the group of all of them.
USER_PREFIX = "system:serviceaccount:"
EVERY_ACCOUNT = "system:serviceaccounts"

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_NAMESPACE = re.compile(rf"(?=.{{1,63}}\Z){_LABEL}")
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


def are_names(namespace: str, name: str) -> bool:
    """Return whether a service account can have this namespace and name."""
    return bool(_NAMESPACE.fullmatch(namespace) and _NAME.fullmatch(name))


def user_of_account(namespace: str, name: str) -> str:
    """Return the user that a service account is."""
    return f"{USER_PREFIX}{namespace}:{name}"


def groups_of_namespace(namespace: str) -> tuple[str, str]:
    """Return the groups of the service accounts in *namespace*."""
    return EVERY_ACCOUNT, f"{EVERY_ACCOUNT}:{namespace}"


def groups_of_account(user: str) -> tuple[str, ...]:
    """Return the groups of the service account *user*; empty for other users."""
    parts = user.removeprefix(USER_PREFIX).split(":")
    if not user.startswith(USER_PREFIX) or len(parts) != 2 or not are_names(*parts):
        return ()
    return groups_of_namespace(parts[0])
