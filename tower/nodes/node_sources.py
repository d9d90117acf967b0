"""Sources of the list of a cluster's nodes.

A `Lister` is called every few seconds.  While it raises, the tunnels stay open; an empty list is a valid
answer and closes all tunnels.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from twisted.internet.interfaces import IReactorTime

from tower.cloud.interfaces import IInstances
from tower.clusters.node import SSH_PORT, Node, canonical_host, is_node_host, is_node_name
from tower.errors import ConfigurationError, TowerError
from tower.files import ANYWHERE, Files, read_plain
from tower.kube.client import APIClient
from tower.net.addresses import parse_address
from tower.reactor.cooperate import map_cooperatively

#: Path of the nodes in the API.
NODES = "/api/v1/nodes"

#: Largest file of nodes, B.
FILE_LIMIT = 4 * 1024 * 1024

#: Format of a line in a file.
_LINE = "a line is HOST, HOST:PORT or [IPV6]:PORT, then other names of that node"

#: Longest name or address of a node, characters, as in Kubernetes.
LONGEST_NAME = 253

#: Returns the current nodes.
Lister: TypeAlias = Callable[[], Awaitable[Sequence[Node]]]

# Name of a node; type and value of each of its addresses; SSH port.
_Found: TypeAlias = tuple[str, Sequence[tuple[str, str]], int]


class ListingFailed(TowerError):
    """The list of nodes is not available now."""


class NoPreferredAddress(ListingFailed):
    """A node has addresses, but none of the preferred types."""

    def __init__(self, addresses: Iterable[tuple[str, str]]) -> None:
        known = " ".join(f"{{{kind} {address}}}" for kind, address in addresses)
        super().__init__(f"no preferred addresses found; known addresses: [{known}]")


def preferred_node(
    name: str, addresses: Sequence[tuple[str, str]], address_types: Sequence[str], ssh_port: int = SSH_PORT
) -> Node:
    """Return the node *name* with the first address of the first type that it has.

    Its other addresses and names become aliases.

    :param addresses: type and value of each.
    :param address_types: in order of preference.
    :raise NoPreferredAddress: it has no address of these types.
    """
    for wanted in address_types:
        for kind, address in addresses:
            if kind == wanted and address:
                others = {canonical_host(other) for _, other in addresses if other}
                host = canonical_host(address)
                return Node(host, ssh_port, name, frozenset(others - {host, name}))
    raise NoPreferredAddress(addresses)


async def _preferred_nodes(
    clock: IReactorTime, found: Iterable[_Found], address_types: Sequence[str]
) -> list[Node]:
    """Return the nodes that have a preferred address.

    :param clock: a long list is handled in several reactor turns.
    :raise NoPreferredAddress: there are nodes, but none has one.
    :raise ListingFailed: a node's name is invalid.
    """
    lacking: NoPreferredAddress | None = None

    def read(each: _Found) -> Node | None:
        nonlocal lacking
        name, addresses, port = each
        if not _is_word(name):
            raise ListingFailed(f"{name[:LONGEST_NAME]!r} is not a valid name of a node")
        good = [(kind, address) for kind, address in addresses if _is_word(address)]
        try:
            return preferred_node(name, good, address_types, port)
        except NoPreferredAddress as e:
            lacking = e
            return None

    nodes = [node for node in await map_cooperatively(clock, found, read) if node is not None]
    if lacking is not None and not nodes:
        raise lacking
    return nodes


def _is_word(text: str) -> bool:
    """Return whether *text* is fit to be shown as a name or an address."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and " " not in text


def fixed_nodes(nodes: Sequence[Node]) -> Lister:
    """Always list *nodes*."""

    async def listing() -> Sequence[Node]:
        return nodes

    return listing


