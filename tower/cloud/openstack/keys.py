"""SSH keys among the metadata of servers.

An item ``tower-ssh-key:<user>:<start of a digest of the key>`` has ``<type> <base64>``.  Nova shows it to the
server itself, at its metadata service, where a command of its sshd finds it; nothing in an image does that by
itself.
"""

from __future__ import annotations

import re

from tower.cloud.config.public_key import read_public_key
from tower.cloud.errors import CloudError, NotImplementedByCloud

PREFIX = "tower-ssh-key"
#: Longest name and longest value of an item, characters.
ITEM_LIMIT = 255

_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")


def metadata_item(user: str, key: bytes) -> tuple[str, str]:
    """Return name and value of the item that lets the owner of *key* log in as *user*.

    :param key: ``<type> <base64>``, perhaps with a comment.
    :raise NotImplementedByCloud: the key is longer than a value may be.
    :raise CloudError: it is no key, or the user no user.
    """
    if not _USER.fullmatch(user):
        raise CloudError("a user of letters, digits, '_', '.' and '-' is wanted")
    public = read_public_key(key, _TYPES)
    if len(public.line) > ITEM_LIMIT:
        raise NotImplementedByCloud(
            f"unimplemented: this {public.type} key has {len(public.line)} characters, a value of a server's "
            f"metadata at most {ITEM_LIMIT}, and user data cannot be changed on a server that is there: "
            "use a key of type ed25519 or ecdsa"
        )
    return f"{PREFIX}:{user}:{public.digest[:16]}", public.line
