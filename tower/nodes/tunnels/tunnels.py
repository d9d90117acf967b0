"""The list of tunnels to the nodes of one cluster: keeps and checks them, and dials through them."""

from __future__ import annotations

import ipaddress
import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from attrs import define, field
from twisted.internet import defer
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.clusters.node_status import NodeStatus
from tower.conch.connection.channel import Channel
from tower.errors import ClusterUnreachable
from tower.net.addresses import join_address
from tower.nodes.tunnels.context import HealthCheck, ListContext, OpenCounters
from tower.nodes.tunnels.dial import NodeDial
from tower.nodes.tunnels.limiter import Limiter
from tower.nodes.tunnels.slot import NodeSlot
from tower.nodes.tunnels.tunnel import NodeTunnel

#: Interval between calls of `NodeTunnels.check`, and the time over which its checks are spread, s.
HEALTH_PERIOD = 60.0

#: Degraded tunnels that are checked again after each listing, and the time over which that is spread, s.
RECHECKS = 32
RECHECKS_PERIOD = 8.0

#: Time limit for a health check, s.
CHECK_TIMEOUT = 10.0

#: How long the streams of a node that left the list may continue, s.
GRACE = 30.0

#: Most nodes in a list, as Kubernetes supports in one cluster.  Others are left out.
MOST_NODES = 5000

#: Time limit for closing tunnels, s.
CLOSING = 5.0


class NoTunnels(ClusterUnreachable):
    """No tunnel to any node is open."""


