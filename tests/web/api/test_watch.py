"""Tests for `tower.web.api.watch`."""

from __future__ import annotations

from typing import Any

from attrs import evolve

from tests.fakes.api import BASE, TABLE, ApiTestCase
from tower.escaping import json_text
from tower.store import EVENT_LIMIT
from tower.web.api import watch

CLUSTERS = f"{BASE}/clusters"


class WatchTests(ApiTestCase):
    """A watch reports everything once, in order."""

    def label(self, name: str, **labels: str) -> None:
        """Give a cluster new labels."""
        self.successResultOf(self.clusters.change(name, lambda cluster: evolve(cluster, labels=labels)))

    def test_from_now(self) -> None:
        """Without a version the watch sends the current state, then changes."""
        self.add("alpha")
        stream = self.watch()
        self.assertEqual(stream.taken(), [("ADDED", "alpha")])
        self.add("beta")
        self.successResultOf(self.clusters.set_enabled("beta", False))
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(stream.taken(), [("ADDED", "beta"), ("MODIFIED", "beta"), ("DELETED", "alpha")])

    def test_from_a_version(self) -> None:
        """With a version the watch sends the changes since then, each once."""
        self.add("alpha")
        version = self.get(CLUSTERS)["metadata"]["resourceVersion"]
        self.add("beta")
        stream = self.watch(resourceVersion=version)
        self.add("gamma")
        self.assertEqual(stream.taken(), [("ADDED", "beta"), ("ADDED", "gamma")])

    def test_many(self) -> None:
        """A change is encoded once for all watches of plain objects, and each may end."""
        streams = [self.watch() for _ in range(50)]
        tables = self.watch(accept=TABLE)
        encoded: list[str] = []

        def counting(value: Any, **options: Any) -> str:
            encoded.append(value["type"])
            return json_text(value, **options)

        self.patch(watch, "json_text", counting)
        self.add("alpha")
        self.assertEqual(len(encoded), 2, "one for the plain ones, one for the table")
        for stream in (*streams, tables):
            self.assertEqual(stream.taken(), [("ADDED", "alpha")])
        for stream in streams[1:]:
            assert stream.on_closed is not None
            stream.on_closed()
        self.add("beta")
        self.assertEqual([len(stream.taken()) for stream in streams[:3]], [1, 0, 0])
        for stream in (streams[0], tables):
            assert stream.on_closed is not None
            stream.on_closed()
        self.add("gamma")
        self.assertEqual(len(encoded), 4)
        self.assertEqual(self.watch().taken(), [("ADDED", name) for name in ("alpha", "beta", "gamma")])

    def test_too_old(self) -> None:
        """A version that the ring no longer has, or never had, is 410 Expired."""
        self.add("alpha")
        version = str(self.store.version)
        for number in range(EVENT_LIMIT):
            self.successResultOf(self.clusters.set_enabled("alpha", bool(number % 2)))
        self.add("beta")
        for old in (version, "999999"):
            refusal = self.refused(410, "GET", CLUSTERS, watch="true", resourceVersion=old)
            self.assertEqual(refusal.reason, "Expired")

    def test_bad_parameters(self) -> None:
        """Invalid numbers are rejected before anything is sent."""
        self.refused(400, "GET", CLUSTERS, watch="1", resourceVersion="x")
        self.refused(400, "GET", CLUSTERS, watch="1", resourceVersion="9" * 5000)
        self.refused(400, "GET", CLUSTERS, watch="1", timeoutSeconds="-1")

    def test_watch_off(self) -> None:
        """An explicit `watch=false` is a list."""
        self.assertEqual(self.get(CLUSTERS, watch="false")["kind"], "ClusterList")

    def test_one_by_name(self) -> None:
        """A watch of one name does not report others."""
        self.add("alpha")
        self.add("beta")
        stream = self.watch(fieldSelector="metadata.name=alpha")
        self.successResultOf(self.clusters.remove("beta"))
        self.successResultOf(self.clusters.remove("alpha"))
        self.assertEqual(stream.taken(), [("ADDED", "alpha"), ("DELETED", "alpha")])

    def test_labels_come_and_go(self) -> None:
        """A cluster that leaves the selection is DELETED to the watch, one that enters it ADDED."""
        self.add("alpha", labels={"env": "prod"})
        self.add("beta")
        stream = self.watch(labelSelector="env=prod")
        self.label("beta", other="x")
        self.assertEqual(stream.taken(), [("ADDED", "alpha")])
        self.label("alpha")
        self.label("alpha", still="not")
        self.label("beta", env="prod")
        self.assertEqual(stream.taken(), [("DELETED", "alpha"), ("ADDED", "beta")])
        self.successResultOf(self.clusters.remove("alpha"))
        self.successResultOf(self.clusters.remove("beta"))
        self.assertEqual(stream.taken(), [("DELETED", "beta")])

    def test_labels_changed_before_the_watch(self) -> None:
        """A change of the selection between list and watch is reported."""
        self.add("alpha", labels={"env": "prod"})
        version = self.get(CLUSTERS, labelSelector="env=prod")["metadata"]["resourceVersion"]
        self.label("alpha")
        stream = self.watch(labelSelector="env=prod", resourceVersion=version)
        self.assertEqual(stream.taken(), [("DELETED", "alpha")])

    def test_initial_events(self) -> None:
        """A streaming list ends with its bookmark."""
        self.add("alpha")
        stream = self.watch(
            sendInitialEvents="true", allowWatchBookmarks="true", resourceVersionMatch="NotOlderThan"
        )
        last = stream.lines[-1]
        self.assertEqual([line["type"] for line in stream.lines], ["ADDED", "BOOKMARK"])
        self.assertEqual(last["object"]["metadata"]["annotations"], {"k8s.io/initial-events-end": "true"})
        self.assertEqual(last["object"]["metadata"]["resourceVersion"], str(self.store.version))

    def test_bookmarks(self) -> None:
        """A client that requests bookmarks gets one each minute; others get none."""
        plain, marked = self.watch(), self.watch(allowWatchBookmarks="true")
        self.add("alpha")
        for _ in range(2):
            self.clock.advance(60)
        self.assertEqual([line["type"] for line in plain.lines], ["ADDED"])
        self.assertEqual([line["type"] for line in marked.lines], ["ADDED", "BOOKMARK", "BOOKMARK"])

    def test_end(self) -> None:
        """A watch ends after its duration, and leaves no timer."""
        stream = self.watch(timeoutSeconds="5", allowWatchBookmarks="true")
        self.clock.advance(5)
        self.assertTrue(stream.finished)
        self.assertEqual(stream.taken(), [("BOOKMARK", "")])
        self.add("alpha")
        self.assertEqual(stream.taken(), [])
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_user_gone(self) -> None:
        """A client that disconnects leaves nothing behind."""
        stream = self.watch()
        assert stream.on_closed is not None
        stream.on_closed()
        self.add("alpha")
        self.assertEqual((stream.taken(), stream.finished), ([], False))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_slow_reader(self) -> None:
        """A full stream is not written to until it drains, and then misses no event."""
        stream = self.watch()
        stream.full = True
        self.add("a")
        self.add("b")
        self.successResultOf(self.clusters.remove("a"))
        self.assertEqual(stream.taken(), [("ADDED", "a")])
        stream.drain()
        self.assertEqual(stream.taken(), [("ADDED", "b"), ("DELETED", "a")])
        self.add("c")
        self.assertEqual(stream.taken(), [("ADDED", "c")])

    def test_slow_reader_drains_bit_by_bit(self) -> None:
        """A stream that is full again after one event continues from there."""
        stream = self.watch()
        stream.full = True
        for name in "abc":
            self.add(name)
        seen = []
        for _ in range(3):
            seen += stream.taken()
            assert stream.on_drained is not None
            stream.on_drained()
        self.assertEqual(seen, [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c")])

    def test_reader_too_slow(self) -> None:
        """A client that is too slow for the ring gets 410 as an event, and the end."""
        stream = self.watch()
        stream.full = True
        self.add("alpha")
        for number in range(EVENT_LIMIT + 1):
            self.successResultOf(self.clusters.set_enabled("alpha", bool(number % 2)))
        stream.taken()
        stream.drain()
        (line,) = stream.lines
        self.assertEqual((line["type"], line["object"]["code"]), ("ERROR", 410))
        self.assertTrue(stream.finished)
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_table(self) -> None:
        """A watch for a table sends tables of one row, and no bookmarks."""
        stream = self.watch(accept=TABLE, allowWatchBookmarks="true")
        self.add("alpha")
        self.clock.advance(60)
        (line,) = stream.lines
        item: Any = line["object"]
        self.assertEqual(
            (line["type"], item["kind"], item["rows"][0]["cells"][0]), ("ADDED", "Table", "alpha")
        )
