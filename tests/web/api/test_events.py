"""The resource `events`, in both API groups."""

from __future__ import annotations

from tests.fakes.api import TABLE, ApiTestCase, Stream
from tower.web.outcome import StreamingResponse

CORE = "/api/v1"
NEWER = "/apis/events.k8s.io/v1"


class EventsTests(ApiTestCase):
    """Two clusters with an event each."""

    def setUp(self) -> None:
        """Record the events."""
        super().setUp()
        self.alpha, self.beta = self.add("alpha"), self.add("beta")
        self.events.record(self.alpha, "Connected", "Here.")
        self.events.record(self.beta, "Lost", "Gone.", "Warning")

    def reasons(self, path: str, **query: str) -> list[str]:
        """Return the reasons in a list."""
        return [item["reason"] for item in self.get(path, **query)["items"]]

    def test_forms(self) -> None:
        """Each group has its own names of fields; the object is the cluster."""
        name = self.events.list()[0].name
        old = self.get(f"{CORE}/namespaces/default/events/{name}")
        new = self.get(f"{NEWER}/namespaces/default/events/{name}")
        self.assertEqual((old["apiVersion"], old["message"], old["count"]), ("v1", "Here.", 1))
        self.assertEqual(
            (new["apiVersion"], new["note"], new["deprecatedCount"]), ("events.k8s.io/v1", "Here.", 1)
        )
        self.assertEqual(old["involvedObject"], new["regarding"])
        self.assertEqual(old["involvedObject"]["uid"], self.alpha.uid)
        self.assertEqual(old["metadata"]["namespace"], "default")

    def test_namespaces(self) -> None:
        """All events are in the namespace default."""
        for path in (CORE, NEWER):
            self.assertEqual(self.reasons(f"{path}/events"), ["Connected", "Lost"])
            self.assertEqual(self.reasons(f"{path}/namespaces/default/events"), ["Connected", "Lost"])
            self.assertEqual(self.reasons(f"{path}/namespaces/other/events"), [])
        name = self.events.list()[0].name
        self.refused(404, "GET", f"{CORE}/namespaces/other/events/{name}")
        self.refused(404, "GET", f"{CORE}/namespaces/default/events/x")
        self.refused(404, "GET", f"{CORE}/namespaces/default")
        self.refused(405, "POST", f"{CORE}/namespaces/default/events", {})

    def test_selected(self) -> None:
        """`kubectl describe` selects by the object."""
        uid = self.beta.uid
        selector = f"involvedObject.name=beta,involvedObject.namespace=,involvedObject.uid={uid}"
        self.assertEqual(self.reasons(f"{CORE}/events", fieldSelector=selector), ["Lost"])
        self.assertEqual(self.reasons(f"{NEWER}/events", fieldSelector="regarding.name=alpha"), ["Connected"])
        self.assertEqual(self.reasons(f"{CORE}/events", fieldSelector="type=Warning"), ["Lost"])
        self.refused(400, "GET", f"{CORE}/events", fieldSelector="spec.x=1")

    def test_table(self) -> None:
        """The columns are those of Kubernetes."""
        for path in (CORE, NEWER):
            answer = self.get(f"{path}/events", accept=TABLE)
            self.assertEqual(
                [column["name"] for column in answer["columnDefinitions"]][:5],
                ["Last Seen", "Type", "Reason", "Object", "Message"],
            )
            self.assertEqual(
                answer["rows"][1]["cells"][:5], ["0s", "Warning", "Lost", "cluster/beta", "Gone."]
            )

    def test_pages(self) -> None:
        """Long lists have pages."""
        answer = self.get(f"{CORE}/events", limit="1")
        rest = self.get(f"{CORE}/events", **{"continue": answer["metadata"]["continue"]})
        self.assertEqual(len(rest["items"]), 1)

    def test_watch(self) -> None:
        """New events and bookmarks arrive in the form of the group."""
        for path, kind in ((CORE, "v1"), (NEWER, "events.k8s.io/v1")):
            outcome = self.ask(
                "GET",
                f"{path}/namespaces/default/events",
                watch="1",
                allowWatchBookmarks="true",
                resourceVersion=str(self.store.version),
            )
            assert isinstance(outcome, StreamingResponse)
            stream = Stream()
            outcome.start(stream)
            self.events.record(self.alpha, f"Reason{len(kind)}", "New.")
            self.clock.advance(60)
            self.assertEqual([line["type"] for line in stream.lines], ["ADDED", "BOOKMARK"])
            self.assertEqual(
                {(line["object"]["apiVersion"], line["object"]["kind"]) for line in stream.lines},
                {(kind, "Event")},
            )
            assert stream.on_closed is not None
            stream.on_closed()
