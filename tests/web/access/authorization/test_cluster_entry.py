"""Tests of `tower.web.access.authorization.cluster_entry`."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.policies import Policies, cluster_of, spec_of, user_of
from tower.clusters import Cluster
from tower.clusters.policies.access_levels import ALL_LEVELS, EDIT, FULL, LEVELS, NO_EXEC
from tower.clusters.policies.policy_object import read_spec
from tower.clusters.ssh_spec import SSHSpec
from tower.errors import Forbidden, Invalid
from tower.web.access.authentication.identity import Identity, UserInfo
from tower.web.access.authorization.cluster_entry import Asked, subjects_of

MONDAY = 1_795_420_800.0  # 2026-11-23T08:00:00Z
HOUR = 3600.0


class ClusterEntryTests(SynchronousTestCase):
    """The users that enter a cluster."""

    def setUp(self) -> None:
        """Start without policies."""
        self.policies = Policies(now=MONDAY)

    def admit(
        self, user: Identity | None = None, cluster: Cluster | None = None, asked: Asked | None = None
    ) -> Identity:
        """Return the admitted user."""
        cluster = cluster or cluster_of()
        return self.policies.entry.admit(user or user_of(), cluster, cluster.name, asked or Asked())

    def member(self, *arguments: Any) -> UserInfo:
        """Return the admitted user as the member knows it."""
        return self.admit(*arguments).in_member

    def refused(self, *arguments: Any) -> str:
        """Return the reason of a refusal."""
        with self.assertRaises(Forbidden) as caught:
            self.admit(*arguments)
        return str(caught.exception)

    def test_nobody(self) -> None:
        """Without a policy no user enters; the text does not show whether the cluster exists."""
        text = self.refused()
        self.assertIn("jane is not admitted to cluster alpha: ask an administrator", text)
        with self.assertRaises(Forbidden) as caught:
            self.policies.entry.admit(user_of(), None, "alpha", Asked())
        self.assertEqual(str(caught.exception), text)

    def test_subjects(self) -> None:
        """Users, groups, service accounts and claims are subjects; the group of all users, too."""
        account = user_of("system:serviceaccount:build:ci", "system:serviceaccounts")
        claimed = user_of("joe", "qa", extra=(("example.org/team", ("sea", "air")),))
        for subject, user in (
            ({"kind": "User", "name": "jane"}, user_of("jane")),
            ({"kind": "Group", "name": "dev"}, user_of("anne", "qa", "dev")),
            ({"kind": "ServiceAccount", "namespace": "build", "name": "ci"}, account),
            ({"kind": "Claim", "name": "example.org/team", "value": "air"}, claimed),
        ):
            self.policies.put("p", {**spec_of(), "subjects": [subject]})
            for each in (user_of("jane"), user_of("anne", "qa", "dev"), account, claimed):
                if each == user or (subject["name"] == "dev" and "dev" in each.groups):
                    self.admit(each)
                else:
                    self.refused(each)
        self.policies.put("p", spec_of("system:authenticated"))
        self.admit(user_of("joe", "qa"))
        self.refused(user_of("system:anonymous", "system:unauthenticated"))

    def test_facts(self) -> None:
        """The cluster gets the UID and the facts that a policy names, and no others."""
        extra = (("scopes", ("a",)), ("example.org/team", ("sea",)))
        user = user_of("jane", "dev", uid="7", extra=extra)
        self.policies.put("p", spec_of())
        self.assertEqual(self.admit(user).in_member, UserInfo("jane", ("dev",)))
        self.policies.put("p", spec_of(names={"uid": True, "extra": ["scopes"]}))
        self.assertEqual(self.admit(user).in_member, UserInfo("jane", ("dev",), "7", extra[:1]))
        for wrong in ({"uid": "yes"}, {"extra": "scopes"}, {"extra": [1]}):
            with self.assertRaises(Invalid):
                read_spec(spec_of(names=wrong))

    def test_clusters(self) -> None:
        """Clusters are named or selected; new labels count at once."""
        selector = {"matchLabels": {"env": "test"}}
        self.policies.put("p", {**spec_of(), "clusters": {"names": ["alpha"], "selector": selector}})
        self.admit()
        self.refused(None, cluster_of("beta"))
        self.admit(None, cluster_of("beta", env="test"))
        self.refused(None, cluster_of("beta"))
        self.policies.put("p", spec_of("dev", "*"))
        self.admit(None, cluster_of("gamma"))

    def test_access(self) -> None:
        """A level permits only its requests; the text names policy and level."""
        self.policies.put("readers", spec_of(access="read-only"))
        self.admit()
        text = self.refused(None, None, Asked(FULL | EDIT | NO_EXEC))
        self.assertEqual(
            text,
            "jane must not do this in cluster alpha: access policy readers permits only read-only access",
        )
        self.policies.put("writers", spec_of(access="edit"))
        self.admit(None, None, Asked(FULL | EDIT))
        self.assertIn(
            "policies readers, writers permit only read-only and edit access",
            self.refused(None, None, Asked(FULL)),
        )

    def test_targets(self) -> None:
        """A policy is for the API server only, unless it names other targets."""
        self.policies.put("p", spec_of())
        text = self.refused(None, None, Asked(target="grafana"))
        self.assertIn("must not use grafana of cluster alpha: access policy p permits only", text)
        self.policies.put("p", spec_of(targets=["grafana"]))
        self.admit(None, None, Asked(target="grafana"))
        self.refused()
        self.policies.put("p", spec_of(targets=["*"]))
        self.admit()
        self.admit(None, None, Asked(target="kubelet"))

    def test_window(self) -> None:
        """Outside of its window a policy admits no user; the decision ends with the window."""
        self.policies.put("p", spec_of(timeWindow={"from": "07:00", "to": "09:00", "timeZone": "UTC"}))
        entered = self.admit()
        self.assertEqual(entered.term, (MONDAY - HOUR, MONDAY + HOUR))
        self.policies.clock.advance(HOUR)
        text = self.refused()
        self.assertIn(
            "not admitted to cluster alpha now: access policy p admits only daily 07:00-09:00 UTC", text
        )
        self.assertIn("the next time is 2026-11-24T07:00:00Z", text)
        self.policies.clock.advance(22 * HOUR)
        self.admit()
        self.policies.put("q", spec_of())
        self.assertEqual(self.admit().entry.policies, ("p", "q"))  # type: ignore[union-attr]

    def test_term(self) -> None:
        """The decision ends with the credential, too."""
        self.policies.put("p", spec_of())
        self.assertEqual(self.admit(user_of(expires=MONDAY + 5)).term[1], MONDAY + 5)

    def test_names(self) -> None:
        """A policy gives names; they are part of the admitted user, who keeps the names of the door."""
        names = {"user": "co:{user}", "groupMapping": {"dev": "developers"}}
        self.policies.put("p", spec_of(names=names))
        entered = self.admit()
        self.assertEqual(entered.in_member, UserInfo("co:jane", ("developers",)))
        self.assertEqual((entered.user, entered.groups, entered.session), ("jane", ("dev",), "test:jane"))
        self.assertEqual(entered.at_door, user_of())

    def test_additive(self) -> None:
        """Groups come from the policies that permit the request, and give the same user name."""
        self.policies.put("a", spec_of(names={"groups": ["viewers"]}))
        self.policies.put("b", spec_of(access="read-only", names={"groups": ["admins"]}))
        self.policies.put("c", spec_of(names={"user": "x-{user}", "groups": ["others"]}))
        self.assertEqual(self.member(), UserInfo("jane", ("viewers", "admins")))
        self.assertEqual(self.member(None, None, Asked(FULL | EDIT)), UserInfo("jane", ("viewers",)))
        self.policies.drop("a")
        self.assertEqual(self.member(None, None, Asked(FULL | EDIT)), UserInfo("x-jane", ("others",)))

    def test_reserved_names(self) -> None:
        """No policy gives a reserved name, unless the cluster allows it; own reserved groups are dropped."""
        self.policies.put("p", spec_of())
        self.assertEqual(self.member(user_of("jane", "dev", "system:masters")).groups, ("dev",))
        text = self.refused(user_of("system:admin", "dev"))
        self.assertIn("the user 'system:admin' is reserved there", text)
        self.assertIn("spec.as of access policy p", text)
        self.policies.put("p", spec_of(names={"groups": ["system:masters"]}))
        self.assertIn("the group 'system:masters' is reserved", self.refused())
        ssh = SSHSpec("core", "/keys/id", nodes=("h1:22",), allowed_identities=("system:masters",))
        self.assertEqual(self.member(None, evolve(cluster_of(), ssh=ssh)).groups, ("system:masters",))
        self.policies.put("p", spec_of(names={"user": "system:{user}"}))
        self.assertIn("the user 'system:jane' is reserved", self.refused())
        self.policies.put("p", spec_of(names={"user": "tower:x", "groups": []}))
        self.assertIn("not admitted", self.refused())  # such a record cannot be read

    def test_accounts(self) -> None:
        """A service account of the door is never one of the member's."""
        self.policies.put("p", spec_of("system:serviceaccounts"))
        account = user_of("system:serviceaccount:kube-system:admin", "system:serviceaccounts")
        known = self.member(account)
        self.assertEqual(known, UserInfo("door:serviceaccount:kube-system:admin", ("door:serviceaccounts",)))

    def test_too_many_groups(self) -> None:
        """A user with more groups than a request can have is refused, with the cure."""
        self.policies.put("p", spec_of())
        text = self.refused(user_of("jane", "dev", *map(str, range(256))))
        self.assertIn("would have 257 groups there, and 256 are the limit", text)
        self.assertIn("spec.as.groups", text)

    def test_long_names(self) -> None:
        """Names that would not fit the head of a request are refused."""
        self.policies.put("p", spec_of())
        text = self.refused(user_of("jane", "dev", *(f"{number:0250}" for number in range(200))))
        self.assertIn("B, and 32768 are the limit", text)

    def test_unsendable_names(self) -> None:
        """A name that would end a header field is refused."""
        self.policies.put("p", spec_of())
        for user in ("a\r\nImpersonate-Group: system:masters", "a\n", " a", "a\0"):
            self.assertIn("cannot be sent to a cluster", self.refused(user_of(user, "dev")))

    def test_kept_decisions(self) -> None:
        """A decision is kept until something changes: a policy, labels, the cluster."""
        self.policies.put("p", {**spec_of(), "clusters": {"selector": {"matchLabels": {"a": "1"}}}})
        cluster = cluster_of(a="1")
        first = self.admit(None, cluster)
        self.assertIs(self.admit(user_of(), cluster_of(a="1")), first)
        self.assertIsNot(self.admit(None, evolve(cluster, uid="u-2")), first)
        self.policies.put("q", spec_of("other"))
        self.assertIsNot(self.admit(None, cluster), first)
        self.refused(None, cluster_of(a="2"))
        self.policies.drop("p")
        self.refused(None, cluster)

    def test_withdrawn_system_identity(self) -> None:
        """A name that the cluster no longer allows is not given any more."""
        self.policies.put("p", spec_of(names={"groups": ["system:masters"]}))
        ssh = SSHSpec("core", "/keys/id", nodes=("h1:22",), allowed_identities=("system:masters",))
        allowing = evolve(cluster_of(), ssh=ssh)
        self.admit(None, allowing)
        self.refused(None, evolve(allowing, ssh=evolve(ssh, allowed_identities=())))

    def test_all_levels_at_once(self) -> None:
        """With full access only, one decision is for all requests; else for requests of the same levels."""
        self.policies.put("p", spec_of())
        entry = self.admit(None, None, Asked(FULL)).entry
        assert entry is not None
        self.assertEqual(entry.levels, 0)
        self.policies.put("q", spec_of(access="read-only"))
        entry = self.admit(None, None, Asked(FULL)).entry
        assert entry is not None
        self.assertEqual((entry.levels, entry.policies), (FULL, ("p",)))

    @settings(max_examples=200)
    @given(data=st.data())
    def test_against_a_model(self, data: st.DataObject) -> None:
        """Index and cache decide as a search through all policies does, also after changes."""
        policies = Policies(now=MONDAY)
        groups, clusters, users = ["g1", "g2", "g3"], ["alpha", "beta"], ["u1", "u2"]
        kept: dict[str, dict[str, Any]] = {}
        for _ in range(data.draw(st.integers(1, 6))):
            name = data.draw(st.sampled_from(["a", "b", "c"]))
            if name in kept and data.draw(st.booleans()):
                policies.drop(name)
                del kept[name]
            else:
                kept[name] = _drawn_spec(data, users, groups, clusters)
                policies.put(name, kept[name])
            user = user_of(
                data.draw(st.sampled_from(users)), *data.draw(st.sets(st.sampled_from(groups), min_size=1))
            )
            cluster = cluster_of(
                data.draw(st.sampled_from(clusters)), env=data.draw(st.sampled_from(["test", "live"]))
            )
            levels = FULL | data.draw(st.integers(0, ALL_LEVELS))
            asked = Asked(levels, data.draw(st.sampled_from(["kubernetes", "grafana"])))
            expected = _model(kept, user, cluster, asked)
            try:
                found = policies.entry.admit(user, cluster, cluster.name, asked)
            except Forbidden:
                self.assertIsNone(expected)
            else:
                self.assertEqual((found.in_member.name, set(found.in_member.groups)), expected)


