"""A node that accepts SSH, as a list of nodes names it."""

from __future__ import annotations

import re
from ipaddress import ip_address

from attrs import field, frozen

from tower.net.addresses import is_host, join_address, parse_address

#: Where sshd listens unless somebody says otherwise.
SSH_PORT = 22

#: A part of a name, in the form in which it is looked up.
_LABEL = re.compile(r"[a-z0-9_](?:[-a-z0-9_]*[a-z0-9_])?", re.IGNORECASE)


@frozen
class Node:
    """One node.

    :ivar host: name or address at which its sshd is reached, IPv6 without brackets.
    :ivar port: of its sshd.
    :ivar name: what the cluster calls it; *host* where nobody says.
    :ivar aliases: whatever else it is called by: its other names and addresses, IPv6 without brackets.
    """

    host: str
    port: int = SSH_PORT
    name: str = field(default="")
    aliases: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        """Give it a name."""
        if not self.name:
            object.__setattr__(self, "name", self.host)

    @property
    def address(self) -> str:
        """``host:port``, which no other node has."""
        return join_address(self.host, self.port)

    @property
    def names(self) -> set[str]:
        """All that it is called by, IPv6 without brackets."""
        return {self.name, self.host, *self.aliases}

    def is_called(self, host: str) -> bool:
        """Tell whether *host*, IPv6 without brackets, means this node."""
        return host in (self.name, self.host) or host in self.aliases


def parse_node(text: str, default_port: int = SSH_PORT) -> Node:
    """Read ``host``, ``host:port``, ``[v6]:port`` or ``v6``.

    :raise ConfigurationError: saying what is wanted.
    """
    host, port = parse_address(text, default_port)
    return Node(canonical_host(host), port)


def canonical_host(host: str) -> str:
    """Return *host* in the one way to write it: IPv6 short and without brackets."""
    if ":" not in host and "[" not in host:
        return host  # a name, or IPv4, of which there is one way
    bare = host.removeprefix("[").removesuffix("]")
    return str(ip_address(bare)) if _is_address(bare) else host


def is_node_name(text: str) -> bool:
    """Tell whether a node can be called *text*: an address, or a name.

    Names are of letters of any alphabet, digits, dashes, underscores and dots.
    """
    return _is_address(text) or (is_host(text) and all(map(_LABEL.fullmatch, _labels(text))))


def is_node_host(text: str) -> bool:
    """Tell whether a node can be reached at *text*: an address, or a name that does not end with a number."""
    return _is_address(text) or (is_node_name(text) and not _labels(text)[-1].isdigit())


def _labels(name: str) -> list[str]:
    return name.encode("idna").decode("ascii").removesuffix(".").split(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
