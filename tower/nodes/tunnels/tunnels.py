"""The tunnels to the nodes of one cluster: kept as a list says, looked after, and dialled through."""

from __future__ import annotations

import ipaddress
import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.defer import TimeoutError as TooLate
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.node_status import NodeStatus
from tower.errors import ClusterUnreachable
from tower.net.addresses import join_address
from tower.nodes.tunnels.dial import NodeDial
from tower.nodes.tunnels.interfaces import HealthCheck, ListContext, NodeTunnel, OpenCounters
from tower.nodes.tunnels.limiter import Limiter
from tower.nodes.tunnels.slot import NodeSlot

#: How often `NodeTunnels.check` is to be called, and how long its checks are spread over, s.
HEALTH_PERIOD = 60.0

#: How many that are not well are looked at again with each list, and how long that is spread over, s.
LOOKS = 32
LOOKS_PERIOD = 8.0

#: How long a health check may take, s.
CHECK_TIMEOUT = 10.0

#: How long the streams of a node that left the list may go on, s.
GRACE = 30.0

#: How many nodes a list may have: what Kubernetes supports in one cluster.  Others are left out.
MOST_NODES = 5000

#: How long closed tunnels may take to go, s.
CLOSING = 5.0


class NoTunnels(ClusterUnreachable):
    """There is no node that could be asked."""


def _nothing() -> None:
    """Stand in for a hook that nobody uses."""


