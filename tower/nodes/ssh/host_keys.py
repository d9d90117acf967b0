"""Whether a node is the one that it should be: what is asked about host keys, and what may be said.

`tower.nodes.ssh.known_hosts.KnownHosts` answers from an OpenSSH file.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from tower.clusters.node import Node
from tower.conch.transport.keys import fingerprint
from tower.conch.transport.signatures import SIGNATURES, key_type
from tower.errors import PeerError


class HostKeyRefused(PeerError):
    """A node showed a host key that is not its own as far as we know; the text says what to do.

    :ivar fingerprint: of the key that it showed.
    """

    for_peer = "host key not accepted"

    def __init__(self, text: str, seen: str) -> None:
        super().__init__(text)
        self.fingerprint = seen


class HostKeyUnknown(HostKeyRefused):
    """Nothing is known of any key of that node."""


class HostKeyRevoked(HostKeyRefused):
    """The key must not be used any more, whoever else knows it."""


class HostKeys(Protocol):
    """Judges host keys."""

    def algorithms(self, node: Node) -> list[bytes]:
        """Return the signatures by which *node* may prove its key, preferred first; see `preferred_algorithms`."""

    def judge(self, node: Node, blob: bytes) -> None:
        """Accept the key *blob*, which *node* shows and has not proved yet.

        Called once for each connection, before anything that is secret is sent.

        :raise HostKeyRefused: it is not its key.
        """

    def accepted(self, node: Node, blob: bytes) -> None:
        """Note that *node* proved to hold *blob* and has let us in: the moment to learn a first key."""


class AnyHostKey:
    """``--ssh-host-keys=insecure-ignore``: believes whoever answers, as kube-apiserver did."""

    def algorithms(self, node: Node) -> list[bytes]:
        """See `HostKeys.algorithms`."""
        return preferred_algorithms(())

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`."""

    def accepted(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.accepted`."""


def preferred_algorithms(kinds: Collection[bytes]) -> list[bytes]:
    """Return all signatures that we can check, those of keys of these types first.

    A node has keys of several types and shows one, of the type that we want most: so that has to be one that
    is known, as OpenSSH does it.
    """
    known = [name for kind, names in SIGNATURES.items() if kind in kinds for name in names]
    return known + [name for names in SIGNATURES.values() for name in names if name not in known]


def describe_key(blob: bytes) -> str:
    """Return type and fingerprint of a key for people, ``ssh-ed25519 SHA256:…``."""
    kind = key_type(blob)[:64].decode("ascii", "replace")
    return f"{''.join(filter(str.isprintable, kind))} {fingerprint(blob)}"


def describe_node(node: Node) -> str:
    """Return how a text calls *node*: by its name and where it is reached."""
    return f"node {node.name} ({node.address})" if node.name != node.host else f"node {node.address}"


def unknown_key(node: Node, blob: bytes, where: str) -> HostKeyUnknown:
    """Return the error for a key of a node of which nothing is known.

    :param where: the file, or whatever else should know it.
    """
    return HostKeyUnknown(
        f"{describe_node(node)} showed the host key {describe_key(blob)}, and {where} knows no key of it: compare it "
        f"with what `ssh-keygen -lf` says on the node itself, then add the line that {_keyscan(node)} "
        "prints, or have each node's first key learned with --ssh-host-keys=accept-new",
        fingerprint(blob),
    )


def key_mismatch(node: Node, blob: bytes, expected: str) -> HostKeyRefused:
    """Return the error for another key than a known one.

    :param expected: that one, and the file and line that it stands in.
    """
    return HostKeyRefused(
        f"{describe_node(node)} showed the host key {describe_key(blob)}, not {expected}: either somebody is in "
        "between, or the node was made anew; compare it with what `ssh-keygen -lf` says on the node itself, "
        f"and if it is right replace what is known by the line that {_keyscan(node)} prints",
        fingerprint(blob),
    )


def revoked_key(node: Node, blob: bytes, where: str) -> HostKeyRevoked:
    """Return the error for a key that is revoked.

    :param where: the file and the line that says so.
    """
    return HostKeyRevoked(
        f"{describe_node(node)} showed the host key {describe_key(blob)}, which {where} revokes: "
        "give the node a new key",
        fingerprint(blob),
    )


def _keyscan(node: Node) -> str:
    return f"`ssh-keyscan -p {node.port} {node.host}`"
