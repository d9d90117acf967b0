"""Tests of `tower.net.connection_slots`: evictions at the limits."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.logger import capturedLogs
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tower.control.metrics.connection_metrics import SlotsCollector
from tower.net.connection_slots import REMINDER, Slot, Slots, prove, source_of


class Holder:
    """The owner of a slot."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.aborted = 0
        slot.owner = self

    def abort(self) -> None:
        """Go, as a connection does."""
        self.aborted += 1
        self.slot.release()


class SlotsTestCase(SynchronousTestCase):
    """A test with slots."""

    def begin(self, limit: int = 0, share: int = 0) -> None:
        """Begin with none taken."""
        self.clock = Clock()
        self.slots = Slots(self.clock, limit, share)

    def come(self, source: str | None = "192.0.2.1") -> Holder:
        """Connect."""
        slot = self.slots.take(source)
        assert slot is not None
        return Holder(slot)

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """Counters."""
        slots = self.slots
        return slots.proven, slots.unproven, slots.ended, slots.refused


class LimitTests(SlotsTestCase):
    """All together."""

    def test_oldest_goes(self) -> None:
        """The oldest unproven one makes room, once, and then the next."""
        self.begin(3)
        first, second, third = self.come(), self.come(), self.come()
        self.come()
        self.assertEqual((first.aborted, second.aborted, third.aborted), (1, 0, 0))
        self.come()
        self.assertEqual((first.aborted, second.aborted, third.aborted), (1, 1, 0))
        self.assertEqual(self.counts, (0, 3, 2, 0))

    def test_proven_stay(self) -> None:
        """A proven connection stays, however old it is; when all are, newcomers are refused."""
        self.begin(2)
        first, second = self.come(), self.come()
        first.slot.prove()
        first.slot.prove()
        third = self.come()
        self.assertEqual((first.aborted, second.aborted), (0, 1))
        third.slot.prove()
        self.assertIsNone(self.slots.take("192.0.2.9"))
        self.assertEqual(self.counts, (2, 0, 1, 1))
        first.slot.release()
        self.come()
        self.assertEqual((first.aborted, third.aborted, self.counts), (0, 0, (1, 1, 1, 1)))

    def test_released(self) -> None:
        """A released slot, proven or not, is free; releasing twice is harmless."""
        self.begin(2)
        first, second = self.come(), self.come()
        second.slot.prove()
        for each in (first, second, first, second):
            each.slot.release()
        self.assertEqual(self.counts, (0, 0, 0, 0))
        first.slot.prove()
        first.slot.count_for("192.0.2.1")
        self.assertEqual(self.counts, (0, 0, 0, 0))
        self.assertEqual(self.slots._sources, {})

    def test_no_limit(self) -> None:
        """Without a limit, only `evict` aborts connections."""
        self.begin()
        all_ = [self.come() for _ in range(100)]
        self.assertEqual(sum(each.aborted for each in all_), 0)
        self.assertTrue(self.slots.evict())
        self.assertEqual(all_[0].aborted, 1)

    def test_nobody_to_evict(self) -> None:
        """`evict` returns False if all are proven."""
        self.begin()
        self.assertFalse(self.slots.evict())
        self.come().slot.prove()
        self.assertFalse(self.slots.evict())

    def test_retired_go_first(self) -> None:
        """Slots of closed connections, proven or not, make room before open ones, and are not counted."""
        self.begin(3, 1)
        opened, first, second = self.come("198.51.100.1"), self.come(), self.come("198.51.100.2")
        first.slot.prove()
        for each in (second, first):
            each.slot.retire()
        self.assertEqual(self.counts, (0, 1, 0, 0))
        self.come("198.51.100.2")
        self.assertEqual((opened.aborted, first.aborted, second.aborted), (0, 0, 1))
        self.come()
        self.assertEqual((opened.aborted, first.aborted, self.counts), (0, 1, (0, 3, 0, 0)))
        self.come("198.51.100.3")
        self.assertEqual((opened.aborted, self.counts), (1, (0, 3, 1, 0)))

    def test_retired_and_released(self) -> None:
        """A retired slot can be released, and is free then."""
        self.begin(1)
        first = self.come()
        first.slot.prove()
        first.slot.retire()
        first.slot.release()
        first.slot.release()
        self.assertEqual(self.counts, (0, 0, 0, 0))
        self.assertFalse(self.slots.evict())

    def test_without_owner(self) -> None:
        """A slot without owner can be evicted."""
        self.begin(1)
        self.slots.take(None)
        self.come()
        self.assertEqual(self.counts, (0, 1, 1, 0))


