"""The names of a user in a member: those of the door, changed by a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from attrs import field, frozen

from tower.kube.access.service_accounts import EVERY_ACCOUNT, USER_PREFIX
from tower.kube.system_identities import AUTHENTICATED, SystemIdentities, is_reserved
from tower.kube.system_identities import PREFIX as SYSTEM

#: Stands for the user's name in a template, and for the user's own groups in a list.
USER = "{user}"
OWN_GROUPS = "*"

#: Default in place of ``system:`` in the names of service accounts that the door authenticated.
DOOR = "door:"


@frozen
class MemberNames:
    """The user and the groups that a policy gives to a user in a member.

    :ivar user: template with `USER`.
    :ivar groups: names, or `OWN_GROUPS` for the user's own ones.
    :ivar mapping: groups of the member by groups of the door.
    :ivar account_prefix: replaces ``system:`` in the names of a service account.
    :ivar uid: whether the member gets the user's UID.
    :ivar extra: keys of the facts about the user that the member gets, or `OWN_GROUPS` for all.
    """

    user: str = USER
    groups: tuple[str, ...] = (OWN_GROUPS,)
    mapping: Mapping[str, str] = field(factory=dict, hash=False)
    account_prefix: str = DOOR
    uid: bool = False
    extra: tuple[str, ...] = ()

    def facts_of(self, extra: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, tuple[str, ...]]:
        """Return the facts about a user that the member gets, of those of the door."""
        return {key: values for key, values in extra if key in self.extra or OWN_GROUPS in self.extra}

    def user_of(self, name: str) -> str:
        """Return the user's name in the member."""
        return self.user.replace(USER, self._renamed(name))

    def groups_of(self, name: str, groups: Iterable[str], identities: SystemIdentities) -> list[str]:
        """Return the groups of the user *name* in the member; reserved names of the door are dropped.

        :param groups: those of the door.
        :param identities: the system groups that users of the member may have.
        """
        own = list(groups)
        found: dict[str, None] = {}
        for group in self.groups:
            if group != OWN_GROUPS:
                found[group] = None
                continue
            renamed = map(self._renamed, own) if name.startswith(USER_PREFIX) else own
            found.update((each, None) for each in renamed if not is_reserved(each, identities))
        found.update((self.mapping[each], None) for each in own if each in self.mapping)
        return [group for group in found if group != AUTHENTICATED]

    def _renamed(self, name: str) -> str:
        """Return the name of a service account, or of one of its groups, with the prefix."""
        is_account = name.startswith((USER_PREFIX, f"{EVERY_ACCOUNT}:")) or name == EVERY_ACCOUNT
        return self.account_prefix + name.removeprefix(SYSTEM) if is_account else name
