"""Which connections stay when there are more than there is room for.

Every accepted connection of the proxy has a `Slot`, whatever port it came to.  It is *unproven* until its
peer has shown a credential that was accepted.  When slots are short, the oldest unproven connection is
aborted and the newcomer gets in, so an attacker who holds connections open keeps nobody out: a user or agent
that connects while attackers open F connections a second has C / F seconds to authenticate, where C is the
number of slots that proven connections leave.  Proven connections are never aborted.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from typing import Protocol, TypeAlias

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

#: The smallest period between two log lines about the same shortage, s.
REMINDER = 60.0

#: What counts as one address; see `source_of`.
Source: TypeAlias = str


class Owner(Protocol):
    """What a slot is for: a connection, or what is there before it or left of it."""

    def abort(self) -> None:
        """Close now."""


class Slot:
    """The place of one connection among all.

    :ivar owner: who is aborted when the slot is needed; set by whoever took the slot.
    :ivar source: the address that it counts for; None: for none.
    :ivar proven: whether its peer has shown an accepted credential.
    """

    __slots__ = ("_slots", "owner", "proven", "source")

    def __init__(self, slots: Slots) -> None:
        self._slots: Slots | None = slots
        self.owner: Owner | None = None
        self.source: Source | None = None
        self.proven = False

    def prove(self) -> None:
        """Keep this connection, whoever else comes; may be called more than once."""
        if not self.proven and self._slots is not None:
            self._slots.prove(self)

    def count_for(self, source: Source) -> None:
        """Count this slot for *source*, which was not known when it was taken."""
        if not self.proven and self._slots is not None:
            self._slots.count_for(self, source)

    def release(self) -> None:
        """Give the slot back; may be called more than once."""
        slots, self._slots = self._slots, None
        if slots is not None:
            self.owner = None
            slots.release(self)


class Slots:
    """The slots of all ports of a process.

    :param clock: for log lines.
    :param limit: largest number of connections; 0: no limit but the file descriptors.
    :param share: largest number of unproven connections of one address; 0: no limit.
    :ivar proven: how many connections are proven.
    :ivar ended: how many unproven connections were aborted for others.
    :ivar refused: how many newcomers were reset because every slot was taken by a proven connection.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime, limit: int = 0, share: int = 0) -> None:
        self._clock = clock
        self._limit = limit
        self._share = share
        self._unproven: OrderedDict[Slot, None] = OrderedDict()
        self._sources: dict[Source, OrderedDict[Slot, None]] = {}
        self._told: float | None = None
        self._told_counts = (0, 0)
        self.proven = self.ended = self.refused = 0

    @property
    def unproven(self) -> int:
        """How many connections are unproven."""
        return len(self._unproven)

    def take(self, source: Source | None) -> Slot | None:
        """Return a slot for a new connection, aborting the oldest unproven one if that is needed.

        :param source: see `source_of`; None: the address is not known yet.
        :return: None when every slot belongs to a proven connection.
        """
        if source is not None:
            self._leave_room_for(source)
        if self._limit and self.proven + len(self._unproven) >= self._limit and not self.evict():
            self.refused += 1
            return None
        slot = Slot(self)
        self._unproven[slot] = None
        if source is not None:
            self.count_for(slot, source)
        return slot

    def evict(self) -> bool:
        """Abort the oldest unproven connection; return whether there was one."""
        if not self._unproven:
            return False
        self._abort(next(iter(self._unproven)))
        return True

    def count_for(self, slot: Slot, source: Source) -> None:
        """See `Slot.count_for`; one too many of *source* ends its own oldest one."""
        self._leave_room_for(source)
        slot.source = source
        self._sources.setdefault(source, OrderedDict())[slot] = None

    def _leave_room_for(self, source: Source) -> None:
        own = self._sources.get(source)
        if own is not None and self._share and len(own) >= self._share:
            self._abort(next(iter(own)))

    def prove(self, slot: Slot) -> None:
        """See `Slot.prove`."""
        self._forget(slot)
        slot.proven = True
        self.proven += 1

    def release(self, slot: Slot) -> None:
        """See `Slot.release`."""
        if slot.proven:
            self.proven -= 1
        else:
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        del self._unproven[slot]
        source = slot.source
        if source is not None:
            own = self._sources[source]
            del own[slot]
            if not own:
                del self._sources[source]

    def _abort(self, slot: Slot) -> None:
        self.ended += 1
        owner = slot.owner
        slot.release()
        if owner is not None:
            owner.abort()

    def sweep(self) -> None:
        """Log what was ended and refused, at most once in `REMINDER` s; to be called once a second."""
        counts = self.ended, self.refused
        if counts == self._told_counts:
            return
        now = self._clock.seconds()
        if self._told is not None and now - self._told < REMINDER:
            return
        ended, refused = self.ended - self._told_counts[0], self.refused - self._told_counts[1]
        self._told, self._told_counts = now, counts
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
    """Return what *host*, an IP address, counts as: an IPv6 address with all others of its /64.

    One customer has a whole /64.  ``::ffff:192.0.2.1`` is the IPv4 address in it.
    """
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    mapped = address.ipv4_mapped
    return str(mapped) if mapped is not None else address.packed[:8].hex()


def prove(pipe: object) -> None:
    """Keep the connection *pipe*, whose peer has shown an accepted credential, if it has a slot."""
    slot: Slot | None = getattr(pipe, "slot", None)
    if slot is not None:
        slot.prove()
