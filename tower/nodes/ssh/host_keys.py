"""Verification of host keys, and the errors about them.

`tower.nodes.ssh.known_hosts.KnownHosts` reads OpenSSH's files.
"""

from __future__ import annotations

from collections.abc import Collection

from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.signatures import SIGNATURES, key_type
from tower.errors import PeerError


class HostKeyRefused(PeerError):
    """A node's host key, with *fingerprint*, is not accepted; the text names the cure."""

    for_peer = "host key not accepted"

    def __init__(self, text: str, seen: str) -> None:
        super().__init__(text)
        self.fingerprint = seen


class HostKeyUnknown(HostKeyRefused):
    """No host key of the node is known."""


class HostKeyRevoked(HostKeyRefused):
    """The key is revoked; this takes precedence over any file that lists it as valid."""


class HostKeys:
    """Verifies nodes by their host keys; this one accepts no key."""

    def kinds(self, node: Node) -> Collection[bytes]:
        """Return the types of the known keys of *node*."""
        return ()

    def algorithms(self, node: Node) -> list[bytes]:
        """Return the signature algorithms for *node*; see `preferred_algorithms`."""
        return preferred_algorithms(self.kinds(node))

    def knows(self, node: Node) -> bool:
        """Return whether a key of *node* is known."""
        return bool(self.kinds(node))

    def judge(self, node: Node, blob: bytes) -> None:
        """Accept the key *blob* that *node* presents and has not proved yet.

        Called once for each connection, before any secret is sent.

        :raise HostKeyRefused: the key is not accepted.
        """
        raise unknown_key(node, blob, "Tower")

    def accepted(self, node: Node, blob: bytes) -> None:
        """Record that *node* proved its key *blob* and accepted our login: the moment to pin a first key."""


class AnyHostKey(HostKeys):
    """``--ssh-host-keys=insecure-ignore``: accepts any key, as kube-apiserver did."""

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""


def preferred_algorithms(kinds: Collection[bytes]) -> list[bytes]:
    """Return all signature algorithms, those for keys of *kinds* first.

    A node has keys of several types and presents the type that we prefer; as in OpenSSH, we prefer a known
    one.
    """
    known = [name for kind, names in SIGNATURES.items() if kind in kinds for name in names]
    return known + [name for names in SIGNATURES.values() for name in names if name not in known]


def describe_key(blob: bytes) -> str:
    """Return type and fingerprint of a key, ``ssh-ed25519 SHA256:…``."""
    kind = key_type(blob)[:64].decode("ascii", "replace")
    return f"{''.join(filter(str.isprintable, kind))} {fingerprint(blob)}"


def describe_node(node: Node) -> str:
    """Return name and address of *node* for a message."""
    return f"node {node.name} ({node.address})" if node.name != node.host else f"node {node.address}"


def unknown_key(node: Node, blob: bytes, where: str) -> HostKeyUnknown:
    """Return the error for a node without a known key; *where* is the file that should list it."""
    return HostKeyUnknown(
        f"{describe_node(node)} presented the host key {describe_key(blob)}, but {where} has no key for it: "
        "compare it with the output of `ssh-keygen -lf` on the node, then add the output of "
        f"{_keyscan(node)}, or set --ssh-host-keys=accept-new to pin each node's first key",
        fingerprint(blob),
    )


def key_mismatch(node: Node, blob: bytes, expected: str) -> HostKeyRefused:
    """Return the error for a key that differs from *expected*, the known key with its file and line."""
    return HostKeyRefused(
        f"{describe_node(node)} presented the host key {describe_key(blob)}, not {expected}: either an "
        "attacker intercepts the connection, or the node was reinstalled; compare it with the output of "
        f"`ssh-keygen -lf` on the node, and if it matches, replace the known key with the "
        f"output of {_keyscan(node)}",
        fingerprint(blob),
    )


def revoked_key(node: Node, blob: bytes, where: str) -> HostKeyRevoked:
    """Return the error for a key that is revoked *where*, a file and line."""
    return HostKeyRevoked(
        f"{describe_node(node)} presented the host key {describe_key(blob)}, which {where} revokes: "
        "give the node a new key",
        fingerprint(blob),
    )


def _keyscan(node: Node) -> str:
    return f"`ssh-keyscan -p {node.port} {node.host}`"
