"""Tests of `tower.web.access.authorization.attributes`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authorization.attributes import attributes_of

JANE = UserInfo("jane")


class RefusalTests(SynchronousTestCase):
    """The texts of rejections, as kube-apiserver's."""

    def test_texts(self) -> None:
        """Objects with and without names and namespaces, and paths."""
        for method, target, text, details in (
            (
                b"GET",
                b"/api/v1/namespaces/default/pods/p1",
                (
                    'pods "p1" is forbidden: User "jane" cannot get resource "pods" in API group "" '
                    'in the namespace "default"'
                ),
                {"name": "p1", "kind": "pods"},
            ),
            (
                b"POST",
                b"/apis/apps/v1/namespaces/a/deployments/d/scale",
                (
                    'deployments.apps "d" is forbidden: User "jane" cannot create resource '
                    '"deployments/scale" in API group "apps" in the namespace "a"'
                ),
                {"name": "d", "group": "apps", "kind": "deployments"},
            ),
            (
                b"GET",
                b"/api/v1/nodes",
                (
                    'nodes is forbidden: User "jane" cannot list resource "nodes" in API group "" '
                    "at the cluster scope"
                ),
                {"kind": "nodes"},
            ),
            (b"GET", b"/a%3Cb", 'forbidden: User "jane" cannot get path "/a&lt;b"', {}),
        ):
            error = attributes_of(JANE, method, target, "alpha").refusal()
            self.assertEqual((error.code, error.message, error.details), (403, text, details))

    def test_reason_and_cure(self) -> None:
        """The authorizers' reason and the cure are at the end."""
        error = attributes_of(JANE, b"GET", b"/x", "alpha").refusal("No policy matched.", "ask Joe")
        self.assertEqual(
            error.message, 'forbidden: User "jane" cannot get path "/x": No policy matched.; ask Joe'
        )
        self.assertEqual(error.kind, "authorization-mode")
