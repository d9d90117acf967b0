"""The resource `events`, in both API groups."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import fail

from tests.fakes.api import TABLE, ApiTestCase, Stream, decoded
from tower.clusters import API_VERSION
from tower.clusters.cluster_events import CLIENT_LIMIT, KEPT, WRITE_PERIOD
from tower.store.records import StoreFailed
from tower.web.api.discovery import CORE as CORE_GROUP
from tower.web.api.discovery import EVENTS
from tower.web.api.writes.client_events import names_of
from tower.web.outcome import Response, StreamingResponse

STRATEGIC = "application/strategic-merge-patch+json"
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

    def test_order(self) -> None:
        """A whole list ends with the newest event, also within a second; pages are in the order of names."""
        query = {"fieldSelector": f"involvedObject.uid={self.alpha.uid}"}
        for reason in ("Timeout", "Lost", "Connected", "Reachable", "Lost", "Connected"):
            self.clock.advance(0.01)
            self.events.record(self.alpha, reason, "Text.")
        path = f"{CORE}/namespaces/default/events"
        for limit in ("", "500"):
            items = self.get(path, **query, limit=limit)["items"]
            self.assertEqual(
                [(item["reason"], item["count"]) for item in items],
                [("Timeout", 1), ("Reachable", 1), ("Lost", 2), ("Connected", 3)],
            )
        pages, token = [], ""
        for _ in range(2):
            page = self.get(path, **query, limit="2", **({"continue": token} if token else {}))
            token = page["metadata"].get("continue", "")
            pages += [item["metadata"]["name"] for item in page["items"]]
        self.assertEqual(pages, sorted(item["metadata"]["name"] for item in items))

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
        self.assertEqual(
            self.refused(404, "GET", f"{NEWER}/namespaces/default/events/x").details,
            {"name": "x", "group": "events.k8s.io", "kind": "events"},
        )

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

    def reported(self, path: str = CORE, **more: Any) -> dict[str, Any]:
        """Return the event of a controller about alpha."""
        names = names_of(CORE_GROUP if path == CORE else EVENTS)
        return {
            "apiVersion": "v1" if path == CORE else "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "alpha.18a", "namespace": "default"},
            names.subject: {
                "apiVersion": API_VERSION,
                "kind": "Cluster",
                "name": "alpha",
                "uid": self.alpha.uid,
            },
            "reason": "Registered",
            "type": "Normal",
            names.message: "Seen.",
            names.component: "inventory",
            "eventTime": "2026-11-23T01:00:00.000000Z",
            **more,
        }

    def post(self, event: dict[str, Any], path: str = CORE) -> dict[str, Any]:
        """Report an event."""
        outcome = self.ask("POST", f"{path}/namespaces/default/events", event)
        assert isinstance(outcome, Response)
        self.assertEqual(outcome.code, 201)
        return decoded(outcome)

    def test_reported(self) -> None:
        """A controller's event is listed like others; further reports and patches count it."""
        for path, count in ((CORE, 1), (NEWER, 4)):
            names = names_of(CORE_GROUP if path == CORE else EVENTS)
            first = self.post(self.reported(path), path)
            self.assertEqual(
                (first[names.message], first[names.component], first[names.count], first["reason"]),
                ("Seen.", "inventory", count, "Registered"),
            )
            name = f"{path}/namespaces/default/events/{first['metadata']['name']}"
            self.assertEqual(self.get(name)["metadata"], first["metadata"])
            second = self.post(self.reported(path, metadata={"name": "alpha.18b"}), path)
            self.assertEqual(
                (second["metadata"]["name"], second[names.count]), (first["metadata"]["name"], count + 1)
            )
            patch: dict[str, Any] = {"count": 3} if path == CORE else {"series": {"count": 9}}
            third = decoded(self.ask("PATCH", name, {**patch, names.message: "Again."}, content=STRATEGIC))
            self.assertEqual((third[names.count], third[names.message]), (3 if path == CORE else 9, "Again."))
        self.assertEqual(third["series"]["count"], 9)
        self.assertEqual(self.reasons(f"{CORE}/events", fieldSelector="source=inventory"), ["Registered"])
        self.assertEqual(
            self.reasons(f"{NEWER}/events", fieldSelector="reportingController=tower-proxy"),
            ["Connected", "Lost"],
        )
        self.clock.advance(WRITE_PERIOD)
        self.events.sweep()
        self.assertEqual(self.get(name)["deprecatedCount"], 9)
        self.clock.advance(KEPT)
        self.events.sweep()
        self.refused(404, "GET", name)
        self.refused(404, "PATCH", name, {}, content=STRATEGIC)

    def test_defaults(self) -> None:
        """An event needs a cluster and a reason only; its component is the client's program."""
        event = self.post({"involvedObject": {"kind": "Cluster", "name": "beta"}, "reason": "Moved"})
        self.assertEqual(
            (event["source"]["component"], event["type"], event["message"]), ("kubectl", "Normal", "")
        )
        self.assertEqual(event["involvedObject"]["uid"], self.beta.uid)

    def test_towers_own(self) -> None:
        """Tower's own events cannot be changed, imitated or removed."""
        own = self.events.list()
        for event in own:
            path = f"{CORE}/namespaces/default/events/{event.name}"
            self.refused(403, "PATCH", path, {"count": 7}, content=STRATEGIC)
            for method in ("PUT", "DELETE"):
                self.assertIn("an hour after", self.refused(405, method, path, {}).message)
        path = f"{CORE}/namespaces/default/events"
        self.assertIn("an hour after", self.refused(405, "DELETE", path).message)
        self.refused(405, "POST", f"{CORE}/events", self.reported())
        refusal = self.refused(422, "POST", path, self.reported(reportingComponent="tower-proxy"))
        self.assertIn("is reserved for Tower's own events", refusal.message)
        self.post(self.reported(reason="Connected"))
        self.assertEqual([event for event in self.events.list() if event.component == "tower-proxy"], own)

    def test_limit(self) -> None:
        """Too many reasons of one cluster are answered with 429; other clusters and Tower's events go on."""
        for number in range(CLIENT_LIMIT):
            self.post(self.reported(reason=f"Reason{number}"))
        path = f"{CORE}/namespaces/default/events"
        refusal = self.refused(429, "POST", path, self.reported(reason="More"))
        self.assertIn(f"cluster alpha has {CLIENT_LIMIT} events of clients, the limit: ", refusal.message)
        self.post({"involvedObject": {"kind": "Cluster", "name": "beta"}, "reason": "More"})
        self.events.record(self.alpha, "Lost", "Gone.", "Warning")
        self.assertEqual(self.reasons(path, fieldSelector="involvedObject.name=alpha,reason=Lost"), ["Lost"])

    def test_wrong_reports(self) -> None:
        """Each wrong report is rejected with its field."""
        path = f"{CORE}/namespaces/default/events"
        cluster = {"kind": "Cluster", "name": "alpha"}
        for code, text, more in (
            (400, "kind 'Pod': must be Event", {"kind": "Pod"}),
            (400, "must be v1", {"apiVersion": "v2"}),
            (422, "involvedObject: must be a Cluster", {"involvedObject": {"kind": "Lease", "name": "a"}}),
            (422, "involvedObject: must be a Cluster", {"involvedObject": {**cluster, "apiVersion": "v1"}}),
            (422, "involvedObject: must be an object", {"involvedObject": ["alpha"]}),
            (422, "involvedObject.name: required", {"involvedObject": {"kind": "Cluster"}}),
            (422, "involvedObject.name: must be a string", {"involvedObject": {**cluster, "name": 1}}),
            (404, "cluster x not found", {"involvedObject": {**cluster, "name": "x"}}),
            (404, "uid", {"involvedObject": {**cluster, "uid": "x"}}),
            (422, "reason: must have", {"reason": ""}),
            (422, "reason: must have", {"reason": "x" * 129}),
            (422, "reason: must have", {"reason": "a\nb"}),
            (422, "type: 'Bad': must be Normal or Warning", {"type": "Bad"}),
            (422, "type: ['Normal']", {"type": ["Normal"]}),
            (422, "message: must be a string", {"message": ["a"]}),
            (422, "count: must be a number", {"count": "1"}),
            (422, "series: must be an object", {"series": 1}),
            (422, "reportingComponent: must have", {"reportingComponent": "x" * 129}),
        ):
            self.assertIn(text, self.refused(code, "POST", path, self.reported(**more)).message)
        other = f"{CORE}/namespaces/kube-system/events"
        self.assertIn("namespace default", self.refused(400, "POST", other, self.reported()).message)
        self.refused(400, "POST", path, self.reported(), dryRun="All")
        self.refused(415, "POST", path, self.reported(), content="text/plain")
        name = self.post(self.reported())["metadata"]["name"]
        self.refused(415, "PATCH", f"{path}/{name}", [], content="application/json-patch+json")
        self.refused(422, "PATCH", f"{path}/{name}", {"count": "x"}, content=STRATEGIC)
        self.assertEqual(self.post(self.reported(message="x" * 5_000))["message"][-1], "…")

    def test_disk_is_full(self) -> None:
        """A report that cannot be written is answered with 503."""
        self.patch(self.store, "transact", lambda _: fail(StoreFailed("no space left")))
        self.refused(503, "POST", f"{CORE}/namespaces/default/events", self.reported())
