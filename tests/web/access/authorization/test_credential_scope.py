"""Tests of `tower.web.access.authorization.credential_scope`."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.credentials import issue
from tower.clusters.credentials import Credential
from tower.errors import Forbidden
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.credential_scope import (
    authorize_api,
    authorize_cluster,
    check_own_scope,
    check_token_scope,
)


def identity(credential: Credential) -> Identity:
    """Return the identity of *credential*."""
    return Identity(credential.user, credential.groups, credential)


class AuthorizeTests(SynchronousTestCase):
    def test_its_cluster(self) -> None:
        """A credential is valid for its own cluster, not for another one or Tower's own API."""
        jane = identity(issue(groups=("tower:admins",)))
        authorize_cluster(jane, "alpha", "u-1")
        error = self.assertRaises(Forbidden, authorize_cluster, jane, "beta", "u-2")
        self.assertEqual(
            str(error),
            "the credential of jane is for cluster alpha and is not valid for cluster beta: "
            "request a kubeconfig for cluster beta",
        )
        self.assertRaises(Forbidden, authorize_api, jane)

    def test_same_name_again(self) -> None:
        """A credential is not valid for a later cluster of the same name."""
        error = self.assertRaises(Forbidden, authorize_cluster, identity(issue()), "alpha", "u-9")
        self.assertIn("an earlier cluster alpha", str(error))

    def test_api(self) -> None:
        """Tower's own API requires an administrator's credential, which is not valid for clusters."""
        admin = identity(issue("root", cluster="", uid="", groups=("tower:admins",)))
        authorize_api(admin)
        self.assertRaises(Forbidden, authorize_cluster, admin, "alpha", "u-1")
        self.assertRaises(Forbidden, authorize_cluster, admin, "", "")
        other = identity(issue(cluster="", uid="", groups=("dev",)))
        self.assertIn("tower:admins", str(self.assertRaises(Forbidden, authorize_api, other)))

    def test_without_credential(self) -> None:
        """A user of another method has no scope, and the text has the cure."""
        jane = Identity("jane", ("tower:admins",), method="oidc", key="oidc:1")
        for error in (
            self.assertRaises(Forbidden, authorize_cluster, jane, "alpha", "u-1"),
            self.assertRaises(Forbidden, authorize_api, jane),
        ):
            self.assertIn("jane has no credential of Tower's for", str(error))
            self.assertIn("request a kubeconfig", str(error))

    def test_token_of_session(self) -> None:
        """The token of a login session may be for one cluster only."""
        jane = Identity("jane", ("tower:admins",), method="login", key="s-1", scope="alpha")
        self.assertEqual(jane.cluster, "alpha")
        check_token_scope(jane, "alpha")
        check_own_scope(Identity("jane", method="login", key="s-1"))
        error = self.assertRaises(Forbidden, check_token_scope, jane, "beta")
        self.assertIn(
            "is for cluster alpha and is not valid for cluster beta: use another context", str(error)
        )
        self.assertIn("Tower's own API", str(self.assertRaises(Forbidden, check_own_scope, jane)))
