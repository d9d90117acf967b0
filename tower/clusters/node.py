"""Nodes that accept SSH, and their names and addresses."""

from __future__ import annotations

import re
from ipaddress import ip_address

from attrs import field, frozen

from tower.net.addresses import is_host, join_address, parse_address

#: Default port of sshd.
SSH_PORT = 22

#: A label of a host name, in the form that is looked up.
_LABEL = re.compile(r"[a-z0-9_](?:[-a-z0-9_]*[a-z0-9_])?", re.IGNORECASE)


@frozen
class Node:
    """One node.

    :ivar host: name or address of its sshd, IPv6 without brackets.
    :ivar port: of its sshd.
    :ivar name: its name in the cluster; default: *host*.
    :ivar aliases: its other names and addresses, IPv6 without brackets.
    """

    host: str
    port: int = SSH_PORT
    name: str = field(default="")
    aliases: frozenset[str] = frozenset()

    def __attrs_post_init__(self) -> None:
        """Set the default name."""
        if not self.name:
            object.__setattr__(self, "name", self.host)

    @property
    def address(self) -> str:
        """``host:port``, unique."""
        return join_address(self.host, self.port)

    @property
    def names(self) -> set[str]:
        """All its names and addresses, IPv6 without brackets."""
        return {self.name, self.host, *self.aliases}

    def is_called(self, host: str) -> bool:
        """Return whether *host*, IPv6 without brackets, is a name or address of this node."""
        return host in (self.name, self.host) or host in self.aliases


def parse_node(text: str, default_port: int = SSH_PORT) -> Node:
    """Parse ``host``, ``host:port``, ``[v6]:port`` or ``v6``.

    :raise ConfigurationError: with the expected form.
    """
    host, port = parse_address(text, default_port)
    return Node(canonical_host(host), port)


def canonical_host(host: str) -> str:
    """Return *host* in canonical form: IPv6 compressed and without brackets."""
    if ":" not in host and "[" not in host:
        return host  # a name, or IPv4, which has one form only
    bare = host.removeprefix("[").removesuffix("]")
    return str(ip_address(bare)) if _is_address(bare) else host


def is_node_name(text: str) -> bool:
    """Return whether *text* can be the name of a node: an address, or a host name.

    Host names consist of letters of any alphabet, digits, dashes, underscores and dots.
    """
    return _is_address(text) or (is_host(text) and all(map(_LABEL.fullmatch, _labels(text))))


def is_node_host(text: str) -> bool:
    """Return whether *text* can be a node's host: an address, or a name with a non-numeric last label."""
    return _is_address(text) or (is_node_name(text) and not _labels(text)[-1].isdigit())


def _labels(name: str) -> list[str]:
    return name.encode("idna").decode("ascii").removesuffix(".").split(".")


def _is_address(text: str) -> bool:
    try:
        ip_address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