class NodeTunnels:
    """The list.

    :param clock: an ``IReactorTime``.
    :param create: makes a node's tunnel, which is not open yet; called anew for each attempt.  What it raises
        is shown as why there is none.
    :param user: for the error when there is no tunnel.
    :param health: looks whether a tunnel works; see `HealthCheck`.
    :param epoch: returns the time of day, s since the epoch.
    :param choose: chooses one of several nodes that are as good as each other.
    :param on_change: called whenever what `states` or `is_up` say has changed, but for numbers of streams.
    :param counters: of attempts; shared by all lists of a process.
    :param turns: who may open a tunnel now; several lists may share one.
    :param name: of the cluster, for log lines.
    """

    _log = Logger()

    def __init__(
        self,
        clock: Any,
        create: Callable[[Node], NodeTunnel],
        *,
        user: str,
        health: HealthCheck | None,
        epoch: Callable[[], float],
        choose: Callable[[Sequence[NodeSlot]], NodeSlot] = random.choice,
        on_change: Callable[[], None] = _nothing,
        counters: OpenCounters | None = None,
        check_timeout: float = CHECK_TIMEOUT,
        grace: float = GRACE,
        turns: Limiter | None = None,
        name: str = "",
    ) -> None:
        self.user = user
        self.on_change = on_change
        self.counters = counters or OpenCounters()
        self._clock = clock
        self._choose = choose
        self._grace = grace
        self._dials = 0
        self._places: dict[str, NodeSlot] = {}
        self._called: dict[str, tuple[NodeSlot, ...]] = {}  # those of the list, by all their names
        self._leaving: dict[NodeSlot, None] = {}
        self._closing: list[Deferred[None]] = []
        self._shared = ListContext(
            clock=clock,
            epoch=epoch,
            create=create,
            health=health,
            check_timeout=check_timeout,
            counters=self.counters,
            turns=turns or Limiter(clock),
            cluster=name,
            changed=self._changed,
            gone=self._gone,
        )

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:  # noqa: BLE001 (it is somebody else's, and tunnels are in the middle of changing)
            self._log.failure("who is told about changes of node tunnels failed")

    def _gone(self, place: NodeSlot) -> None:
        if self._leaving.pop(place, False) is None:
            self._changed()
        if not self._leaving:
            closing, self._closing = self._closing, []
            for waiting in closing:
                waiting.callback(None)

    # The list

    def update(self, nodes: Iterable[Node]) -> None:
        """Have tunnels to *nodes* and no others; returns at once.

        What stays is not touched.  Nodes without a tunnel are tried again.  Those that left the list take no
        new streams, and the ones under way may go on for `GRACE` s.
        """
        wanted: dict[str, Node] = {}
        for node in nodes:
            wanted.setdefault(node.address, node)
        if len(wanted) > MOST_NODES:
            self._log.warn(
                "{name}: {count} nodes in the list, which is {over} too many; those are left out",
                name=self._shared.cluster,
                count=len(wanted),
                over=len(wanted) - MOST_NODES,
            )
            wanted = dict(list(wanted.items())[:MOST_NODES])
        for address in [address for address in self._places if address not in wanted]:
            place = self._places.pop(address)
            self._unlist(place)
            self._leaving[place] = None
            place.leave(self._grace)
        for address, node in wanted.items():
            known = self._places.get(address)
            if known is None:
                self._places[address] = place = NodeSlot(self._shared, node)
                self._list(place)
            elif known.node != node:
                self._unlist(known)
                known.describe(node)
                self._list(known)
        self.retry()

    def _list(self, place: NodeSlot) -> None:
        for name in place.node.names:
            self._called[name] = (*self._called.get(name, ()), place)

    def _unlist(self, place: NodeSlot) -> None:
        for name in place.node.names:
            others = tuple(each for each in self._called.pop(name, ()) if each is not place)
            if others:
                self._called[name] = others

    def retry(self) -> None:
        """Try the nodes without a tunnel again, for when there is no new list; look again at those not well.

        What is behind a node may have been slow for a moment, which nobody has to bear with for a minute.
        """
        for place in list(self._places.values()):
            place.renew()
        unwell = [place for place in self._places.values() if place.is_degraded]
        for number, place in enumerate(unwell[:LOOKS]):
            place.check_in(LOOKS_PERIOD * number / LOOKS)

    def rest(self) -> None:
        """Open and check nothing more until the next `update`; what is open, or just being opened, stays."""
        for place in self._places.values():
            place.rest()

    def close(self) -> Deferred[None]:
        """Close all tunnels; fires when they are gone, after `CLOSING` s at the latest."""
        places, self._places, self._called = self._places, {}, {}
        self._leaving.update(dict.fromkeys(places.values()))
        for place in list(self._leaving):
            place.close("the tunnels are not needed any more")
        self._changed()
        if not self._leaving:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._closing.append(gone)
        gone.addTimeout(CLOSING, self._clock)
        return gone.addErrback(self._closed_by_force, gone)

    def _closed_by_force(self, failure: Failure, gone: Deferred[None]) -> None:
        failure.trap(TooLate)
        self._leaving.clear()
        if gone in self._closing:
            self._closing.remove(gone)

    # Health

    def check(self) -> None:
        """Look at the health of each tunnel, one by one within `HEALTH_PERIOD` s; returns at once."""
        places = [place for place in self._places.values() if place.tunnel is not None]
        for number, place in enumerate(places):
            if number:
                place.check_in(HEALTH_PERIOD * number / len(places))
            else:
                place.check()

    @property
    def is_up(self) -> bool:
        """Whether there is a tunnel that takes streams."""
        return any(place.is_usable for place in self._places.values())

    @property
    def trouble(self) -> str:
        """Why there are tunnels and yet none is well; empty while one is, and while there are none."""
        usable = [place for place in self._places.values() if place.is_usable]
        if not usable or not all(place.is_degraded or place.is_suspect for place in usable):
            return ""
        first = usable[0].status()
        return f"None of the open SSH tunnels ({len(usable)}) is well.  Node {first.name}: {first.error}"

    @property
    def absence(self) -> NoTunnels:
        """The error while there is none."""
        return NoTunnels(
            "No SSH tunnels currently open. Were the targets able to accept an ssh-key for user "
            f"{json.dumps(self.user, ensure_ascii=False)}?"
        )

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the list, whatever their tunnels are like."""
        return [place.node for place in self._places.values()]

    def at(self, node: Node) -> NodeTunnel | None:
        """Return the tunnel to *node* if it takes streams."""
        place = self._places.get(node.address)
        return place.tunnel if place is not None and place.is_usable else None

    def states(self) -> list[NodeStatus]:
        """Return what is known of each node, those that are leaving last."""
        return [place.status() for place in (*self._places.values(), *self._leaving)]

    # Dialling

    def dial(self, host: str, port: int) -> Deferred[Any]:
        """Open a stream to *host*, *port* as the nodes see it; fires with a channel, paused.

        Through the node of that name or address, else through any that is well; see `NodeDial`.  Cancelling
        leaves nothing.

        :param host: IPv6 with or without brackets.
        :raise NoTunnels: through the Deferred: no node is connected.
        :raise StreamRefused: through the Deferred: what the last node said that was asked.
        :raise TunnelLost: through the Deferred: the last one was lost meanwhile.
        """
        if not self.is_up:
            return fail(self.absence)
        names = _names(host)
        self._dials += 1
        address, number = join_address(names[0], port), self._dials
        began = self._clock.seconds()
        self._say("[{number:x}: {address}] Dialing...", number=number, address=address)

        def pick(asked: list[NodeSlot]) -> NodeSlot | None:
            called = dict.fromkeys(place for name in names for place in self._called.get(name, ()))
            meant = [each for each in called if each.is_usable and not each.is_suspect and each not in asked]
            if meant:
                return self._choose(meant)
            usable = [place for place in self._places.values() if place.is_usable and place not in asked]
            if not usable:
                return None
            self._say('SSH tunnel not found for address "{host}", picking random node', host=names[0])
            return self._best(usable)

        def dialled(result: Any) -> Any:
            duration = self._clock.seconds() - began
            self._say(
                "[{number:x}: {address}] Dialed in {duration:.6f}s.",
                number=number,
                address=address,
                duration=duration,
            )
            return result

        return NodeDial(self._clock, pick, names[0], port).start().addBoth(dialled)

    def _say(self, text: str, **values: Any) -> None:
        prefix = f"{self._shared.cluster}: " if self._shared.cluster else ""
        self._log.debug("{prefix}" + text, prefix=prefix, **values)

    def _best(self, usable: list[NodeSlot]) -> NodeSlot:
        """Return one that is well, else one that is at least there."""
        sure = [place for place in usable if not place.is_suspect]
        well = [place for place in sure if not place.is_degraded]
        return self._choose(well or sure or usable)


def _names(host: str) -> tuple[str, ...]:
    """Return *host* without brackets, and the other ways in which it may be written."""
    plain = host.removeprefix("[").removesuffix("]")
    try:
        usual = ipaddress.ip_address(plain).compressed
    except ValueError:
        usual = plain.lower()
    return (plain,) if usual == plain else (plain, usual)
