"""Tests of `tower.kube.access.reviews`; `tests.integration.test_authorizers` has upstream's."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.reviews import (
    CLUSTER_KEY,
    REASON_LIMIT,
    ReviewStatus,
    WrongReview,
    controlled_size,
    review_of,
    status_of,
)
from tower.kube.request_info import parse_request_info


class ReviewTests(SynchronousTestCase):
    """Reviews and answers."""

    def review(self, version: str, target: bytes) -> dict[str, Any]:
        """Return the review of a request of jane's."""
        info = parse_request_info(b"GET", target)
        return review_of(version, "jane", "u", ("dev",), ((CLUSTER_KEY, ("forged",)),), info, "alpha")

    def test_versions(self) -> None:
        """The groups have another key in the old version; the user cannot set the cluster."""
        path = {"path": "/x", "verb": "get"}
        for version, key in (("v1", "groups"), ("v1beta1", "group")):
            self.assertEqual(
                self.review(version, b"/x"),
                {
                    "kind": "SubjectAccessReview",
                    "apiVersion": f"authorization.k8s.io/{version}",
                    "spec": {
                        "nonResourceAttributes": path,
                        "user": "jane",
                        key: ["dev"],
                        "extra": {CLUSTER_KEY: ["alpha"]},
                        "uid": "u",
                    },
                },
            )

    def test_resource(self) -> None:
        """Empty attributes of a resource are omitted."""
        spec = self.review("v1", b"/api/v1/namespaces/a/pods/p/log")["spec"]
        self.assertEqual(
            spec["resourceAttributes"],
            {"namespace": "a", "verb": "get", "version": "v1", "resource": "pods"}
            | {"subresource": "log", "name": "p"},
        )

    def test_size(self) -> None:
        """The size counts all that the request determines."""
        self.assertEqual(controlled_size(parse_request_info(b"GET", b"/abc")), len("get/abc"))

    def test_answers(self) -> None:
        """Valid answers, with a reason of limited length."""
        for status, expected in (
            ({"allowed": True, "reason": "a\nb"}, ReviewStatus(allowed=True, reason="a\\nb")),
            ({"allowed": False, "denied": True}, ReviewStatus(allowed=False, denied=True)),
            ({}, ReviewStatus(allowed=False)),
            ({"allowed": True, "reason": 5}, ReviewStatus(allowed=True)),
        ):
            self.assertEqual(status_of({**self.review("v1", b"/x"), "status": status}, "v1"), expected)
        long = {**self.review("v1", b"/x"), "status": {"reason": "x" * 5000}}
        self.assertEqual(len(status_of(long, "v1").reason), REASON_LIMIT)

    def test_wrong_answers(self) -> None:
        """Anything else is wrong."""
        right = {**self.review("v1", b"/x"), "status": {"allowed": True}}
        changes: tuple[dict[str, Any], ...] = (
            {"kind": "x"},
            {"apiVersion": "v1"},
            {"status": []},
            {"status": {"denied": 0}},
        )
        for change in changes:
            self.assertRaises(WrongReview, status_of, right | change, "v1")
        self.assertRaises(WrongReview, status_of, right, "v1beta1")
        self.assertRaises(WrongReview, status_of, [right], "v1")
