"""A list of nodes that has nothing to do with those that are connected is not believed before one is reached.

A file is written by whatever people have at hand, and what is wrong in it may look like names: a program's
complaint, the list of another cluster.  Tunnels that work are not given up for that.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred, DeferredList
from twisted.internet.defer import TimeoutError as TooLate

from tower.clusters.node import Node
from tower.errors import one_line
from tower.nodes.node_sources import Lister, ListingFailed

#: How many nodes of such a list are tried at each look, other ones each time, and how long that may take, s.
TRIED = 5
TIMEOUT = 10.0

#: Logs in at a node, and leaves it again; raises why it cannot.
Try: TypeAlias = Callable[[Node], Awaitable[object]]


def plausible(
    lister: Lister,
    connected: Callable[[], Sequence[Node]],
    attempt: Try,
    clock: Any,
    *,
    place: str,
    sample: Callable[[Sequence[Node], int], Sequence[Node]] = random.sample,
) -> Lister:
    """List what *lister* does, unless all nodes of it are new and none of them lets us in.

    :param connected: returns the nodes that carry streams now; without any every list is believed.
    :param clock: an ``IReactorTime``.
    :param place: where the list is from, for errors.
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
                    f"{place}: it names none of the {len(before)} nodes that are connected, which stay as "
                    f"long as none of those that it names lets us in; {problem}"
                )
        return nodes

    return listing


async def _problem(nodes: Sequence[Node], attempt: Try, clock: Any) -> str:
    """Return why none of *nodes* lets us in, what the first says; empty if one does."""
    if not nodes:
        return ""
    attempts = [Deferred.fromCoroutine(_tried(attempt, node)).addTimeout(TIMEOUT, clock) for node in nodes]
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
        f"no answer in {TIMEOUT:g} s" if isinstance(error, TooLate) else one_line(error)
    )


async def _tried(attempt: Try, node: Node) -> None:
    await attempt(node)