@define(eq=False, repr=False, slots=False)
class NodeTunnels:
    """The list.

    :param create: returns a new tunnel to a node, not open yet; called for each attempt.  Its errors are
        shown as the node's.
    :param user: for the error when there is no tunnel.
    :param health: see `HealthCheck`.
    :param epoch: returns the time of day, s since the epoch.
    :param choose: chooses one of several equally good nodes.
    :param on_change: called after each change of `states` or `is_up`, except changed numbers of streams.
    :param check_timeout: of a health check, s.
    :param grace: see `GRACE`.
    :param name: of the cluster, for log lines.
    """

    _log = Logger()

    _clock: IReactorTime
    create: Callable[[Node], NodeTunnel]
    user: str = field(kw_only=True)
    _health: HealthCheck | None = field(kw_only=True)
    _epoch: Callable[[], float] = field(kw_only=True)
    _choose: Callable[[Sequence[NodeSlot]], NodeSlot] = field(default=random.choice, kw_only=True)
    on_change: Callable[[], None] = field(default=lambda: None, kw_only=True)
    _check_timeout: float = field(default=CHECK_TIMEOUT, kw_only=True)
    _grace: float = field(default=GRACE, kw_only=True)
    _name: str = field(default="", kw_only=True)
    counters: OpenCounters = field(factory=OpenCounters, init=False)
    _dials: int = field(default=0, init=False)
    _slots: dict[str, NodeSlot] = field(factory=dict, init=False)
    _by_name: dict[str, tuple[NodeSlot, ...]] = field(factory=dict, init=False)
    _leaving: dict[NodeSlot, None] = field(factory=dict, init=False)
    _closing: list[Deferred[None]] = field(factory=list, init=False)
    _context: ListContext = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._context = ListContext(
            clock=self._clock,
            epoch=self._epoch,
            create=self.create,
            health=self._health,
            check_timeout=self._check_timeout,
            counters=self.counters,
            limiter=Limiter(self._clock),
            cluster=self._name,
            changed=self._changed,
            gone=self._gone,
        )

    def _changed(self) -> None:
        try:
            self.on_change()
        except Exception:  # noqa: BLE001 (the caller is in the middle of a change)
            self._log.failure("on_change callback of node tunnels failed")

    def _gone(self, slot: NodeSlot) -> None:
        if self._leaving.pop(slot, False) is None:
            self._changed()
        if not self._leaving:
            closing, self._closing = self._closing, []
            for waiting in closing:
                waiting.callback(None)

    # The list

    def update(self, nodes: Iterable[Node]) -> None:
        """Keep tunnels to *nodes* and no others; returns at once.

        Nodes that stay are not touched, except that those without a tunnel are tried again.  Nodes that left
        the list accept no new streams; open ones may continue for `GRACE` s.
        """
        wanted: dict[str, Node] = {}
        for node in nodes:
            wanted.setdefault(node.address, node)
        if len(wanted) > MOST_NODES:
            self._log.warn(
                "{name}: {count} nodes listed; only the first {most} are used",
                name=self._context.cluster,
                count=len(wanted),
                most=MOST_NODES,
            )
            wanted = dict(list(wanted.items())[:MOST_NODES])
        for address in [address for address in self._slots if address not in wanted]:
            slot = self._slots.pop(address)
            self._unlist(slot)
            self._leaving[slot] = None
            slot.leave(self._grace)
        for address, node in wanted.items():
            known = self._slots.get(address)
            if known is None:
                self._slots[address] = slot = NodeSlot(self._context, node)
                self._list(slot)
            elif known.node != node:
                self._unlist(known)
                known.describe(node)
                self._list(known)
        self.retry()

    def _list(self, slot: NodeSlot) -> None:
        for name in slot.node.names:
            self._by_name[name] = (*self._by_name.get(name, ()), slot)

    def _unlist(self, slot: NodeSlot) -> None:
        for name in slot.node.names:
            others = tuple(each for each in self._by_name.pop(name, ()) if each is not slot)
            if others:
                self._by_name[name] = others

    def retry(self) -> None:
        """Try the nodes without a tunnel again, and check degraded ones."""
        for slot in list(self._slots.values()):
            slot.reopen()
        self.recheck()

    def recheck(self) -> None:
        """Check degraded tunnels.

        The server behind a node may have been slow for a moment only; that need not last until the next
        `check`.
        """
        degraded = [slot for slot in self._slots.values() if slot.is_degraded]
        for number, slot in enumerate(degraded[:RECHECKS]):
            slot.check_in(RECHECKS_PERIOD * number / RECHECKS)

    def pause(self) -> None:
        """Open and check nothing until the next `update`; open tunnels, and those being opened, stay."""
        for slot in self._slots.values():
            slot.pause()

    def close(self) -> Deferred[None]:
        """Close all tunnels; fires when that is done, after `CLOSING` s at the latest."""
        slots, self._slots, self._by_name = self._slots, {}, {}
        self._leaving.update(dict.fromkeys(slots.values()))
        for slot in list(self._leaving):
            slot.close("the tunnels are no longer needed")
        self._changed()
        if not self._leaving:
            return succeed(None)
        gone: Deferred[None] = Deferred()
        self._closing.append(gone)
        gone.addTimeout(CLOSING, self._clock)
        return gone.addErrback(self._closed_by_force, gone)

    def _closed_by_force(self, failure: Failure, gone: Deferred[None]) -> None:
        failure.trap(defer.TimeoutError)
        self._leaving.clear()
        if gone in self._closing:
            self._closing.remove(gone)

    # Health

    def check(self) -> None:
        """Check each tunnel, one after another within `HEALTH_PERIOD` s; returns at once."""
        slots = [slot for slot in self._slots.values() if slot.tunnel is not None]
        for number, slot in enumerate(slots):
            if number:
                slot.check_in(HEALTH_PERIOD * number / len(slots))
            else:
                slot.check()

    @property
    def is_up(self) -> bool:
        """Whether any tunnel accepts streams."""
        return any(slot.is_usable for slot in self._slots.values())

    @property
    def trouble(self) -> str:
        """Why no open tunnel works; empty while one works, and while none is open."""
        usable = [slot for slot in self._slots.values() if slot.is_usable]
        if not usable or not all(slot.is_degraded or slot.is_suspect for slot in usable):
            return ""
        first = usable[0].status()
        return f"None of the open SSH tunnels ({len(usable)}) works.  Node {first.name}: {first.error}"

    @property
    def absence(self) -> NoTunnels:
        """The error while no tunnel is open."""
        return NoTunnels(
            "No SSH tunnels currently open. Were the targets able to accept an ssh-key for user "
            f"{json.dumps(self.user, ensure_ascii=False)}?"
        )

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the list, in any state."""
        return [slot.node for slot in self._slots.values()]

    def at(self, node: Node) -> NodeTunnel | None:
        """Return the tunnel to *node* if it accepts streams."""
        slot = self._slots.get(node.address)
        return slot.tunnel if slot is not None and slot.is_usable else None

    def states(self) -> list[NodeStatus]:
        """Return the state of each node, leaving ones last."""
        return [slot.status() for slot in (*self._slots.values(), *self._leaving)]

    # Dialing

    def dial(self, host: str, port: int) -> Deferred[Channel]:
        """Open a stream to *host*, *port* as the nodes see it; fires with a channel, paused.

        Uses the node with that name or address, else any working one; see `NodeDial`.  Cancelling leaves
        nothing.

        :param host: IPv6 with or without brackets.
        :raise NoTunnels: through the Deferred: no tunnel is open.
        :raise StreamRefused: through the Deferred: the error of the last node that was tried.
        :raise TunnelLost: through the Deferred: the last one's tunnel was lost meanwhile.
        """
        if not self.is_up:
            return fail(self.absence)
        names = _names(host)
        self._dials += 1
        address, number = join_address(names[0], port), self._dials
        began = self._clock.seconds()
        self._debug("[{number:x}: {address}] Dialing...", number=number, address=address)

        def pick(tried: list[NodeSlot]) -> NodeSlot | None:
            named = dict.fromkeys(slot for name in names for slot in self._by_name.get(name, ()))
            meant = [each for each in named if each.is_usable and not each.is_suspect and each not in tried]
            if meant:
                return self._choose(meant)
            usable = [slot for slot in self._slots.values() if slot.is_usable and slot not in tried]
            if not usable:
                return None
            self._debug('SSH tunnel not found for address "{host}", picking random node', host=names[0])
            return self._best(usable)

        def dialed(result: Channel | Failure) -> Channel | Failure:
            duration = self._clock.seconds() - began
            self._debug(
                "[{number:x}: {address}] Dialed in {duration:.6f}s.",
                number=number,
                address=address,
                duration=duration,
            )
            return result

        return NodeDial(self._clock, pick, names[0], port).start().addBoth(dialed)

    def _debug(self, text: str, **values: Any) -> None:
        prefix = f"{self._context.cluster}: " if self._context.cluster else ""
        self._log.debug("{prefix}" + text, prefix=prefix, **values)

    def _best(self, usable: list[NodeSlot]) -> NodeSlot:
        """Return a working one, else one that answers, else any."""
        answering = [slot for slot in usable if not slot.is_suspect]
        working = [slot for slot in answering if not slot.is_degraded]
        return self._choose(working or answering or usable)


def _names(host: str) -> tuple[str, ...]:
    """Return *host* without brackets, and its canonical form if that differs."""
    plain = host.removeprefix("[").removesuffix("]")
    try:
        canonical = ipaddress.ip_address(plain).compressed
    except ValueError:
        canonical = plain.lower()
    return (plain,) if canonical == plain else (plain, canonical)
