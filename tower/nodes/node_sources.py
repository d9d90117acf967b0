"""Where the list of a cluster's nodes comes from.

A `Lister` is asked again and again.  It raises when it cannot say which nodes there are, and then the tunnels
stay as they are; a list without nodes is an answer, and closes all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tower.clusters.node import SSH_PORT, Node, canonical_host, is_node_host, is_node_name
from tower.errors import ConfigurationError, TowerError
from tower.files import ANYWHERE, Files, read_plain
from tower.net.addresses import parse_address
from tower.reactor.cooperate import map_cooperatively

#: Where nodes are in the API.
NODES = "/api/v1/nodes"

#: How long a file with nodes may be, B.
FILE_LIMIT = 4 * 1024 * 1024

#: What a line of a file is.
_LINE = "a line is HOST, HOST:PORT or [IPV6]:PORT, and behind it other names of that node"

#: Longest name or address of a node, characters, as Kubernetes has it.
LONGEST_NAME = 253

#: Returns the nodes that there are.
Lister: TypeAlias = Callable[[], Awaitable[Sequence[Node]]]


# Name of a node; type and address of each that it has; port of its sshd.
_Found: TypeAlias = tuple[str, Sequence[tuple[str, str]], int]


class ListingFailed(TowerError):
    """Nobody can say now which nodes there are."""


class NoPreferredAddress(ListingFailed):
    """A node has addresses, but none at which its sshd is to be reached."""

    def __init__(self, addresses: Iterable[tuple[str, str]]) -> None:
        known = " ".join(f"{{{kind} {address}}}" for kind, address in addresses)
        super().__init__(f"no preferred addresses found; known addresses: [{known}]")


class ListsItems(Protocol):
    """What is needed of `tower.kube.client.APIClient`."""

    async def items(self, path: str) -> Sequence[Any]:
        """Return what is in the list at *path*."""


class Address(Protocol):
    """What is needed of `tower.cloud.interfaces.NodeAddress`."""

    @property
    def type(self) -> str:
        """``ExternalIP``, ``InternalIP``, ``Hostname``, ..."""

    @property
    def address(self) -> str:
        """A name or an address."""


class Instance(Protocol):
    """What is needed of `tower.cloud.interfaces.Instance`."""

    @property
    def name(self) -> str:
        """What the cloud calls it."""

    @property
    def addresses(self) -> Sequence[Address]:
        """All that it has."""

    @property
    def running(self) -> bool:
        """Whether it runs."""

    @property
    def ssh_port(self) -> int:
        """Of its sshd; 0: the cloud does not know."""


class ListsInstances(Protocol):
    """What is needed of `tower.cloud.interfaces.IInstances`."""

    def list_instances(self) -> Awaitable[Sequence[Instance]]:
        """Return all instances of the cluster."""


def preferred_node(
    name: str, addresses: Sequence[tuple[str, str]], address_types: Sequence[str], ssh_port: int = SSH_PORT
) -> Node:
    """Return the node of that *name*, to be reached at the first address of the first type that it has.

    Its other addresses and names become its aliases.

    :param addresses: type and address of each.
    :param address_types: which are dialled, the preferred one first.
    :raise NoPreferredAddress: it has none of these.
    """
    for wanted in address_types:
        for kind, address in addresses:
            if kind == wanted and address:
                others = {canonical_host(other) for _, other in addresses if other}
                host = canonical_host(address)
                return Node(host, ssh_port, name, frozenset(others - {host, name}))
    raise NoPreferredAddress(addresses)


async def _preferred_nodes(clock: Any, found: Iterable[_Found], address_types: Sequence[str]) -> list[Node]:
    """Return those that have an address to be reached at.

    :param clock: an ``IReactorTime``: a fleet is looked at in pieces.
    :raise NoPreferredAddress: there are some, and none has one.
    :raise ListingFailed: a name cannot be one.
    """
    lacking: NoPreferredAddress | None = None

    def read(each: _Found) -> Node | None:
        nonlocal lacking
        name, addresses, port = each
        if not _is_word(name):
            raise ListingFailed(f"{name[:LONGEST_NAME]!r} is no name of a node")
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
    """Tell whether people and their terminals can be shown *text* as a name or an address."""
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and " " not in text


def fixed_nodes(nodes: Sequence[Node]) -> Lister:
    """List the same ones for ever."""

    async def listing() -> Sequence[Node]:
        return nodes

    return listing


def api_nodes(
    api: ListsItems, address_types: Sequence[str], ssh_port: int = SSH_PORT, *, clock: Any
) -> Lister:
    """List the nodes of the cluster's API, ready or not.

    Those that have none of the preferred addresses are left out; that none has one is an error.

    :param clock: an ``IReactorTime``.
    """

    async def listing() -> Sequence[Node]:
        found = ((*_of_object(item), ssh_port) for item in await api.items(NODES))
        return await _preferred_nodes(clock, found, address_types)

    return listing


def _of_object(item: Any) -> tuple[str, list[tuple[str, str]]]:
    """Return name and addresses of a ``Node`` of the API.

    :raise ListingFailed: it is none.
    """
    try:
        name = item["metadata"]["name"]
        known = item.get("status", {}).get("addresses") or ()
        addresses = [(address["type"], address["address"]) for address in known]
    except (TypeError, KeyError, AttributeError) as e:
        raise ListingFailed(f"what is listed at {NODES} are no nodes") from e
    if not all(isinstance(text, str) for text in (name, *(text for pair in addresses for text in pair))):
        raise ListingFailed(f"what is listed at {NODES} are no nodes")
    return name, addresses


def cloud_nodes(
    instances: ListsInstances, address_types: Sequence[str], ssh_port: int = SSH_PORT, *, clock: Any
) -> Lister:
    """List the instances that run; addresses as with `api_nodes`.

    :param ssh_port: of those for which the cloud knows none.
    :param clock: an ``IReactorTime``.
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
    """List the nodes in a file, which is read each time; see `parse_nodes`.

    One that is not there or holds no node is taken for one that is just being written, so it is a failure.

    :param files: where *path* is looked for.
    """

    async def listing() -> Sequence[Node]:
        try:
            text = read_plain(path, FILE_LIMIT + 1, files)
        except OSError as e:
            raise ListingFailed(f"{path}: {e.strerror}") from e
        if len(text) > FILE_LIMIT:
            raise ListingFailed(f"{path}: it is longer than {FILE_LIMIT} B")
        nodes = parse_nodes(text.decode("utf-8", "replace"), str(path), ssh_port)
        if not nodes:
            raise ListingFailed(f"{path}: there is no node in it; to have none, remove the cluster")
        return nodes

    return listing


def parse_nodes(text: str, name: str, ssh_port: int = SSH_PORT) -> list[Node]:
    """Read one node in a line: where its sshd is reached, and behind it what else the node is called.

    The first of the other names is the one that users know it by.  What follows a ``#`` is a comment, and a
    node that is there already is not listed again.

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
            raise _odd(name, number, 1) from None
        if not (_is_word(words[0]) and is_node_host(host)):
            raise _odd(name, number, 1)
        for place, word in enumerate(words[1:], 2):
            if not (_is_word(word) and is_node_name(word)):
                raise _odd(name, number, place)
        names = [canonical_host(word) for word in words[1:]]
        node = Node(canonical_host(host), port, names[0] if names else "", frozenset(names))
        nodes.setdefault(node.address, node)
    return list(nodes.values())


def _odd(name: str, number: int, place: int) -> ListingFailed:
    """Return the error about a word, which is not in it: the file may be another one than was meant."""
    return ListingFailed(f"{name}:{number}: word {place} is no name and no address: {_LINE}")


def fallback(first: Lister, *others: Lister) -> Lister:
    """List what the first of these says that can say anything.

    :return: a lister that raises `ListingFailed` with all reasons when none can.
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
