"""Tests of `tower.store.copying`: a copy to a host cluster and back loses nothing."""

from __future__ import annotations

from typing import Any, cast

from attrs import evolve
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import TestCase

from tests.fakes.members import SPEC, by_token
from tests.kube.rest.fake_host import FakeHost
from tests.store.kubernetes.kit import opened
from tower.clusters import Cluster, Clusters
from tower.clusters.cluster import Condition, decode
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.v1_tokens import V1Tokens
from tower.errors import Conflict
from tower.kube.rest import well_known
from tower.store import IStore, MemoryStore
from tower.store.copying import copy_records
from tower.store.kinds import CLUSTERS, KINDS
from tower.store.records import Value
from tower.store.sqlite import SQLiteStore
from tower.trust.vault import Vault

reactor = cast(Any, _reactor)

NOW = 1_790_000_000.25


def _contents(store: IStore) -> dict[str, dict[str, Value | Cluster]]:
    """Return all values; clusters without their generation, which each store counts itself."""
    found: dict[str, dict[str, Value | Cluster]] = {}
    for kind in KINDS:
        for name, record in store.snapshot(kind).items():
            value: Value | Cluster = record.value
            if kind == CLUSTERS:
                cluster = decode(evolve(record, version=0))
                value = evolve(cluster, meta=evolve(cluster.meta, generation=1))
            found.setdefault(kind, {})[name] = value
    return found


class CopyTests(TestCase):
    """Copies of the records of a proxy."""

    async def setUp(self) -> None:  # type: ignore[override]
        """Make a store with all kinds of records."""
        clock = Clock()
        clock.advance(NOW)
        self.store = SQLiteStore(reactor, self.mktemp())
        self.addCleanup(self.store.stop)
        vault = Vault(f"{self.mktemp()}.key")
        clusters = Clusters(self.store, range(6000, 6100), clock, MemberCredentials(self.store, vault))
        self.addCleanup(clusters.stop)
        await clusters.add("alpha", labels={"a": "b"}, annotations={"c": "d"})
        await clusters.add("beta", ssh=SPEC, access=by_token(), enabled=False)
        clock.advance(0.75)
        await clusters.set_conditions("alpha", [Condition("Available", "True", "Ready", "Fine.", 0.0)])
        tokens = JoinTokens(self.store, clock)
        await tokens.enrol("alpha", await tokens.mint("alpha", uses=3), "SHA256:a/b+c=", b"blob")
        v1_tokens = V1Tokens(self.store, clock)
        self.addCleanup(v1_tokens.stop)
        await v1_tokens.mint("alpha")
        credentials = Credentials(self.store, clock, 86400.0)
        self.addCleanup(credentials.stop)
        await credentials.issue_token("alpha", "jane", ["dev"], 60.0)
        await credentials.issue_token("", "admin", [], 60.0)
        uid = clusters.require("beta").uid
        for kind in KINDS:
            if not self.store.snapshot(kind):
                await self.store.create(kind, f"{uid}/[::1]:22", {"cluster_uid": uid, "none": None, "x": 0.5})

    async def test_both_ways(self) -> None:
        """SQLite, host cluster and SQLite have the same records; a second copy writes nothing."""
        for has_status in (True, False):
            host_api = FakeHost()
            if not has_status:
                host_api.without_status.add(well_known.CLUSTERS)
            host = opened(host_api)
            back = SQLiteStore(reactor, self.mktemp())
            self.addCleanup(back.stop)
            before = _contents(self.store)
            self.assertEqual(sorted(before), sorted(KINDS))
            count = await copy_records(self.store, host)
            self.assertEqual(count, sum(map(len, before.values())))
            self.assertEqual(_contents(host), before)
            await host.stop()
            again = opened(host_api)
            self.assertEqual(_contents(again), before)
            self.assertEqual(await copy_records(again, back), count)
            self.assertEqual(_contents(back), before)
            self.assertEqual(await copy_records(again, back), 0)
            host_api.requests.clear()
            await copy_records(self.store, again)
            self.assertEqual(host_api.writes, [])
            await again.stop()

    async def test_interrupted(self) -> None:
        """A copy that was interrupted at any record can be repeated."""
        before = _contents(self.store)
        for number in range(1, 12):
            host_api = FakeHost()
            host = opened(host_api)
            writes = 0

            def stop(verb: str, _resource: object, _obj: object, number: int = number) -> None:
                nonlocal writes
                writes += 1
                if writes == number:
                    raise ZeroDivisionError

            host_api.admission.append(stop)
            failing = Deferred.fromCoroutine(copy_records(self.store, host))
            await failing.addErrback(lambda failure: None)
            host_api.admission.clear()
            await copy_records(self.store, host)
            self.assertEqual(_contents(host), before)
            await host.stop()

    async def test_other_clusters(self) -> None:
        """A store with other clusters is rejected as a target."""
        target = MemoryStore()
        clusters = Clusters(target, None, Clock())
        self.addCleanup(clusters.stop)
        await clusters.add("alpha")
        error = await self.assertFailure(Deferred.fromCoroutine(copy_records(self.store, target)), Conflict)
        self.assertIn("alpha", str(error))
        self.assertEqual(list(target.snapshot("clusters")), ["alpha"])
