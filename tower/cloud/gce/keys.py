"""SSH keys in Compute Engine's metadata, by the rules of Google's guest agent; no I/O.

The items ``ssh-keys`` and, deprecated, ``sshKeys`` have lines ``<user>:<type> <key> <comment>``; the comment
of temporary keys is ``google-ssh {"expireOn": ...}``.  An instance ignores its project's keys if its own
metadata has ``block-project-ssh-keys`` or an item ``sshKeys``, and all keys with OS Login.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tower.cloud.errors import CloudError
from tower.cloud.gce.config import NEW_ITEM, OLD_ITEM

#: Maximum size of a metadata item's value, B.
VALUE_LIMIT = 256 << 10


def key_line(user: str, key: bytes) -> str:
    """Return the line for a user's key.

    :param key: ``<type> <base64>`` with an optional comment.
    :raise CloudError: a character is not allowed in such a line.
    """
    text = key.decode("ascii", "replace").strip()
    if not re.fullmatch(r"[^\s:]+", user) or not re.fullmatch(r"[\x20-\x7e]+", text):
        raise CloudError("the user must have no spaces and colons, and the key must be one line")
    return f"{user}:{text} {user}@{user}"


def find_item(metadata: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    """Return the first item with a key in a ``Metadata`` object of the API."""
    for each in metadata.get("items") or ():
        if each.get("key") == key:
            found: dict[str, Any] = each
            return found
    return None


def value_of(metadata: Mapping[str, Any], key: str) -> str:
    """Return an item's value; empty if the item is missing."""
    item = find_item(metadata, key)
    return str(item.get("value") or "") if item else ""


def has_line(value: str, line: str) -> bool:
    """Return whether *line* is one of the lines of *value*."""
    return any(each.strip() == line for each in value.split("\n"))


def items_to_change(metadata: Mapping[str, Any], line: str, wanted: Sequence[str], *, own: bool) -> list[str]:
    """Return the keys of the items that need *line*.

    A missing `OLD_ITEM` is only added if it is the only wanted one, and never to an instance: there it would
    disable the project's keys.

    :param wanted: `NEW_ITEM`, `OLD_ITEM` or both.
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
    """Return a ``Metadata`` object with *line* appended to the items *keys*.

    :raise CloudError: an item would be too large.
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
            raise CloudError(f"the metadata item {key} is full: remove lines of old keys")
    return changed


def ignores_project_keys(own: Mapping[str, Any], project: Mapping[str, Any]) -> str:
    """Return why an instance with the ``Metadata`` *own* ignores its project's keys; empty: it does not."""
    login = value_of(own, "enable-oslogin") or value_of(project, "enable-oslogin")
    if login.lower() == "true":
        return "enable-oslogin"
    if value_of(own, "block-project-ssh-keys").lower() == "true":
        return "block-project-ssh-keys"
    return f"its own {OLD_ITEM}" if value_of(own, OLD_ITEM) else ""
