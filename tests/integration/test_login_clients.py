"""ID tokens for the client of ``tower login``: they only begin sessions, and only at one Tower."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.harness import Tower
from tests.integration.programs import wait_for
from tests.integration.token_issuer import CLIENT, TokenIssuer
from tests.integration.token_users import CLUSTERS, PODS, anybody, is_authenticated, message
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import public_text

#: The client of logins.
LOGIN = "tower-login"


class LoginClientTests(SynchronousTestCase):
    """A Tower and an issuer with two clients."""

    timeout = 120

    def setUp(self) -> None:
        """Start both."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.issuer = TokenIssuer(folder)
        self.addCleanup(self.issuer.close)
        self.tower = Tower(folder)
        self.addCleanup(self.tower.stop)
        self.tower.proxy = self.tower.proxy_program(
            f"--oidc-issuer-url={self.issuer.url}",
            f"--oidc-client-id={CLIENT}",
            f"--login-client-id={self.issuer.url}={LOGIN}",
            f"--oidc-ca-file={self.issuer.ca}",
            "--oidc-username-prefix=-",
            "--external-hostname=tower.example.org",
        )
        self.tower.start()
        self.client = anybody(self.tower)
        token = self.issuer.token()
        wait_for("the keys", lambda: is_authenticated(self.client, CLUSTERS, token))

    def test_clusters(self) -> None:
        """Clusters and Tower's API reject ID tokens for the client of logins, and accept those of another."""
        for path in (PODS, CLUSTERS):
            status, _, text = message(self.client, path, self.issuer.token(aud=LOGIN))
            self.assertEqual(status, 403)
            self.assertIn("the ID token of jane can only begin a session: log in with 'tower login'", text)
            self.assertNotIn("begin a session", message(self.client, path, self.issuer.token())[2])

    def begin(self, server: str, key: Ed25519PrivateKey, **claims: Any) -> tuple[int, str]:
        """Begin a session; return status and message."""
        answer = self.client.request(
            "POST",
            "/login/sessions",
            body=json.dumps({"publicKey": public_text(key), "server": server}).encode(),
            headers={
                "Authorization": f"Bearer {self.issuer.token(aud=LOGIN, **claims)}",
                "Content-Type": "application/json",
            },
        )
        return answer.status, str(json.loads(answer.body).get("message", ""))

    def test_relayed_login(self) -> None:
        """A program that poses as a Tower cannot begin a session with the ID token of its user."""
        user, attacker = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
        own, evil = "https://tower.example.org:8443", "https://evil.example"
        given = login_nonce(evil, public_text(user))
        for server, key, problem in (
            (own, attacker, "is of another login"),
            (own, user, "is of another login"),
            (evil, attacker, "is of another login"),
            (evil, user, "this Tower has another name"),
        ):
            status, text = self.begin(server, key, nonce=given)
            self.assertEqual(status, 403)
            self.assertIn(problem, text)
        status, text = self.begin(own, attacker)
        self.assertEqual(status, 403)
        self.assertIn("has no nonce", text)
        self.assertIn("login of jane is rejected: ", self.tower.proxy.output())
        self.assertIn("no login sessions", self.tower.tower("session", "list"))
        self.assertEqual(self.begin(own, user, nonce=login_nonce(own, public_text(user))), (201, ""))
