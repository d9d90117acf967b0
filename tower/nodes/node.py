"""A node that accepts SSH, as a list of nodes names it."""

from __future__ import annotations

from ipaddress import ip_address

from attrs import field, frozen

from tower.policy import join_address, parse_address

#: Where sshd listens unless somebody says otherwise.
SSH_PORT = 22


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

    def is_called(self, host: str) -> bool:
        """Tell whether *host*, IPv6 without brackets, means this node."""
        return host in (self.name, self.host) or host in self.aliases


def parse_node(text: str, default_port: int = SSH_PORT) -> Node:
    """Read ``host``, ``host:port``, ``[v6]:port`` or ``v6``.

    :raise ConfigurationError: saying what is wanted.
    """
    host, port = parse_address(text, default_port)
    return Node(usual(host), port)


def usual(host: str) -> str:
    """Return *host* in the one way to write it: IPv6 short and without brackets."""
    bare = host.removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(bare))
    except ValueError:
        return host
