"""Rejects a list of nodes that names no connected node, unless one of its nodes accepts a login.

Files are written with many tools, and a wrong one may look like a list of names: an error message, or the
list of another cluster.  It must not close working tunnels.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from twisted.internet import defer
from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.interfaces import IReactorTime

from tower.clusters.node import Node
from tower.errors import one_line
from tower.nodes.node_sources import Lister, ListingFailed

#: Nodes of such a list that are tried at each listing, chosen at random, and the time limit for that, s.
TRIED = 5
TIMEOUT = 10.0

#: Logs in at a node and disconnects; raises the reason if that fails.
Try: TypeAlias = Callable[[Node], Awaitable[object]]


def plausible(
    lister: Lister,
    connected: Callable[[], Sequence[Node]],
    attempt: Try,
    clock: IReactorTime,
    *,
    source: str,
    sample: Callable[[Sequence[Node], int], Sequence[Node]] = random.sample,
) -> Lister:
    """List what *lister* does, unless all of its nodes are new and none of them accepts a login.

    :param connected: returns the nodes with an open tunnel; without any, every list is used.
    :param source: of the list, for errors.
    :return: a lister that raises `ListingFailed` for such a list.
    """

    async def listing() -> Sequence[Node]:
        nodes = await lister()
        before = {node.address for node in connected()}
        if before and before.isdisjoint(node.address for node in nodes):
            tried = sample(nodes, min(TRIED, len(nodes)))
            problem = await _problem(tried, attempt, clock)
            if problem:
                raise ListingFailed(
                    f"{source}: it names none of the {len(before)} nodes that are connected; these stay "
                    f"until one of the listed nodes accepts a login; {problem}"
                )
        return nodes

    return listing


async def _problem(nodes: Sequence[Node], attempt: Try, clock: IReactorTime) -> str:
    """Return why no node of *nodes* accepts a login, with the first one's error; empty if one does."""
    if not nodes:
        return ""
    attempts = [Deferred.fromCoroutine(_attempt(attempt, node)).addTimeout(TIMEOUT, clock) for node in nodes]
    race: Deferred[Any] = DeferredList(attempts, fireOnOneCallback=True, consumeErrors=True)
    try:
        results = await race
    finally:
        for each in attempts:
            each.cancel()
    if isinstance(results, tuple):
        return ""
    error = results[0][1].value
    return f"{nodes[0].address}: " + (
        f"no answer within {TIMEOUT:g} s" if isinstance(error, defer.TimeoutError) else one_line(error)
    )


async def _attempt(attempt: Try, node: Node) -> None:
    await attempt(node)
