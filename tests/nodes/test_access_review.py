"""Tests of `tower.nodes.access_review`."""

from __future__ import annotations

from typing import Any, cast

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.api_client import FakeAPI
from tower.errors import ClusterUnreachable
from tower.kube.client import APIClient, APIError
from tower.kube.status import StatusError
from tower.nodes.access_review import HOLDS, KEPT, REVIEWS, AccessReview, NodeReview, subresource_of

JANE = AccessReview("jane", ("dev", "ops"), "n1", "get", "stats")


class SubresourceTests(SynchronousTestCase):
    """Kubelets' subresources."""

    def test_known(self) -> None:
        """The parts that have a name of their own have it with everything below them."""
        for path, part in (
            (b"/stats", "stats"),
            (b"/stats/summary", "stats"),
            (b"/metrics", "metrics"),
            (b"/metrics/cadvisor", "metrics"),
            (b"/logs/", "log"),
            (b"/logs/syslog", "log"),
            (b"/spec/", "spec"),
            (b"/checkpoint/a/b/c", "checkpoint"),
        ):
            self.assertEqual(subresource_of(path), part, path)

    def test_others(self) -> None:
        """All other paths need the right to the whole kubelet."""
        for path in (b"", b"/", b"/pods", b"/exec/a/b/c", b"/statsx", b"/containerLogs/a/b/c", b"/run/stats"):
            self.assertEqual(subresource_of(path), "proxy", path)


class NodeReviewTests(SynchronousTestCase):
    """Questions and cached answers."""

    def setUp(self) -> None:
        """A member that allows everything."""
        self.clock, self.api = Clock(), FakeAPI()
        self.review = NodeReview(self.clock, cast(APIClient, self.api), "beta")

    def ask(self, question: AccessReview = JANE) -> None:
        """Ask, and be let."""
        asking = self.review(question)
        if asking is not None:
            self.successResultOf(asking)

    def refused(self, question: AccessReview = JANE) -> StatusError:
        """Ask, and be refused."""
        try:
            asking = self.review(question)
        except StatusError as e:
            return e
        assert asking is not None
        error = self.failureResultOf(asking, StatusError).value
        assert isinstance(error, StatusError)
        return error

    def test_question(self) -> None:
        """The member is asked as the user, with the user's groups and the kubelet's own attributes."""
        self.ask()
        ((path, user, groups, body),) = self.api.asked
        self.assertEqual((path, user, groups), (REVIEWS, "jane", ("dev", "ops")))
        self.assertEqual(
            body,
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {
                    "resourceAttributes": {
                        "verb": "get",
                        "version": "v1",
                        "resource": "nodes",
                        "subresource": "stats",
                        "name": "n1",
                    }
                },
            },
        )

    def test_denied(self) -> None:
        """A denied user gets the error of API servers, with the member's reason."""
        self.api.answer = {"status": {"allowed": False, "reason": "no RBAC policy matched"}}
        error = self.refused()
        self.assertEqual(error.code, 403)
        self.assertEqual(
            str(error),
            'nodes "n1" is forbidden: User "jane" cannot get resource "nodes/stats" in API group "" '
            'at the cluster scope: the API server reports: "no RBAC policy matched"',
        )
        self.assertEqual(error.details, {"name": "n1", "kind": "nodes"})

    def test_denied_without_reason(self) -> None:
        """Without one nothing hangs on."""
        self.api.answer = {"status": {"allowed": False}}
        self.assertTrue(str(self.refused()).endswith("at the cluster scope"))

    def test_only_yes_is_yes(self) -> None:
        """Every answer that does not clearly allow access denies it."""
        strange: list[Any] = [None, [], {}, {"status": None}, {"status": {"allowed": "true"}}]
        for answer in (*strange, {"status": {"allowed": 1}}, {"status": {"allowed": True, "denied": True}}):
            self.api.answer = answer
            self.review = NodeReview(self.clock, cast(APIClient, self.api), "beta")
            self.assertEqual(self.refused().code, 403, repr(answer))

    def test_remembered(self) -> None:
        """An answer is valid for a while, from the time of the question."""
        self.ask()
        self.clock.advance(HOLDS - 0.1)
        self.assertIsNone(self.review(JANE))
        self.api.answer = {"status": {"allowed": False}}
        self.clock.advance(0.1)
        self.refused()
        self.assertEqual(len(self.api.asked), 2)

    def test_no_is_remembered(self) -> None:
        """A denial is cached as long, so that repeated requests do not load the API server."""
        self.api.answer = {"status": {"allowed": False}}
        self.refused()
        self.refused()
        self.assertEqual(len(self.api.asked), 1)
        self.api.answer = {"status": {"allowed": True}}
        self.clock.advance(HOLDS)
        self.ask()

    def test_slow_answer_is_old(self) -> None:
        """An answer that took long holds no longer for it."""
        waiting: Deferred[Any] = Deferred()

        async def post(*_: Any, **__: Any) -> Any:
            return await waiting

        self.api.post = post  # type: ignore[method-assign]
        asking = self.review(JANE)
        assert asking is not None
        self.clock.advance(HOLDS)
        waiting.callback({"status": {"allowed": True}})
        self.successResultOf(asking)
        again = self.review(JANE)
        assert again is not None
        again.addErrback(lambda _: None)

    def test_each_for_itself(self) -> None:
        """An answer applies to no other user, node, verb or subresource."""
        self.ask()
        for other in (
            AccessReview("june", ("dev", "ops"), "n1", "get", "stats"),
            AccessReview("jane", ("dev",), "n1", "get", "stats"),
            AccessReview("jane", ("dev", "ops"), "n2", "get", "stats"),
            AccessReview("jane", ("dev", "ops"), "n1", "create", "stats"),
            AccessReview("jane", ("dev", "ops"), "n1", "get", "proxy"),
        ):
            self.assertIsNotNone(self.review(other), other)

    def test_bounded(self) -> None:
        """No more than so many answers are kept; the oldest go."""
        for number in range(KEPT + 1):
            self.ask(AccessReview("jane", (), f"n{number}", "get", "stats"))
        self.assertEqual(len(self.review.answers), KEPT)
        self.assertIsNone(self.review(AccessReview("jane", (), "n1", "get", "stats")))
        self.assertIsNotNone(self.review(AccessReview("jane", (), "n0", "get", "stats")))

    def test_not_reached(self) -> None:
        """Without an answer the request is rejected; the next request asks again."""
        self.api.answer = APIError("POST", REVIEWS, 0, "no node")
        asking = self.review(JANE)
        assert asking is not None
        error = self.failureResultOf(asking, ClusterUnreachable).value
        self.assertIn("cluster beta did not answer whether jane may use kubelets: ", str(error))
        self.api.answer = {"status": {"allowed": True}}
        self.ask()

    def test_credential_may_not_act_as_him(self) -> None:
        """A credential without the right to impersonate opens a kubelet to no user."""
        self.api.answer = APIError("POST", REVIEWS, 403, 'users "jane" is forbidden')
        error = self.refused()
        self.assertEqual(error.code, 403)
        self.assertIn('users "jane" is forbidden', str(error))
