"""Tests of `tower.kube.access.token_reviews`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.access.reviews import WrongReview
from tower.kube.access.token_reviews import ERROR_LIMIT, ReviewedToken, reviewed_token, token_review


class TokenReviewTests(SynchronousTestCase):
    """Questions and answers."""

    def test_review(self) -> None:
        """Audiences are omitted if there are none."""
        review = token_review("v1", "t", ())
        self.assertEqual(
            review,
            {"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": "t"}},
        )
        self.assertEqual(token_review("v1beta1", "t", ["a"])["spec"]["audiences"], ["a"])

    def test_answer(self) -> None:
        """Missing fields are empty, and kind and version may be missing."""
        user = {"username": "jane", "uid": "7", "groups": ["dev"], "extra": {"k": ["v"]}}
        status = {"authenticated": True, "user": user, "audiences": ["a"]}
        found = reviewed_token({**token_review("v1", "t", ()), "status": status}, "v1")
        self.assertEqual(found, ReviewedToken(True, "", ("a",), "jane", "7", ("dev",), (("k", ("v",)),)))
        empty: dict[str, Any]
        for empty in ({}, {"status": None}, {"status": {"authenticated": None, "user": None}}):
            self.assertEqual(reviewed_token(empty, "v1"), ReviewedToken(authenticated=False))

    def test_error(self) -> None:
        """The error is one line of bounded length."""
        found = reviewed_token({"status": {"error": "a\nb" + "x" * 5000}}, "v1")
        self.assertTrue(found.error.startswith("a\\nb"))
        self.assertLessEqual(len(found.error), ERROR_LIMIT + 10)

    def test_wrong(self) -> None:
        """Other objects and types are errors, which name the field."""
        for value, part in (
            ([], "TokenReview"),
            ({"kind": "Status"}, "TokenReview"),
            ({"apiVersion": "authentication.k8s.io/v1beta1"}, "version authentication.k8s.io/v1"),
            ({"status": []}, "status"),
            ({"status": {"authenticated": 1}}, "true or false"),
            ({"status": {"authenticated": "true"}}, "true or false"),
            ({"status": {"user": "jane"}}, "status.user"),
            ({"status": {"user": {"username": 7}}}, "status.user.username"),
            ({"status": {"user": {"groups": "dev"}}}, "status.user.groups"),
            ({"status": {"user": {"groups": [7]}}}, "status.user.groups"),
            ({"status": {"user": {"extra": {"k": "v"}}}}, "status.user.extra"),
            ({"status": {"error": {}}}, "status.error"),
            ({"status": {"audiences": "a"}}, "status.audiences"),
        ):
            self.assertIn(part, str(self.assertRaises(WrongReview, reviewed_token, value, "v1")), value)