def _drawn_spec(
    data: st.DataObject, users: list[str], groups: list[str], clusters: list[str]
) -> dict[str, Any]:
    kinds = [{"kind": "User", "name": name} for name in users]
    kinds += [{"kind": "Group", "name": name} for name in (*groups, "system:authenticated")]
    where: dict[str, Any] = {"names": data.draw(st.lists(st.sampled_from([*clusters, "*"]), max_size=1))}
    if not where["names"]:
        where["selector"] = {"matchLabels": {"env": "test"}}
    names = data.draw(
        st.sampled_from([{}, {"groups": ["fixed"]}, {"user": "x", "groupMapping": {"g1": "m1"}}])
    )
    return {
        "subjects": data.draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=2)),
        "clusters": where,
        "access": data.draw(st.sampled_from(list(LEVELS))),
        "targets": data.draw(st.sampled_from([["kubernetes"], ["*"]])),
        "as": names,
    }


def _model(
    kept: dict[str, dict[str, Any]], user: Identity, cluster: Cluster, asked: Asked
) -> tuple[str, set[str]] | None:
    """Return name and groups in the member, or None."""
    found: list[tuple[str, set[str]]] = []
    for name in sorted(kept):
        spec = kept[name]
        mine = {("User", user.user), *(("Group", each) for each in (*user.groups, "system:authenticated"))}
        where = spec["clusters"]
        if not mine & {(each["kind"], each["name"]) for each in spec["subjects"]}:
            continue
        if not (
            {cluster.name, "*"} & set(where["names"])
            or ("selector" in where and cluster.labels["env"] == "test")
        ):
            continue
        if not ({asked.target, "*"} & set(spec["targets"]) and LEVELS[spec["access"]] & asked.levels):
            continue
        if not spec["as"]:
            found.append((user.user, set(user.groups)))
        elif "user" in spec["as"]:
            found.append(("x", {"m1"} & {"m1" for each in user.groups if each == "g1"}))
        else:
            found.append((user.user, {"fixed"}))
    if not found:
        return None
    return found[0][0], set().union(*(groups for name, groups in found if name == found[0][0]))


class SubjectsTests(SynchronousTestCase):
    """Keys of a user."""

    def test_keys(self) -> None:
        """Each group appears once, also that of all users."""
        user = user_of("jane", "dev", "system:authenticated")
        self.assertEqual(
            subjects_of(user), [("User", "jane"), ("Group", "dev"), ("Group", "system:authenticated")]
        )
