"""The clusters there are."""

from __future__ import annotations

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.store.store_contract import HeldStore
from tower.clusters import Cluster, Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.errors import AlreadyExists, ConfigurationError, Conflict, Invalid, NotFound, TowerError
from tower.store.records import Expired, Update

#: A moment in 2026, s.
NOW = 1_790_000_000.0


class ClustersTests(SynchronousTestCase):
    """Each test has three ports."""

    def setUp(self) -> None:
        """Make a store without clusters."""
        self.clock = Clock()
        self.clock.advance(NOW)
        self.store = HeldStore()
        self.ports = range(6000, 6003)
        self.clusters = self.with_ports(self.ports)

    def with_ports(self, ports: range | None) -> Clusters:
        """Return the clusters as another start of the proxy sees them."""
        clusters = Clusters(self.store, ports, self.clock)
        self.addCleanup(clusters.stop)
        return clusters

    def added(self, name: str) -> Cluster:
        """Add a cluster."""
        return self.successResultOf(self.clusters.add(name))

    def text(self, failed: Deferred[Cluster], kind: type[TowerError]) -> str:
        """Return the text of a failure."""
        return str(self.failureResultOf(failed, kind).value)

    def test_added(self) -> None:
        """A new cluster is enabled and has a port and a unique uid."""
        alpha, beta = self.added("alpha"), self.added("beta")
        self.assertEqual((alpha.name, alpha.enabled, alpha.created), ("alpha", True, NOW))
        self.assertEqual([alpha.kubernetes_port, beta.kubernetes_port], [6000, 6001])
        self.assertNotEqual(alpha.uid, beta.uid)
        self.assertEqual(self.clusters.get("alpha"), alpha)
        self.assertEqual(self.clusters.list(), [alpha, beta])
        self.assertIsNone(self.clusters.get("gamma"))

    def test_of_a_newer_tower(self) -> None:
        """Unknown fields of conditions are dropped; an unknown setting of nodes is an error with the cure."""
        self.added("alpha")
        self.successResultOf(self.clusters.set_condition("alpha", "Available", "True", "Ready", ""))
        record = self.store.get("clusters", "alpha")
        assert record is not None
        (condition,) = record.value["conditions"]
        value = {**record.value, "conditions": [{**condition, "probed": 1}]}
        self.successResultOf(self.store.update("clusters", "alpha", value, record.version))
        (cluster,) = self.with_ports(None).list()
        self.assertEqual(cluster.conditions[0].reason, "Ready")
        ssh = {"user": "core", "key_file": "id", "jump_host": "bastion"}
        self.successResultOf(self.store.transact([Update("clusters", "alpha", {**value, "ssh": ssh})]))
        error = self.assertRaises(ConfigurationError, lambda: self.with_ports(None).list())
        self.assertIn("cluster alpha: the ssh part of its record has the unknown field jump_host", str(error))

    def test_added_with_all(self) -> None:
        """A cluster may begin disabled, with labels and annotations."""
        labels, notes = {"env": "prod"}, {"note": "é"}
        made = self.successResultOf(self.clusters.add("a", enabled=False, labels=labels, annotations=notes))
        self.assertEqual((made.enabled, made.labels, made.annotations), (False, labels, notes))
        self.assertEqual(self.with_ports(None).get("a"), made)

    def test_port_that_was_wished_for(self) -> None:
        """A cluster may have the port that it had elsewhere; others get what is left."""
        made = self.successResultOf(self.clusters.add("a", port=6001))
        self.assertEqual(made.kubernetes_port, 6001)
        self.assertEqual([self.added(name).kubernetes_port for name in ("b", "c")], [6000, 6002])

    def test_port_that_cannot_be_had(self) -> None:
        """A port outside the range, or of another cluster, is rejected by number, and none is assigned."""
        self.added("a")
        self.assertIn(
            "cluster a has it: choose another port", self.text(self.clusters.add("b", port=6000), Conflict)
        )
        self.assertIn("ports 6000-6002: choose", self.text(self.clusters.add("b", port=6003), Invalid))
        none = self.with_ports(None)
        self.assertIn("--cluster-ports none", self.text(none.add("b", port=6001), Invalid))
        self.assertIsNone(self.clusters.get("b"))
        self.assertEqual(self.added("b").kubernetes_port, 6001)

    def test_port_wished_for_in_a_race(self) -> None:
        """If two clusters request the same port, one gets it; the error of the other names the owner."""
        self.store.holding = True
        first, second = (self.with_ports(self.ports).add(name, port=6001) for name in ("a", "b"))
        self.store.release()
        self.assertEqual(self.successResultOf(first).kubernetes_port, 6001)
        self.assertIn("cluster a has it: choose another port", self.text(second, Conflict))

    def test_bad_metadata(self) -> None:
        """Labels and annotations are texts, and not too many."""
        large = {"a": "x" * (256 * 1024)}
        self.assertIn("exceed", self.text(self.clusters.add("a", annotations=large), Invalid))
        odd = {"a": 1}
        self.text(self.clusters.add("a", labels=odd), Invalid)  # type: ignore[arg-type]

    def test_same_name(self) -> None:
        """Adding what is there names it and the cure, and costs no port."""
        self.added("alpha")
        text = self.text(self.clusters.add("alpha"), AlreadyExists)
        self.assertIn("cluster alpha already exists", text)
        self.assertIn("tower cluster show alpha", text)
        self.assertEqual(len(self.store.snapshot("ports")), 1)

    def test_names(self) -> None:
        """A name must be a DNS label; the error describes it."""
        for name in ("a", "0", "a-b", "x" * 63):
            self.successResultOf(self.with_ports(None).add(name))
        for name in ("", "A", "-a", "a-", "a.b", "a_b", "é", "a b", "a\n", "x" * 64, "../a", "٣"):
            text = self.text(self.clusters.add(name), Invalid)
            self.assertIn(repr(name), text)
            self.assertIn("63 lower case letters", text)

    def test_missing(self) -> None:
        """An unknown cluster is named in the error, with the cure."""
        for failed in (
            self.clusters.remove("x"),
            self.clusters.set_enabled("x", enabled=True),
            self.clusters.set_condition("x", "T", "True", "R", "m"),
        ):
            text = self.text(failed, NotFound)
            self.assertIn("cluster x not found", text)
            self.assertIn("tower cluster list", text)
        self.assertRaises(NotFound, self.clusters.require, "x")

    def test_ports_run_out(self) -> None:
        """When all ports are taken the error names the flag; a removed cluster gives its port back."""
        for name in ("a", "b", "c"):
            self.added(name)
        text = self.text(self.clusters.add("d"), Conflict)
        self.assertIn("--cluster-ports 6000-6002", text)
        self.successResultOf(self.clusters.remove("b"))
        self.assertEqual(self.added("d").kubernetes_port, 6001)

    def test_ports_in_a_race(self) -> None:
        """Clusters added at the same time get different ports (hole 7)."""
        self.store.holding = True
        adding = [self.with_ports(self.ports).add(name) for name in ("a", "b", "c", "d")]
        self.store.release()
        ports = [self.successResultOf(added).kubernetes_port for added in adding[:3]]
        self.assertEqual(sorted(port or 0 for port in ports), [6000, 6001, 6002])
        self.text(adding[3], Conflict)

    def test_many_at_once(self) -> None:
        """Many clusters added at once cost one write each."""
        clusters = self.with_ports(range(7000, 7050))
        self.store.holding = True
        adding = [clusters.add(f"c{number}") for number in range(50)]
        self.assertEqual(len(self.store.held), 1)
        self.store.release()
        ports = {self.successResultOf(added).kubernetes_port for added in adding}
        self.assertEqual(len(ports), 50)

    def test_different_ports_for_all(self) -> None:
        """300 clusters that two proxies add in turn get 300 ports of the default range (hole 7)."""
        proxies = [self.with_ports(range(6000, 7001)) for _ in range(2)]
        self.store.holding = True
        adding = [proxies[number % 2].add(f"c{number}") for number in range(300)]
        self.store.release()
        added = [self.successResultOf(one) for one in adding]
        ports = {cluster.kubernetes_port for cluster in added}
        self.assertEqual(len(ports), 300)
        self.assertLessEqual(ports, set(range(6000, 7001)))
        claims = {int(name): record.value["cluster"] for name, record in self.store.snapshot("ports").items()}
        self.assertEqual(claims, {cluster.kubernetes_port: cluster.name for cluster in added})

    def test_same_name_in_a_race(self) -> None:
        """If the same name is added twice concurrently, one succeeds."""
        self.store.holding = True
        one, two = self.clusters.add("a"), self.with_ports(self.ports).add("a")
        self.store.release()
        self.successResultOf(one)
        self.text(two, AlreadyExists)
        self.assertEqual(len(self.store.snapshot("ports")), 1)

    def test_enabled(self) -> None:
        """A cluster is switched off and on; once more changes nothing."""
        first = self.added("a")
        off = self.successResultOf(self.clusters.set_enabled("a", enabled=False))
        self.assertEqual((off.enabled, off.uid), (False, first.uid))
        self.assertGreater(off.resource_version, first.resource_version)
        self.assertEqual(self.successResultOf(self.clusters.set_enabled("a", enabled=False)), off)
        self.assertTrue(self.successResultOf(self.clusters.set_enabled("a", enabled=True)).enabled)

    def test_conditions(self) -> None:
        """A condition's time is that of the last change of its status; an equal condition is not written."""
        self.added("a")
        first = self.successResultOf(self.clusters.set_condition("a", "Available", "True", "R", "one"))
        self.clock.advance(10)
        same = self.successResultOf(self.clusters.set_condition("a", "Available", "True", "R", "one"))
        self.assertEqual(same, first)
        hostile = self.clusters.set_condition("a", "Other", "Unknown", "R", "x\x9b\u2028")
        noted = self.successResultOf(hostile).condition("Other")
        assert noted is not None
        self.assertEqual(noted.message, r"x\x9b\u2028")
        text = self.successResultOf(self.clusters.set_condition("a", "Available", "True", "R", "two"))
        self.assertEqual([c.type for c in text.conditions], ["Available", "Other"])
        condition = text.condition("Available")
        assert condition is not None
        self.assertEqual((condition.last_transition, condition.message), (NOW, "two"))
        other = self.successResultOf(self.clusters.set_condition("a", "Available", "False", "S", "three"))
        condition = other.condition("Available")
        assert condition is not None
        self.assertEqual((condition.status, condition.last_transition), ("False", NOW + 10))
        self.assertIsNone(other.condition("Nothing"))

    def test_changes_in_a_race(self) -> None:
        """Of changes at the same time none is lost."""
        self.added("a")
        self.store.holding = True
        changing = [
            self.clusters.set_condition("a", "One", "True", "R", ""),
            self.with_ports(None).set_enabled("a", enabled=False),
            self.with_ports(None).set_condition("a", "Two", "True", "R", ""),
        ]
        self.store.release()
        for changed in changing:
            self.successResultOf(changed)
        final = self.clusters.require("a")
        self.assertEqual(([c.type for c in final.conditions], final.enabled), (["One", "Two"], False))

    def test_changes_at_once(self) -> None:
        """Changes of several clusters are submitted together, and those of one cluster one by one."""
        names = [f"c{number}" for number in range(20)]
        clusters = self.with_ports(None)
        for name in names:
            self.successResultOf(clusters.add(name))
        self.store.holding = True
        changing = [clusters.set_condition(name, "One", "True", "R", "") for name in names]
        self.assertGreater(len(self.store.held), 1)
        submitted = len(self.store.held)
        changing.append(clusters.set_condition(names[0], "Two", "True", "R", ""))
        self.assertEqual(len(self.store.held), submitted)
        self.store.release()
        self.assertEqual([len(self.successResultOf(each).conditions) for each in changing], [1] * 20 + [2])

    def test_change_of_a_version(self) -> None:
        """A change of an outdated version is rejected."""
        first = self.added("a")
        edit = lambda cluster: evolve(cluster, enabled=False)  # noqa: E731
        self.successResultOf(self.clusters.change("a", edit, first.resource_version))
        self.text(self.clusters.change("a", edit, first.resource_version), Conflict)

    def test_too_many_races(self) -> None:
        """A change that always comes too late gives up."""
        self.added("a")

        def meddle(cluster: Cluster) -> Cluster:
            self.store.update(
                "clusters", "a", {**self.store.snapshot("clusters")["a"].value, "created": next(times)}
            )
            return evolve(cluster, enabled=False)

        times = iter(range(100))
        self.assertIn("retry", self.text(self.clusters.change("a", meddle), Conflict))

    def test_removed(self) -> None:
        """With a cluster go its tokens, keys, credentials and port, and nothing of another cluster."""
        tokens, credentials = JoinTokens(self.store, self.clock), Credentials(self.store, self.clock, 86400.0)
        for name in ("a", "b"):
            self.added(name)
            token = self.successResultOf(tokens.mint(name))
            self.successResultOf(tokens.enrol(name, token, "SHA256:x", b"blob"))
            self.successResultOf(credentials.issue_token(name, "jane", [], 60.0))
        kinds = ("clusters", "ports", "jointokens", "agentkeys", "credentials")
        self.assertEqual([len(self.store.snapshot(kind)) for kind in kinds], [2] * 5)
        gone = self.successResultOf(self.clusters.remove("a"))
        self.assertEqual(gone.name, "a")
        self.assertEqual([len(self.store.snapshot(kind)) for kind in kinds], [1] * 5)
        self.assertFalse(tokens.is_enrolled("a", "SHA256:x"))
        self.assertTrue(tokens.is_enrolled("b", "SHA256:x"))

    def test_removed_and_added(self) -> None:
        """A later cluster of the same name is another one: nothing of the first opens it."""
        tokens = JoinTokens(self.store, self.clock)
        first = self.added("a")
        self.successResultOf(tokens.mint("a"))
        self.store.holding = True
        late = tokens.mint("a")
        self.store.holding = False
        self.successResultOf(self.clusters.remove("a"))
        second = self.added("a")
        self.store.release()
        self.successResultOf(tokens.enrol("a", self.successResultOf(late), "SHA256:x", b"").addErrback(id))
        self.assertNotEqual(first.uid, second.uid)
        self.assertFalse(tokens.is_enrolled("a", "SHA256:x"))

    def test_removed_by_uid(self) -> None:
        """A removal with another uid removes nothing."""
        first = self.added("a")
        self.assertIn("uid", self.text(self.clusters.remove("a", "other"), Conflict))
        self.successResultOf(self.clusters.remove("a", first.uid))

    def test_watch(self) -> None:
        """A watch receives each change; a change without effect emits no event."""
        heard: list[tuple[str, str, bool]] = []
        watch = self.clusters.watch(lambda kind, cluster: heard.append((kind, cluster.name, cluster.enabled)))
        start = self.store.version
        self.added("a")
        self.successResultOf(self.clusters.set_enabled("a", enabled=False))
        self.successResultOf(self.clusters.set_enabled("a", enabled=False))
        self.successResultOf(self.clusters.remove("a"))
        watch.stop()
        self.added("b")
        self.assertEqual(heard, [("ADDED", "a", True), ("MODIFIED", "a", False), ("DELETED", "a", False)])
        missed = [(kind, cluster.name, cluster.enabled) for kind, cluster in self.clusters.changes(start)]
        self.assertEqual(missed, [*heard, ("ADDED", "b", True)])
        self.assertRaises(Expired, self.clusters.changes, self.store.version + 1)

    def test_watchers_see_the_new(self) -> None:
        """A watch callback reads the changed cluster."""
        seen: list[bool] = []
        self.store.watch("clusters", lambda event: seen.append(self.with_ports(None).require("a").enabled))
        clusters = self.with_ports(None)
        self.store.watch("clusters", lambda event: seen.append(clusters.require("a").enabled))
        self.added("a")
        self.successResultOf(self.clusters.set_enabled("a", enabled=False))
        self.assertEqual(seen, [True, True, False, False])
