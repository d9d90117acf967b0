"""Lists in pages and at versions."""

from __future__ import annotations

import base64

from tests.fakes.api import BASE, TABLE, ApiTestCase
from tower.store.store import EVENT_LIMIT

CLUSTERS = f"{BASE}/clusters"


class PagesTests(ApiTestCase):
    """Three clusters."""

    def setUp(self) -> None:
        """Add them."""
        super().setUp()
        for name in ("alpha", "beta", "gamma"):
            self.add(name)

    def names(self, **query: str) -> tuple[list[str], dict[str, object]]:
        """Return the names in a list, and its metadata."""
        answer = self.get(CLUSTERS, **query)
        return [item["metadata"]["name"] for item in answer["items"]], answer["metadata"]

    def test_pages(self) -> None:
        """The pages together are the list, at the version of the first page."""
        names, first = self.names(limit="2")
        self.assertEqual((names, first["remainingItemCount"]), (["alpha", "beta"], 1))
        self.add("aaa")
        names, last = self.names(limit="2", **{"continue": str(first["continue"])})
        self.assertEqual((names, set(last)), (["gamma"], {"resourceVersion"}))
        self.assertEqual(last["resourceVersion"], first["resourceVersion"])
        stream = self.watch(resourceVersion=str(last["resourceVersion"]))
        self.assertEqual(stream.taken(), [("ADDED", "aaa")])

    def test_whole_list(self) -> None:
        """Without a limit, and with a high one, there is one page."""
        for query in ({}, {"limit": "0"}, {"limit": "3"}, {"limit": "999999999999999999"}):
            names, metadata = self.names(**query)
            self.assertEqual((len(names), set(metadata)), (3, {"resourceVersion"}))

    def test_selected(self) -> None:
        """Pages contain selected objects only; the number of the remaining ones is not given."""
        names, metadata = self.names(limit="1", fieldSelector="metadata.name!=alpha")
        self.assertEqual((names, set(metadata)), (["beta"], {"resourceVersion", "continue"}))

    def test_table(self) -> None:
        """Tables have pages too."""
        answer = self.get(CLUSTERS, accept=TABLE, limit="1")
        self.assertEqual(len(answer["rows"]), 1)
        self.assertIn("continue", answer["metadata"])

    def test_expired(self) -> None:
        """A token is rejected with 410 when changes since its version are forgotten."""
        _, metadata = self.names(limit="1")
        for number in range(EVENT_LIMIT + 1):
            self.successResultOf(self.clusters.set_enabled("alpha", bool(number % 2)))
        refusal = self.refused(410, "GET", CLUSTERS, **{"continue": str(metadata["continue"])})
        self.assertEqual(refusal.reason, "Expired")

    def test_malformed(self) -> None:
        """Invalid limits and tokens are rejected."""
        tokens = (b"{", b"[]", b'{"v":"1","start":"a"}', b'{"v":1}', b'{"v":true,"start":"a"}')
        for token in ("x", "é", "a" * 5000, *(base64.urlsafe_b64encode(each).decode() for each in tokens)):
            self.refused(400, "GET", CLUSTERS, **{"continue": token})
        for limit in ("-1", "x", "1" * 30):
            self.refused(400, "GET", CLUSTERS, limit=limit)

    def test_versions(self) -> None:
        """A version of the future is not waited for; exactly an older one is not available."""
        current = self.store.version
        for query in (
            {"resourceVersion": "0"},
            {"resourceVersion": str(current)},
            {"resourceVersion": "1", "resourceVersionMatch": "NotOlderThan"},
            {"resourceVersion": str(current), "resourceVersionMatch": "Exact"},
        ):
            self.assertEqual(len(self.names(**query)[0]), 3)
        refusal = self.refused(504, "GET", CLUSTERS, resourceVersion="999")
        self.assertEqual(refusal.details["causes"][0]["reason"], "ResourceVersionTooLarge")
        self.refused(504, "GET", f"{CLUSTERS}/alpha", resourceVersion="999")
        self.refused(410, "GET", CLUSTERS, resourceVersion=str(current - 1), resourceVersionMatch="Exact")
        self.refused(400, "GET", CLUSTERS, resourceVersion="x")
        for query in (
            {"resourceVersionMatch": "Exact"},
            {"resourceVersionMatch": "Sometimes", "resourceVersion": "1"},
            {"resourceVersionMatch": "Exact", "resourceVersion": "0"},
        ):
            self.refused(422, "GET", CLUSTERS, **query)
