"""Tests of `tower.controller.leader.fenced_host`."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.kube.rest.fake_host import FakeHost
from tower.controller.leader.fenced_host import FencedHost
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, WatchEvent
from tower.kube.rest.well_known import CONFIG_MAPS

PLACE = {"name": "one", "namespace": "default"}


class FencedHostTests(SynchronousTestCase):
    """A process that leads, and then does not."""

    def setUp(self) -> None:
        """Lead."""
        self.leads = True
        self.host = FakeHost()
        self.fenced: HostAPI = FencedHost(self.host, lambda: self.leads)

    def do(self, doing: Coroutine[Deferred[Any], Any, Any]) -> Any:
        """Return the result of a request."""
        return self.successResultOf(Deferred.fromCoroutine(doing))

    def write_all(self) -> list[Coroutine[Deferred[Any], Any, Any]]:
        """Return one request of each kind that writes."""
        api = self.fenced
        return [
            api.create(CONFIG_MAPS, {"metadata": PLACE}),
            api.update(CONFIG_MAPS, {"metadata": PLACE, "data": {"a": "b"}}),
            api.patch(CONFIG_MAPS, "one", {"data": {"a": "c"}}, "default"),
            api.delete(CONFIG_MAPS, "one", "default", uid=None),
        ]

    def test_leader(self) -> None:
        """A leader writes."""
        for write in self.write_all():
            self.do(write)
        self.assertEqual([verb for verb, _, _ in self.host.writes], ["create", "update", "patch", "delete"])

    def test_no_leader(self) -> None:
        """Without leadership nothing is sent, and reads go on."""
        self.leads = False
        for write in self.write_all():
            failure = self.failureResultOf(Deferred.fromCoroutine(write), APIError)
            self.assertEqual((failure.value.code, failure.value.message), (0, "this proxy is not the leader"))
        self.assertEqual(self.host.writes, [])
        self.host.put(CONFIG_MAPS, {"metadata": PLACE})
        self.assertEqual(self.do(self.fenced.get(CONFIG_MAPS, "one", "default"))["kind"], "ConfigMap")
        selected = self.do(self.fenced.list(CONFIG_MAPS, "default", field_selector="metadata.name=two"))
        self.assertEqual(selected.items, [])

    def test_watch(self) -> None:
        """A watch is passed on, with all its options."""
        seen: list[WatchEvent] = []
        watching = Deferred.fromCoroutine(
            self.fenced.watch(
                CONFIG_MAPS, "default", "0", seen.append, field_selector="metadata.name=one", seconds=5
            )
        )
        for name in ("one", "two"):
            self.host.put(CONFIG_MAPS, {"metadata": {**PLACE, "name": name}})
        self.assertEqual([each.object["metadata"]["name"] for each in seen], ["one"])
        self.host.end_watches()
        self.assertIsNone(self.successResultOf(watching))
