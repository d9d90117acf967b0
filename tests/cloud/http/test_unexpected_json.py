"""`tower.cloud.http.json_stream`, and that nothing of another shape brings a provider down."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.cloud.asking import finish
from tests.cloud.gce.kit import GCETestCase
from tests.cloud.openstack.kit import OpenStackTestCase
from tests.cloud.standins.rest import Ask, Fault, Reply
from tower.cloud.errors import CloudError
from tower.cloud.http.json_stream import Shape, fits

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)


def replaced(value: Any, replacements: list[Any], at: int) -> Any:
    """Return a value with its part number *at*, counted from outside, replaced."""
    count = -1

    def walk(part: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            return replacements[0]
        if isinstance(part, dict):
            return {name: walk(inner) for name, inner in part.items()}
        return [walk(inner) for inner in part] if isinstance(part, list) else part

    return walk(value)


class ShapeTests(SynchronousTestCase):
    """Shapes."""

    def test_fits(self) -> None:
        """Types, lists and objects fit their shapes; null fields of objects always fit."""
        shape: Shape = {"a": str, "b": [{"c": str}], "d": {...: int}}
        good = '{} {"a":"x","z":5} {"a":null} {"b":[]} {"b":[{"c":"x"},{}]} {"d":{"e":1}} {"b":null}'
        bad = '[] null {"a":5} {"b":{}} {"b":[5]} {"b":[{"c":5}]} {"d":{"e":"x"}} {"b":[null]}'
        for text in good.split():
            self.assertTrue(fits(json.loads(text), shape), text)
        for text in bad.split():
            self.assertFalse(fits(json.loads(text), shape), text)


class GCEAnswerTests(GCETestCase):
    """Compute Engine with something odd in its answers."""

    @settings(max_examples=150, deadline=None)
    @given(VALUES, st.integers(0, 60))
    def test_list(self, odd: Any, at: int) -> None:
        """With any value anywhere in a list, it is listed or raises `CloudError`."""
        body = self.gce._aggregated(Ask("GET", "", {}, {}, b"")).body
        self.gce.resource.faults = [Fault(Reply(body=replaced(body, [odd], at)), 9, "aggregated")]
        try:
            finish(self.clock, self.cloud.instances().list_instances())
        except CloudError:
            pass

    @settings(max_examples=100, deadline=None)
    @given(VALUES, st.integers(0, 12))
    def test_project(self, odd: Any, at: int) -> None:
        """With any value anywhere in a project, the key is installed, or it raises `CloudError`."""
        body = {"name": "p", "commonInstanceMetadata": self.gce.project.render()}
        body["commonInstanceMetadata"]["items"] = [{"key": "ssh-keys", "value": "x"}]  # type: ignore[index]
        path = "/compute/v1/projects/demo-project"
        self.gce.resource.faults = [Fault(Reply(body=replaced(body, [odd], at)), 99, path)]
        adding = self.cloud.instances().add_ssh_key_to_all_instances("alice", b"ssh-rsa AAAA")
        try:
            finish(self.clock, adding)
        except CloudError:
            pass


class OpenStackAnswerTests(OpenStackTestCase):
    """Nova and Keystone with something odd in their answers."""

    @settings(max_examples=150, deadline=None)
    @given(VALUES, st.integers(0, 60))
    def test_list(self, odd: Any, at: int) -> None:
        """With any value anywhere in a list, it is listed or raises `CloudError`."""
        servers = [each.render((2, 47)) for each in self.openstack.servers]
        body = replaced({"servers": servers, "servers_links": [{"rel": "prev"}]}, [odd], at)
        self.openstack.resource.faults = [Fault(Reply(body=body), 9, "/servers")]
        try:
            finish(self.clock, self.cloud.instances().list_instances())
        except CloudError:
            pass

    @settings(max_examples=150, deadline=None)
    @given(VALUES, st.integers(0, 60))
    def test_login(self, odd: Any, at: int) -> None:
        """With any value anywhere in a login, it is used or raises `CloudError`."""
        self.openstack.servers = []
        catalog = self.openstack._catalog("p")
        times = {"expires_at": "2099-01-01T00:00:00.000000Z", "issued_at": "2098-12-31T00:00:00Z"}
        body = replaced({"token": times | {"catalog": catalog}}, [odd], at)
        reply = Reply(201, body, {"X-Subject-Token": "gAAAA"})
        self.openstack.resource.faults = [
            Fault(reply, 9, "/auth/"),
            Fault(Reply(body={"servers": []}), 9, "/s"),
        ]
        try:
            finish(self.clock, self.provider().instances().list_instances())
        except CloudError:
            pass
