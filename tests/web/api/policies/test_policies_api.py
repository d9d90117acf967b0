"""Tests of the resource `accesspolicies`, with its writer and its preview."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.anything import ANYTHING
from tests.fakes.api import BASE, TABLE, ApiTestCase, Stream, decoded
from tower.kube.status import StatusError
from tower.web.outcome import Response, StreamingResponse

PATH = f"{BASE}/accesspolicies"
SPEC = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": {"names": ["alpha"]}}


def policy(
    name: str = "dev",
    metadata: dict[str, Any] | None = None,
    names: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Return the object of a policy; *names* is ``as``."""
    return {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "AccessPolicy",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {**SPEC, **({"as": names} if names else {}), **more},
    }


class AccessPoliciesApiTests(ApiTestCase):
    """Policies as kubectl reads and writes them."""

    def create(self, *arguments: Any, **more: Any) -> dict[str, Any]:
        """Add a policy."""
        return decoded(self.ask("POST", PATH, policy(*arguments, **more)))

    def warnings(self, *request: Any, **query: str) -> list[str]:
        """Return the warnings of the answer to a request."""
        outcome = self.ask(*request, **query)
        assert isinstance(outcome, Response)
        return [value.decode() for name, value in outcome.headers if name == b"Warning"]

    def test_life(self) -> None:
        """A policy is created, read, replaced, patched and removed."""
        made = self.create(metadata={"labels": {"team": "sea"}})
        self.assertEqual(made["spec"], SPEC)
        self.assertEqual(made["metadata"]["labels"], {"team": "sea"})
        self.assertEqual(self.get(f"{PATH}/dev"), made)
        made["spec"]["access"] = "edit"
        replaced = decoded(self.ask("PUT", f"{PATH}/dev", made))
        self.assertEqual((replaced["spec"]["access"], replaced["metadata"]["generation"]), ("edit", 2))
        self.refused(409, "PUT", f"{PATH}/dev", made)
        merge = {"spec": {"access": None, "ttl": "1h"}, "metadata": {"labels": None}}
        patched = decoded(self.ask("PATCH", f"{PATH}/dev", merge, content="application/merge-patch+json"))
        self.assertEqual(patched["spec"], {**SPEC, "ttl": "1h"})
        self.assertNotIn("labels", patched["metadata"])
        operations = [{"op": "replace", "path": "/spec/ttl", "value": "2h"}]
        patched = decoded(self.ask("PATCH", f"{PATH}/dev", operations, content="application/json-patch+json"))
        self.assertEqual(patched["spec"]["ttl"], "2h")
        (item,) = self.get(PATH)["items"]
        self.assertEqual(item, patched)
        removed = decoded(self.ask("DELETE", f"{PATH}/dev"))
        self.assertEqual(removed["details"]["uid"], made["metadata"]["uid"])
        self.refused(404, "GET", f"{PATH}/dev")
        self.refused(404, "DELETE", f"{PATH}/dev")

    def test_apply(self) -> None:
        """Server-side apply creates and changes; fields of other managers conflict."""
        apply = {"content": "application/apply-patch+yaml"}
        made = decoded(self.ask("PATCH", f"{PATH}/dev", policy(access="edit"), fieldManager="a", **apply))
        self.assertEqual(made["metadata"]["managedFields"][0]["manager"], "a")
        again = decoded(self.ask("PATCH", f"{PATH}/dev", policy(access="edit"), fieldManager="a", **apply))
        self.assertEqual(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"])
        less = decoded(self.ask("PATCH", f"{PATH}/dev", policy(), fieldManager="a", **apply))
        self.assertNotIn("access", less["spec"])
        self.ask("PATCH", f"{PATH}/dev", policy(access="edit"), fieldManager="a", **apply)
        refusal = self.refused(409, "PATCH", f"{PATH}/dev", policy(access="full"), fieldManager="b", **apply)
        self.assertIn("spec.access", str(refusal))
        forced = decoded(
            self.ask("PATCH", f"{PATH}/dev", policy(access="full"), fieldManager="b", force="true", **apply)
        )
        self.assertEqual(forced["spec"]["access"], "full")

    def test_invalid(self) -> None:
        """A policy is rejected with field, value and cure, and stores nothing."""
        refusal = self.refused(422, "POST", PATH, policy(acces="read-only"), fieldValidation="Ignore")
        self.assertIn("spec.acces: unknown; the fields are", str(refusal))
        self.refused(422, "POST", PATH, {**policy(), "rules": []})
        self.refused(422, "POST", PATH, policy("Dev"))
        self.refused(422, "POST", PATH, policy(metadata={"finalizers": ["a/b"]}))
        self.refused(422, "POST", PATH, policy(metadata={"labels": {"a": 1}}))
        self.refused(400, "POST", PATH, {**policy(), "kind": "Cluster"})
        self.refused(422, "POST", PATH, {"metadata": {}, "spec": SPEC})
        self.assertEqual(self.get(PATH)["items"], [])
        self.create()
        self.refused(409, "POST", PATH, policy())
        self.refused(422, "PUT", f"{PATH}/dev", policy())
        self.refused(400, "PUT", f"{PATH}/other", policy())
        self.refused(405, "PUT", PATH, policy())
        self.refused(404, "GET", f"{PATH}/dev/status")
        self.refused(409, "DELETE", f"{PATH}/dev", {"preconditions": {"uid": "other"}})

    def test_watch_and_selectors(self) -> None:
        """A watch reports changes; labels select."""
        outcome = self.ask("GET", PATH, watch="1", labelSelector="team=sea")
        assert isinstance(outcome, StreamingResponse)
        stream = Stream()
        outcome.start(stream)
        self.create("a", {"labels": {"team": "sea"}})
        self.create("b")
        self.ask("DELETE", f"{PATH}/a")
        self.assertEqual(stream.taken(), [("ADDED", "a"), ("DELETED", "a")])
        self.assertEqual([each["metadata"]["name"] for each in self.get(PATH)["items"]], ["b"])

    def test_table(self) -> None:
        """The table shows subjects, clusters and times."""
        window = {"days": ["Mon"], "from": "08:00", "timeZone": "UTC"}
        subjects = [
            {"kind": "User", "name": "jane"},
            {"kind": "ServiceAccount", "namespace": "build", "name": "ci"},
            {"kind": "Claim", "name": "team", "value": "sea"},
            {"kind": "Group", "name": "dev"},
        ]
        selector = {"matchLabels": {"env": "test"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
        where = {"names": ["alpha"], "selector": selector}
        self.create(subjects=subjects, clusters=where, timeWindow=window, access="edit")
        (row,) = self.get(PATH, accept=TABLE)["rows"]
        self.assertEqual(
            row["cells"][1:5],
            [
                "User:jane,ServiceAccount:build/ci,Claim:team=sea,1 more",
                "alpha,env=test,a Exists",
                "edit",
                "Mon 08:00-24:00 UTC",
            ],
        )

    def test_dry_run(self) -> None:
        """A dry run stores nothing, and its warnings are the effects on each subject alone."""
        self.add("alpha", labels={"env": "test"})
        self.add("beta", labels={"env": "test"})
        (text,) = self.warnings("POST", PATH, policy(access="read-only"), dryRun="All")
        self.assertIn("would change: group dev in cluster alpha: no entry -> read-only access", text)
        self.assertEqual(self.get(PATH)["items"], [])
        self.create(access="read-only")
        self.assertEqual(self.warnings("POST", PATH, policy("other")), [])
        both = {"selector": {"matchLabels": {"env": "test"}}}
        outcome = self.ask(
            "PATCH",
            f"{PATH}/dev",
            {"spec": {"clusters": {"names": ["alpha"], **both}}},
            content="application/merge-patch+json",
            dryRun="All",
        )
        assert isinstance(outcome, Response)
        (text,) = [value.decode() for name, value in outcome.headers if name == b"Warning"]
        self.assertIn("group dev in cluster beta: no entry -> read-only access", text)
        (text,) = self.warnings("DELETE", f"{PATH}/dev", dryRun="All")
        self.assertIn("in cluster alpha: full access and read-only access -> full access", text)
        self.assertEqual(len(self.get(PATH)["items"]), 2)
        (text,) = self.warnings("POST", PATH, policy("third", clusters={"names": ["gamma"]}), dryRun="All")
        self.assertIn("would change nothing: no cluster has such a name or labels", text)
        (text,) = self.warnings("POST", PATH, policy("third"), dryRun="All")
        self.assertIn("would change nothing: no user's entry differs", text)

    def test_dry_run_of_all_fields(self) -> None:
        """The warnings also show times and facts about the user."""
        self.add("alpha")
        self.create()
        names = {"uid": True, "extra": ["a"], "serviceAccountPrefix": "x:"}
        for spec, expected in (
            ({"ttl": "90m"}, "full access -> full access for 1h30m at a time"),
            ({"as": {"uid": True}}, "-> full access as {user} (groups *; with the UID)"),
            ({"as": names}, "(groups *; with the UID; extra a; service accounts x:...)"),
        ):
            (text,) = self.warnings(
                "PATCH", f"{PATH}/dev", {"spec": spec}, content="application/merge-patch+json", dryRun="All"
            )
            self.assertIn(expected, text)

    def test_dry_run_and_groups_of_all_users(self) -> None:
        """Policies for groups that contain the subject count, such as that of all users."""
        self.add("alpha")
        self.create("all", subjects=[{"kind": "Group", "name": "system:authenticated"}])
        account = {"kind": "ServiceAccount", "namespace": "build", "name": "ci"}
        claim = {"kind": "Claim", "name": "team", "value": "sea"}
        user = {"kind": "User", "name": "jane"}
        subjects = [*SPEC["subjects"], account, claim, user]
        same = "would change nothing: no user's entry differs"
        (text,) = self.warnings("POST", PATH, policy(subjects=subjects), dryRun="All")
        self.assertIn(same, text)
        self.create(subjects=subjects)
        (text,) = self.warnings("DELETE", f"{PATH}/dev", dryRun="All")
        self.assertIn(same, text)
        self.ask("DELETE", f"{PATH}/all")
        accounts = {"kind": "Group", "name": "system:serviceaccounts"}
        self.create("accounts", subjects=[accounts])
        for each in (account, {"kind": "Group", "name": "system:serviceaccounts:build"}):
            (text,) = self.warnings("POST", PATH, policy("new", subjects=[each]), dryRun="All")
            self.assertIn(same, text)
        everyone = {"kind": "Group", "name": "system:authenticated"}
        patch = {"spec": {"subjects": [everyone]}}
        merge = "application/merge-patch+json"
        (text,) = self.warnings("PATCH", f"{PATH}/dev", patch, content=merge, dryRun="All")
        self.assertIn("group system:authenticated in cluster alpha: no entry -> full access", text)
        anonymous = {"kind": "Group", "name": "system:unauthenticated"}
        self.create("all", subjects=[everyone])
        new = policy("new", subjects=[anonymous], names={"user": "guest", "groups": []})
        (text,) = self.warnings("POST", PATH, new, dryRun="All")
        self.assertIn("no entry -> full access as guest (groups none)", text)

    def test_dry_run_and_reserved_names(self) -> None:
        """The effects include rejections of reserved names, also for requests that other policies permit."""
        self.add("alpha")
        anonymous = [{"kind": "Group", "name": "system:unauthenticated"}]
        for more, text in (
            ({"names": {"user": "system:admin"}}, "(rejected: the user 'system:admin' is reserved there)"),
            (
                {"names": {"groupMapping": {"dev": "kubeadm:cluster-admins"}}},
                "(rejected: the group 'kubeadm:cluster-admins' is reserved there)",
            ),
            ({"subjects": anonymous}, "(rejected: the user 'system:anonymous' is reserved there)"),
        ):
            found = self.warnings("POST", PATH, policy(**more), dryRun="All")
            (line,) = [each for each in found if "would change" in each]
            self.assertIn("no entry -> full access", line)
            self.assertIn(text, line)
        masters = policy("x", names={"groups": ["system:masters"]}, access="edit")
        self.create(access="read-only")
        found = self.warnings("POST", PATH, masters, dryRun="All")
        (line,) = [each for each in found if "would change" in each]
        reserved = "(rejected: the group 'system:masters' is reserved there)"
        edit = f"edit access as {{user}} (groups system:masters) {reserved}"
        self.assertIn(f"read-only access -> {edit} and read-only access {reserved}", line)
        self.ask("DELETE", f"{PATH}/dev")
        self.create(access="full")
        found = self.warnings("POST", PATH, masters, dryRun="All")
        (line,) = [each for each in found if "would change" in each]
        self.assertIn(f": full access -> {edit} and full access", line)
        self.assertNotIn(f"full access {reserved}", line)

    def test_reserved_group(self) -> None:
        """A group that most clusters reserve has a warning, also without a dry run."""
        (text,) = self.warnings("POST", PATH, policy(names={"groups": ["system:masters"]}))
        self.assertIn("'system:masters' is reserved", text)

    def test_review(self) -> None:
        """A review explains an entry, and its lack."""
        self.add("alpha")
        self.create(access="read-only", names={"user": "co:{user}"})

        def review(**spec: Any) -> dict[str, Any]:
            body = {"spec": {"user": "jane", "groups": ["dev"], "cluster": "alpha", **spec}}
            answer = self.ask("POST", f"{BASE}/accessreviews", body)
            status: dict[str, Any] = decoded(answer)["status"]
            return status

        status = review()
        self.assertEqual((status["allowed"], status["user"], status["groups"]), (True, "co:jane", ["dev"]))
        self.assertEqual(status["concerned"][0]["access"], "read-only")
        for spec, allowed in (
            ({"verb": "list", "resource": "pods"}, True),
            ({"verb": "get", "resource": "pods/log", "namespace": "d", "name": "x"}, True),
            ({"verb": "create", "resource": "pods", "namespace": "d"}, False),
            ({"verb": "get", "resource": "pods/exec", "namespace": "d"}, False),
            ({"verb": "impersonate", "resource": "users"}, False),
            ({"verb": "get", "path": "/metrics"}, True),
            ({"verb": "post", "path": "/logs"}, False),
            ({"target": "grafana"}, False),
            ({"groups": []}, False),
        ):
            self.assertEqual(review(**spec)["allowed"], allowed, spec)
        self.assertIn("is not admitted to cluster alpha", review(groups=[])["reason"])
        path = f"{BASE}/accessreviews"
        self.refused(422, "POST", path, {"spec": {"user": "jane"}})
        self.refused(422, "POST", path, {"spec": {"user": "jane", "cluster": "alpha", "resource": "pods"}})
        self.refused(422, "POST", path, {"spec": {"user": "jane", "cluster": "alpha", "claims": ["x"]}})
        self.refused(404, "POST", path, {"spec": {"user": "jane", "cluster": "nope"}})
        self.refused(405, "GET", path)

    @settings(max_examples=50)
    @given(fields=st.dictionaries(st.sampled_from([*SPEC, "as", "targets", "timeWindow", "x"]), ANYTHING))
    def test_anything(self, fields: dict[Any, Any]) -> None:
        """Any other object is rejected with a status below 500, whichever verb brings it."""
        self.setUp()
        self.create()
        wrong = {**policy(), "spec": {**SPEC, **fields}}
        apply = {"content": "application/apply-patch+yaml", "fieldManager": "a", "force": "true"}
        for method, path, body, more in (
            ("POST", PATH, {**wrong, "metadata": {"name": "b"}}, {}),
            ("PATCH", f"{PATH}/dev", {"spec": fields}, {"content": "application/merge-patch+json"}),
            ("PATCH", f"{PATH}/dev", wrong, apply),
            ("PATCH", f"{PATH}/c", {**wrong, "metadata": {"name": "c"}}, apply),
            ("POST", f"{BASE}/accessreviews", {"spec": {"cluster": "alpha", "user": "x", **fields}}, {}),
        ):
            try:
                self.ask(method, path, body, **more)
            except StatusError as e:
                self.assertLess(e.code, 500, str(e))

    def test_large_objects(self) -> None:
        """The whole policy comes back as it was given, also a large one."""
        subjects = [{"kind": "User", "name": f"user-{number}@example.org"} for number in range(1000)]
        made = self.create(subjects=subjects)
        self.assertEqual(json.dumps(made["spec"]["subjects"]), json.dumps(subjects))
