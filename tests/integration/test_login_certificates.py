"""``tower login`` at a front door whose certificate for users is not of Tower's CA."""

from __future__ import annotations

import base64
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.certificates import DAY, authority
from tests.integration import harness
from tests.integration.person_login import PersonAtMachine
from tests.integration.programs import wait_for
from tests.integration.token_issuer import CLIENT, TokenIssuer
from tests.integration.token_users import CLUSTERS, allow, anybody, is_authenticated
from tower.trust.pki import ca_hash


class LoginCertificateTests(harness.TowerTestCase):
    """A proxy with a host name for users, and a certificate of an organization for it."""

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the options."""
        tower = super().new_tower()
        self.issuer = TokenIssuer(self.folder)
        self.addCleanup(self.issuer.close)
        self.ca = authority("organization", now=time.time())
        self.certificate, key = self.folder / "tls.crt", self.folder / "tls.key"
        self.issued = self.ca.server_certificate(["localhost"], DAY, time.time())
        self.certificate.write_bytes(self.issued.certificate_pem + self.ca.pem)
        key.write_bytes(self.issued.key_pem)
        tower.proxy = tower.proxy_program(
            f"--oidc-issuer-url={self.issuer.url}",
            f"--oidc-client-id={CLIENT}",
            f"--oidc-ca-file={self.issuer.ca}",
            "--oidc-username-prefix=-",
            "--external-hostname=localhost",
            f"--tls-cert-file={self.certificate}",
            f"--tls-private-key-file={key}",
        )
        return tower

    def published(self) -> str:
        """Return the CAs in the discovery document."""
        answer = anybody(self.tower).request("GET", "/.well-known/tower-login")
        return str(json.loads(answer.body)["certificateAuthority"])

    def test_login(self) -> None:
        """The organization's CA is published with Tower's, so its hash is enough; one without root is not."""
        self.tower.tower("cluster", "add", "alpha")
        allow(self.tower, "jane", {"kind": "User", "name": "jane"}, "alpha")
        token = self.issuer.token()
        wait_for("the keys", lambda: is_authenticated(anybody(self.tower), CLUSTERS, token))
        jane = PersonAtMachine(Path(tempfile.mkdtemp(dir=self.folder)))
        file = jane.home / "token"
        file.write_text(token)
        url = f"https://localhost:{self.tower.secure_port}"
        words = ("login", url, "--token-file", str(file))
        self.assertIn("as jane until", jane.tower(*words, "--ca-hash", ca_hash(self.ca.pem)))
        both = self.tower.ca + self.ca.pem.decode()
        self.assertEqual(self.published(), both)
        written: Any = yaml.safe_load(jane.kubeconfig.read_text())
        (entry,) = [each["cluster"] for each in written["clusters"]]
        self.assertEqual(entry["server"], f"{url}/clusters/alpha")
        self.assertEqual(base64.b64decode(entry["certificate-authority-data"]).decode(), both)
        self.assertIn("tower/alpha", jane.tower("cluster", "list"))

        self.certificate.write_bytes(self.issued.certificate_pem)
        wait_for("the system's CAs", lambda: self.published() == "")
        code, _, error = jane.try_tower(*words, "--ca-hash", ca_hash(self.ca.pem))
        self.assertEqual(code, 1)
        self.assertIn(f"{url} publishes no CA", error)
