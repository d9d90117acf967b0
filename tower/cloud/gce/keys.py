"""SSH keys in the metadata of Compute Engine, by the rules of Google's guest agent; without I/O.

An item ``ssh-keys``, or ``sshKeys`` in the older way, has lines ``<user>:<type> <key> <comment>``, those of
temporary keys with a comment ``google-ssh {"expireOn": ...}``.  An instance takes those of its project unless
its own metadata say ``block-project-ssh-keys``, or has an item ``sshKeys`` itself; and none at all where OS
Login is on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tower.cloud.errors import CloudError
from tower.cloud.gce.config import NEW_ITEM, OLD_ITEM

#: Largest value of a metadata item, B.
VALUE_LIMIT = 256 << 10


def key_line(user: str, key: bytes) -> str:
    """Return the line that lets the owner of *key* log in as *user*.

    :param key: ``<type> <base64>``, perhaps with a comment.
    :raise CloudError: either would be read as something else.
    """
    text = key.decode("ascii", "replace").strip()
    if not re.fullmatch(r"[^\s:]+", user) or not re.fullmatch(r"[\x20-\x7e]+", text):
        raise CloudError("a user without spaces and colons and a key in one line are wanted")
    return f"{user}:{text} {user}@{user}"


def find_item(metadata: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Return the first item of that key in an API's ``Metadata`` object."""
    for each in metadata.get("items") or ():
        if each.get("key") == key:
            found: dict[str, Any] = each
            return found
    return None


def value_of(metadata: Mapping[str, Any], key: str) -> str:
    """Return an item's value; empty if there is no such item."""
    item = find_item(metadata, key)
    return str(item.get("value") or "") if item else ""


def has_line(value: str, line: str) -> bool:
    """Tell whether *line* is one of the lines of *value*, not merely somewhere in it."""
    return any(each.strip() == line for each in value.split("\n"))


def items_to_change(metadata: Mapping[str, Any], line: str, wanted: Sequence[str], *, own: bool) -> list[str]:
    """Return the keys of the items that *line* is missing in.

    The older item is only added to where it is alone wanted: beside the newer one it counts where it exists.
    To an instance it is never added, as there it would shut out the project's keys.

    :param wanted: of `NEW_ITEM` and `OLD_ITEM`.
    :param own: whether the metadata is an instance's own.
    """
    keys = []
    for key in wanted:
        item = find_item(metadata, key)
        if item is None and key == OLD_ITEM and (own or NEW_ITEM in wanted):
            continue
        if item is None or not has_line(str(item.get("value") or ""), line):
            keys.append(key)
    if own and not any(find_item(metadata, key) or key in keys for key in wanted):
        keys.append(NEW_ITEM)
    return keys


def with_line(metadata: Mapping[str, Any], line: str, keys: Sequence[str]) -> dict[str, Any]:
    """Return a ``Metadata`` object with *line* at the end of the items *keys*; everything else is as it was.

    :raise CloudError: there is no room for it.
    """
    items = [dict(each) for each in metadata.get("items") or ()]
    changed = {**metadata, "items": items}
    for key in keys:
        item = find_item(changed, key)
        if item is None:
            items.append({"key": key, "value": line})
            continue
        old = str(item.get("value") or "")
        item["value"] = f"{old}\n{line}" if old else line
        if len(item["value"].encode()) > VALUE_LIMIT:
            raise CloudError(f"the metadata item {key} is full: remove lines of old keys from it")
    return changed


def why_deaf(own: Mapping[str, Any], project: Mapping[str, Any]) -> str:
    """Return why an instance does not take the keys of its project; empty: it does.

    :param own: the instance's ``Metadata`` object.
    """
    login = value_of(own, "enable-oslogin") or value_of(project, "enable-oslogin")
    if login.lower() == "true":
        return "enable-oslogin"
    if value_of(own, "block-project-ssh-keys").lower() == "true":
        return "block-project-ssh-keys"
    return f"its own {OLD_ITEM}" if value_of(own, OLD_ITEM) else ""
