"""Limits of connections, and the choice of those that are closed beyond them.

Every accepted connection of the proxy has a `Slot`, on every port.  It is *unproven* until its peer has
presented an accepted credential.  If no slot is free, the oldest unproven connection is aborted for the new
one, so an attacker that holds connections open locks no user out: while attackers open F connections a
second, a user or agent has C / F seconds to authenticate, where C is the number of slots without a proven
connection.  Proven connections are never aborted.

A connection that is over may keep its slot as *retired* until its socket is closed.  Retired slots are
evicted first, and are not counted as connections; if they were unproven, they still count for their source.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Protocol, TypeAlias

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

#: Shortest interval of log lines about the same shortage, s.
REMINDER = 60.0

#: Source of connections; see `source_of`.
Source: TypeAlias = str


class Owner(Protocol):
    """A connection, or its state before or after: `Arrival`, `Lingering`."""

    def abort(self) -> None:
        """Close now."""


class Slot:
    """One connection's part of the limit.

    :ivar owner: aborted when the slot is needed; set by the code that took the slot.
    :ivar source: the source that the slot counts for; None: unknown.
    :ivar proven: whether the peer has presented an accepted credential.
    :ivar retired: whether the connection is over.
    """

    __slots__ = ("_slots", "owner", "proven", "retired", "source")

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots
        self.owner: Owner | None = None
        self.source: Source | None = None
        self.proven = self.retired = False

    def prove(self) -> None:
        """Protect this connection from eviction; may be called more than once."""
        if not self.proven and self._slots is not None:
            self._slots.prove(self)

    def retire(self) -> None:
        """Let this slot be evicted before all connections: only its socket is left; called once."""
        if self._slots is not None:
            self._slots.retire(self)

    def count_for(self, source: Source) -> None:
        """Count this slot for *source*, which was unknown when it was taken."""
        if not self.proven and self._slots is not None:
            self._slots.count_for(self, source)

    def release(self) -> None:
        """Release the slot; may be called more than once."""
        slots, self._slots = self._slots, None
        if slots is not None:
            self.owner = None
            slots.release(self)


class Slots:
    """The slots of all ports of a process.

    :param limit: largest number of connections; 0: limited by file descriptors only.
    :param share: largest number of unproven connections of one source; 0: no limit.
    :ivar proven: number of proven connections.
    :ivar ended: number of unproven connections aborted for others.
    :ivar refused: number of new connections reset because all slots were proven.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, limit: int = 0, share: int = 0) -> None:
        self._clock = clock
        self._limit = limit
        self._share = share
        self._unproven: OrderedDict[Slot, None] = OrderedDict()
        self._retired: OrderedDict[Slot, None] = OrderedDict()
        self._sources: dict[Source, OrderedDict[Slot, None]] = {}
        self._logged: float | None = None
        self._logged_counts = (0, 0)
        self.proven = self.ended = self.refused = 0

    @property
    def unproven(self) -> int:
        """Number of unproven connections."""
        return len(self._unproven)

    def take(self, source: Source | None) -> Slot | None:
        """Return a slot for a new connection, or None if all slots are proven.

        Evict the oldest retired slot or unproven connection if needed.  *source* is None while it
        is not known.
        """
        if source is not None:
            self._leave_room_for(source)
        taken = self.proven + len(self._unproven) + len(self._retired)
        if self._limit and taken >= self._limit and not self.evict():
            self.refused += 1
            return None
        slot = Slot(self)
        self._unproven[slot] = None
        if source is not None:
            self.count_for(slot, source)
        return slot

    def evict(self) -> bool:
        """Free the oldest retired slot, or abort the oldest unproven connection; return if there was one."""
        oldest = next(iter(self._retired or self._unproven), None)
        if oldest is not None:
            self._abort(oldest)
        return oldest is not None

    def count_for(self, slot: Slot, source: Source) -> None:
        """See `Slot.count_for`; beyond the share, abort the oldest one of *source*."""
        self._leave_room_for(source)
        slot.source = source
        self._sources.setdefault(source, OrderedDict())[slot] = None

    def _leave_room_for(self, source: Source) -> None:
        own = self._sources.get(source)
        if own is not None and self._share and len(own) >= self._share:
            self._abort(next(iter(own)))

    def prove(self, slot: Slot) -> None:
        """See `Slot.prove`."""
        del self._unproven[slot]
        self._forget_source(slot)
        slot.proven = True
        self.proven += 1

    def retire(self, slot: Slot) -> None:
        """See `Slot.retire`."""
        if slot.proven:
            self.proven -= 1
        else:
            del self._unproven[slot]
        slot.retired = True
        self._retired[slot] = None

    def release(self, slot: Slot) -> None:
        """See `Slot.release`."""
        if slot.retired:
            del self._retired[slot]
        elif slot.proven:
            self.proven -= 1
        else:
            del self._unproven[slot]
        self._forget_source(slot)

    def _forget_source(self, slot: Slot) -> None:
        source, slot.source = slot.source, None
        if source is not None:
            own = self._sources[source]
            del own[slot]
            if not own:
                del self._sources[source]

    def _abort(self, slot: Slot) -> None:
        if not slot.retired:
            self.ended += 1
        owner = slot.owner
        slot.release()
        if owner is not None:
            owner.abort()

    def sweep(self) -> None:
        """Log aborted and reset connections, at most once per `REMINDER`; call this once a second."""
        counts = self.ended, self.refused
        if counts == self._logged_counts:
            return
        now = self._clock.seconds()
        if self._logged is not None and now - self._logged < REMINDER:
            return
        ended, refused = self.ended - self._logged_counts[0], self.refused - self._logged_counts[1]
        self._logged, self._logged_counts = now, counts
        self._log.warn(
            "running out of connections (limits: {limit} in total, {share} unauthenticated per address; "
            "0: no limit): {ended} unauthenticated ones closed for newer ones, {refused} new ones reset; "
            "{proven} authenticated and {unproven} unauthenticated are open",
            limit=self._limit,
            share=self._share,
            ended=ended,
            refused=refused,
            proven=self.proven,
            unproven=self.unproven,
        )


def source_of(host: str) -> Source:
    """Return the source of the IP address *host*: an IPv4 address, or the /64 of an IPv6 address.

    A provider's customer has a whole /64.  ``::ffff:192.0.2.1`` counts as the IPv4 address in it.
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.packed[:8].hex()


def prove(pipe: object) -> None:
    """Mark the slot of *pipe*, if it has one, as proven: its peer has presented an accepted credential."""
    slot: Slot | None = getattr(pipe, "slot", None)
    if slot is not None:
        slot.prove()