def api_nodes(
    api: APIClient, address_types: Sequence[str], ssh_port: int = SSH_PORT, *, clock: IReactorTime
) -> Lister:
    """List the nodes of the cluster's API, ready or not.

    Nodes without a preferred address are left out; it is an error if no node has one.
    """

    async def listing() -> Sequence[Node]:
        found = ((*_of_object(item), ssh_port) for item in await api.items(NODES))
        return await _preferred_nodes(clock, found, address_types)

    return listing


def _of_object(item: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return name and addresses of a ``Node`` object; raise `ListingFailed` if it is not one."""
    try:
        name = item["metadata"]["name"]
        known = item.get("status", {}).get("addresses") or ()
        addresses = [(address["type"], address["address"]) for address in known]
    except (TypeError, KeyError, AttributeError) as e:
        raise ListingFailed(f"the list at {NODES} contains something other than nodes") from e
    if not all(isinstance(text, str) for text in (name, *(text for pair in addresses for text in pair))):
        raise ListingFailed(f"the list at {NODES} contains something other than nodes")
    return name, addresses


def cloud_nodes(
    instances: IInstances, address_types: Sequence[str], ssh_port: int = SSH_PORT, *, clock: IReactorTime
) -> Lister:
    """List a cloud's running instances; addresses as with `api_nodes`.

    :param ssh_port: default for instances whose port the cloud does not know.
    """

    async def listing() -> Sequence[Node]:
        found = (
            (each.name, [(at.type, at.address) for at in each.addresses], each.ssh_port or ssh_port)
            for each in await instances.list_instances()
            if each.running
        )
        return await _preferred_nodes(clock, found, address_types)

    return listing


def file_nodes(path: Path, ssh_port: int = SSH_PORT, files: Files = ANYWHERE) -> Lister:
    """List the nodes in a file, read at each call; see `parse_nodes`.

    A missing or empty file is a failure, because it may be about to be written.

    :param files: opens *path*.
    """

    async def listing() -> Sequence[Node]:
        try:
            text = read_plain(path, FILE_LIMIT + 1, files)
        except OSError as e:
            raise ListingFailed(f"{path}: {e.strerror}") from e
        if len(text) > FILE_LIMIT:
            raise ListingFailed(f"{path}: larger than {FILE_LIMIT} B")
        nodes = parse_nodes(text.decode("utf-8", "replace"), str(path), ssh_port)
        if not nodes:
            raise ListingFailed(f"{path}: it lists no node: add one, or disable or remove the cluster")
        return nodes

    return listing


def parse_nodes(text: str, name: str, ssh_port: int = SSH_PORT) -> list[Node]:
    """Read one node per line: the address of its sshd, then its other names.

    Users see the first of the other names.  ``#`` begins a comment.  Repeated nodes are
    listed once.

    :param name: of the file.
    :raise ListingFailed: with file and line.
    """
    nodes: dict[str, Node] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host, port = parse_address(words[0], ssh_port)
        except ConfigurationError:
            raise _invalid_word(name, number, 1) from None
        if not (_is_word(words[0]) and is_node_host(host)):
            raise _invalid_word(name, number, 1)
        for position, word in enumerate(words[1:], 2):
            if not (_is_word(word) and is_node_name(word)):
                raise _invalid_word(name, number, position)
        names = [canonical_host(word) for word in words[1:]]
        node = Node(canonical_host(host), port, names[0] if names else "", frozenset(names))
        nodes.setdefault(node.address, node)
    return list(nodes.values())


def _invalid_word(name: str, number: int, position: int) -> ListingFailed:
    """Return the error about a word without quoting it: a wrong file may contain a secret."""
    return ListingFailed(f"{name}:{number}: word {position} is neither a name nor an address: {_LINE}")


def fallback(first: Lister, *others: Lister) -> Lister:
    """List what the first of these returns that does not fail.

    :return: a lister that raises `ListingFailed` with all reasons when all fail.
    """

    async def listing() -> Sequence[Node]:
        reasons = []
        for each in (first, *others):
            try:
                return await each()
            except TowerError as e:
                reasons.append(str(e))
        raise ListingFailed("; ".join(dict.fromkeys(reasons)))

    return listing
