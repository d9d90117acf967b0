"""Tower's ABAC and RBAC, and a real API server with the same rules, decide alike with the same texts."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import authorizer_cases as cases
from tests.integration.authorizing_server import authorizing_server
from tests.integration.person import Answer, Person
from tests.integration.programs import wait_for
from tests.integration.review_webhook import reviewed
from tower.kube.access.rbac import Binding, RbacRole
from tower.kube.access.reviews import CLUSTER_KEY
from tower.kube.request_info import RequestInfo
from tower.kube.status import status_object
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.abac_file import AbacFile
from tower.web.access.authorization.attributes import Attributes, attributes_of
from tower.web.access.authorization.decision import Authorizer, Decision, Ruling
from tower.web.access.authorization.rbac_index import RbacIndex
from tower.web.access.authorization.union import AuthorizerUnion, PrivilegedGroups
from tower.web.access.authorization.webhook import CacheTimes, WebhookAuthorizer

REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
RANDOM_OBJECTS, RANDOM_CASES = 40, 200

#: Requests whose rejections are compared: method and target.
REQUESTS = (
    ("GET", "/"),
    ("GET", "/metrics"),
    ("POST", "/metrics/a%20b%3Cc%3E&d"),
    ("DELETE", "/logs/a"),
    ("GET", "/api/v1/pods"),
    ("GET", "/api/v1/pods?watch"),
    ("GET", "/api/v1/pods?w%61tch=%31"),
    ("GET", "/api/v1/pods?watch=False"),
    ("GET", "/api/v1/pods?watch=1;x"),
    ("GET", "/api/v1/pods?fieldSelector=metadata.name%3Dp"),
    ("GET", "/api/v1/pods?fieldSelector=metadata.name=a%5C%2Cb&watch=1"),
    ("GET", "/api/v1/pods?fieldSelector=&fieldSelector=metadata.name%3Dp"),
    ("GET", "/api/v1/pods?watch=1" + "&a" * 10_000),
    ("GET", "/api/v1/namespaces"),
    ("GET", "/api/v1/namespaces/a"),
    ("PUT", "/api/v1/namespaces/a/finalize"),
    ("PUT", "/api/v1/namespaces/a/status"),
    ("GET", "/api/v1/namespaces/a/pods"),
    ("HEAD", "/api/v1/namespaces/a/pods"),
    ("GET", "/api/v1/namespaces/a/pods/p"),
    ("DELETE", "/api/v1/namespaces/a/pods/p"),
    ("DELETE", "/api/v1/namespaces/a/pods"),
    ("PATCH", "/api/v1/namespaces/a/pods/p/status"),
    ("POST", "/api/v1/namespaces/a/pods/p/exec?command=sh"),
    ("GET", "/api/v1/namespaces/a/pods/p/proxy/a/b"),
    ("GET", "/api/v1/watch/namespaces/a/pods/p"),
    ("GET", "/api/v1/proxy/namespaces/a/pods/p/a/b"),
    ("GET", "/api/v1/nodes/n"),
    ("POST", "/apis/apps/v1/namespaces/a/deployments"),
    ("PUT", "/apis/apps/v1/namespaces/a/deployments/d/scale"),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/r"),
    ("OPTIONS", "/api/v1/namespaces/a/pods"),
    ("GET", "/api/v1/namespaces/a/p%6fds/%22%C3%BC%22"),
    ("GET", "/api/v1/namespaces/%3Cb%3E/pods"),
    ("GET", "/api/v1//pods"),
    ("GET", "/apis/apps/v1/namespaces"),
    ("GET", "/apis/g.example/v1/things/t/parts/1/2"),
)


def said(value: dict[str, Any]) -> dict[str, Any]:
    """Return what a Status has for its reader."""
    return {key: value.get(key) or None for key in ("status", "message", "reason", "details", "code")}


class TrueAnswers:
    """The answers of the webhook, without a connection."""

    async def post(self, body: Any) -> Any:
        """See `Webhook`."""
        return reviewed(body)


class Recorder(TrueAnswers):
    """The same, which adds the reviews to a list."""

    def __init__(self, asked: list[Any]) -> None:
        self._asked = asked

    async def post(self, body: Any) -> Any:
        """See `Webhook`."""
        self._asked.append(json.loads(json.dumps(body)))
        return await super().post(body)


def comparable(review: dict[str, Any]) -> dict[str, Any]:
    """Return a review without what a client adds to all objects."""
    return {key: value for key, value in review.items() if key not in ("metadata", "status")}


class AuthorizerTests(SynchronousTestCase):
    """Reviews, and requests of impersonated users."""

    timeout = 300
    maxDiff = None

    def setUp(self) -> None:
        """Create the objects at the first test, and give Tower the same rules."""
        self.folder, running, self.webhook = authorizing_server()
        self.person = Person(running.member.admin)
        self.connection = self.person.connect()
        self.addCleanup(self.connection.close)
        if self.ask("GET", "/api/v1/namespaces/a").status == 404:
            for name in cases.NAMESPACES:
                self.create("/api/v1/namespaces", {"metadata": {"name": name}})
            for each in (*cases.OBJECTS, *cases.random_objects(1, RANDOM_OBJECTS)):
                self.create(self.path_of(each), each)
            self.wait_for_objects()
        self.union = self.of_tower()

    def wait_for_objects(self) -> None:
        """Wait until the API server's authorizer has seen the last object, and all default roles exist."""
        last = cases.Case("random-last", "get", path="/last")
        for each in (
            cases.role("last", {"verbs": ["get"], "nonResourceURLs": ["/last"]}),
            cases.binding("last", "last", cases.user("random-last")),
        ):
            self.create(self.path_of(each), each)
        wait_for("the last binding", lambda: self.review(last)["allowed"])
        hook = "/readyz/poststarthook/rbac/bootstrap-roles"
        wait_for("the default roles", lambda: self.ask("GET", hook).status == 200)

    def path_of(self, value: dict[str, Any]) -> str:
        """Return the path of an object's collection."""
        namespace = value["metadata"].get("namespace")
        plural = f"{value['kind'].lower()}s"
        return f"{cases.ROLES}/namespaces/{namespace}/{plural}" if namespace else f"{cases.ROLES}/{plural}"

    def ask(self, method: str, path: str, value: Any = None, headers: dict[str, str] | None = None) -> Answer:
        """Send one request to the API server."""
        body = None if value is None else json.dumps(value).encode()
        headers = {"Content-Type": "application/json", **(headers or {})}
        response = self.person.ask(self.connection, path, method, body, headers)
        return Answer(response.status, dict(response.getheaders()), response.read())

    def create(self, path: str, value: dict[str, Any]) -> None:
        """Create an object."""
        answer = self.ask("POST", path, value)
        self.assertEqual(answer.status, 201, answer.body)

    def of_tower(self) -> AuthorizerUnion:
        """Return Tower's authorizers with the rules of the API server."""
        found = {
            plural: json.loads(self.ask("GET", f"{cases.ROLES}/{plural}").body)["items"]
            for plural in ("clusterroles", "roles", "clusterrolebindings", "rolebindings")
        }
        roles = [RbacRole.of(each) for each in (*found["clusterroles"], *found["roles"])]
        bindings = [Binding.of(each) for each in (*found["clusterrolebindings"], *found["rolebindings"])]
        self.without_webhook: tuple[Authorizer, ...] = (
            PrivilegedGroups(("system:masters",)),
            AbacFile(self.folder / "policies"),
            RbacIndex(roles, bindings, aggregates=False),
        )
        webhook = WebhookAuthorizer(TrueAnswers(), "v1", CacheTimes(), lambda: 0.0)
        return AuthorizerUnion(*self.without_webhook, webhook)

    def decision(self, attributes: Attributes) -> Decision:
        """Return Tower's decision."""
        found = self.union.authorize(attributes)
        return self.successResultOf(found) if isinstance(found, Deferred) else found

    def review(self, case: cases.Case) -> dict[str, Any]:
        """Return the status of the API server's review of a case."""
        answer = self.ask("POST", REVIEWS, {"spec": case.spec()})
        self.assertEqual(answer.status, 201, answer.body)
        status: dict[str, Any] = json.loads(answer.body)["status"]
        return status

    def decide(self, case: cases.Case) -> dict[str, Any]:
        """Return the same of Tower's decision."""
        info = RequestInfo(
            case.verb,
            case.path,
            case.group,
            "v1",
            case.namespace,
            case.resource,
            case.subresource,
            case.name,
            is_resource=not case.path,
        )
        decision = self.decision(Attributes(UserInfo(case.user, case.groups), info, "alpha"))
        status: dict[str, Any] = {"allowed": decision.is_allowed}
        if decision.ruling is Ruling.DENY:
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        if decision.error:
            status["evaluationError"] = decision.error
        return status

    def compare(self, case: cases.Case) -> bool:
        """Compare the decisions on a case; return whether it is allowed."""
        real = self.review(case)
        self.assertEqual(self.decide(case), real, case)
        return bool(real["allowed"])

    def test_table(self) -> None:
        """All cases of the table: many are allowed, and many are not."""
        allowed = [self.compare(case) for case in cases.CASES]
        self.assertGreater(allowed.count(True), 30)
        self.assertGreater(allowed.count(False), 30)

    def test_random(self) -> None:
        """Random requests under random rules are allowed or rejected alike."""
        found = cases.random_cases(2, RANDOM_CASES, RANDOM_OBJECTS)
        allowed = []
        for case in found:
            real, own = self.review(case), self.decide(case)
            allowed.append(real["allowed"])
            if real["allowed"]:
                real.pop("reason")  # any of several bindings, in the order of a Go map
                own.pop("reason")
            self.assertEqual(own, real, case)
        self.assertGreater(allowed.count(True), RANDOM_CASES // 10)

    def test_texts(self) -> None:
        """The rejections of a user without rights are equal."""
        headers = {"Impersonate-User": 'jane "<j>"'}
        user = UserInfo('jane "<j>"', ("system:authenticated",))
        rejected = 0
        for method, target in REQUESTS:
            answer = self.ask(method, target, headers=headers)
            attributes = attributes_of(user, method.encode(), target.encode(), "alpha")
            decision = self.decision(attributes)
            self.assertEqual(decision.is_allowed, answer.status != 403, (method, target, answer.body))
            if decision.is_allowed or method == "HEAD":
                continue
            rejected += 1
            own = status_object(attributes.refusal(decision.reason))
            self.assertEqual(said(own), said(json.loads(answer.body)), (method, target))
        self.assertGreater(rejected, len(REQUESTS) // 2)

    def test_reviews(self) -> None:
        """Both ask a webhook the same, but for the cluster, which only Tower has."""
        headers = {
            "Impersonate-User": "hook-silent",
            "Impersonate-Group": "dev",
            "Impersonate-Uid": "u-1",
            "Impersonate-Extra-Scopes": "a",
        }
        user = UserInfo(
            "hook-silent", ("dev", "system:authenticated"), "u-1", (("scopes", ("a",)), (CLUSTER_KEY, ("x",)))
        )
        asked = 0
        for method, target in REQUESTS:
            if "Selector" in target:
                continue
            self.webhook.reviews.clear()
            self.ask(method, target, headers=headers)
            own: list[Any] = []
            hook = WebhookAuthorizer(Recorder(own), "v1", CacheTimes(), lambda: 0.0)
            self.union = AuthorizerUnion(*self.without_webhook, hook)
            self.decision(attributes_of(user, method.encode(), target.encode(), "alpha"))
            self.assertEqual([each["spec"]["extra"].pop(CLUSTER_KEY) for each in own], [["alpha"]] * len(own))
            real = [comparable(each) for _, each in self.webhook.reviews]
            self.assertEqual([comparable(each) for each in own], real, (method, target))
            asked += len(own)
        self.assertEqual(self.webhook.reviews[0][0], "/authorize?timeout=30s")
        self.assertGreater(asked, len(REQUESTS) // 2)