class ShareTests(SlotsTestCase):
    """Each address."""

    def test_own_oldest_goes(self) -> None:
        """One address too often ends its own oldest connection, not another's, though all slots are taken."""
        self.begin(3, 2)
        other = self.come("198.51.100.1")
        first, second = self.come(), self.come()
        self.come()
        self.assertEqual((other.aborted, first.aborted, second.aborted), (0, 1, 0))

    def test_proven_do_not_count(self) -> None:
        """Many users behind one address are not limited once they have authenticated."""
        self.begin(0, 2)
        users = [self.come() for _ in range(2)]
        for _ in range(20):
            users[-1].slot.prove()
            users.append(self.come())
        self.assertEqual(self.counts[2], 0)

    def test_retired_count(self) -> None:
        """Closed connections of an address that never authenticated count for its share; others do not."""
        self.begin(0, 2)
        first, second, user = self.come(), self.come(), self.come("198.51.100.1")
        user.slot.prove()
        for each in (first, second, user):
            each.slot.retire()
        self.come("198.51.100.1")
        self.come("198.51.100.1")
        self.assertEqual((first.aborted, second.aborted, user.aborted), (0, 0, 0))
        third = self.come()
        self.come()
        self.come()
        self.assertEqual((first.aborted, second.aborted, third.aborted, user.aborted), (1, 1, 1, 0))
        self.assertEqual(self.counts, (0, 4, 1, 0))

    def test_known_later(self) -> None:
        """A connection whose source is set later counts from then on."""
        self.begin(0, 2)
        balanced = [self.come(None) for _ in range(4)]
        self.assertEqual(self.counts[2], 0)
        for each in balanced:
            each.slot.count_for("192.0.2.1")
        self.assertEqual([each.aborted for each in balanced], [1, 1, 0, 0])

    def test_sources(self) -> None:
        """An IPv6 address counts with its /64, and one of IPv4 is the same written as IPv6."""
        self.assertEqual(source_of("2001:db8::1"), source_of("2001:db8::ffff:0:1"))
        self.assertNotEqual(source_of("2001:db8::1"), source_of("2001:db8:0:1::1"))
        self.assertEqual(source_of("::ffff:192.0.2.1"), source_of("192.0.2.1"))
        self.assertNotEqual(source_of("192.0.2.1"), source_of("192.0.2.2"))
        self.assertEqual(source_of("fe80::1%eth0"), source_of("fe80::2"))


class InvariantTests(SynchronousTestCase):
    """Any sequence of events."""

    @settings(max_examples=200, deadline=None)
    @given(
        st.integers(0, 6),
        st.integers(0, 3),
        st.lists(
            st.tuples(st.sampled_from(("take", "tell", "prove", "release", "evict")), st.integers(0, 9)),
            max_size=60,
        ),
    )
    def test_counts(self, limit: int, share: int, steps: list[tuple[str, int]]) -> None:
        """Counters match the connections, limit and share hold, and no proven connection is aborted."""
        slots = Slots(Clock(), limit, share)
        holders: list[Holder] = []
        for step, number in steps:
            there = [each for each in holders if each.slot._slots is not None]
            if step == "take":
                slot = slots.take(None if number > 7 else f"192.0.2.{number % 3}")
                if slot is not None:
                    holders.append(Holder(slot))
            elif step == "evict":
                slots.evict()
            elif there:
                slot = there[number % len(there)].slot
                if step == "tell" and slot.source is None:
                    slot.count_for(f"192.0.2.{number % 3}")
                elif step == "prove":
                    slot.prove()
                elif step == "release":
                    slot.release()
            there = [each for each in holders if each.slot._slots is not None]
            unproven = [each.slot for each in there if not each.slot.proven]
            self.assertEqual((slots.proven, slots.unproven), (len(there) - len(unproven), len(unproven)))
            self.assertTrue(not limit or len(there) <= limit)
            for source, own in slots._sources.items():
                self.assertEqual(set(own), {slot for slot in unproven if slot.source == source})
                self.assertTrue(0 < len(own) <= (share or len(own)))
            self.assertFalse(any(each.aborted for each in holders if each.slot.proven))


class NewsTests(SlotsTestCase):
    """Log lines."""

    def test_log(self) -> None:
        """The log has the number of evictions once a minute, and nothing without any."""
        self.begin(1)
        with capturedLogs() as events:
            self.slots.sweep()
            self.assertEqual(events, [])
            for _ in range(4):
                self.come()
            self.slots.sweep()
            self.assertEqual((len(events), events[0]["ended"], events[0]["refused"]), (1, 3, 0))
            self.come().slot.prove()
            self.slots.take(None)
            self.slots.sweep()
            self.assertEqual(len(events), 1)
            self.clock.advance(REMINDER)
            self.slots.sweep()
            self.assertEqual((len(events), events[1]["ended"], events[1]["refused"]), (2, 1, 1))

    def test_metrics(self) -> None:
        """Prometheus gets the same numbers."""
        self.begin(2)
        for _ in range(3):
            self.come()
        self.come().slot.prove()
        samples = {
            (sample.name, sample.labels.get("authenticated")): sample.value
            for metric in SlotsCollector(self.slots).collect()
            for sample in metric.samples
        }
        self.assertEqual(
            samples,
            {
                ("tower_connections", "true"): 1,
                ("tower_connections", "false"): 1,
                ("tower_connections_closed_for_others_total", None): 2,
                ("tower_connections_refused_total", None): 0,
            },
        )

    def test_pipes(self) -> None:
        """A pipe that has no slot can prove itself all the same."""
        prove(FakePipe())
