"""Users with ID tokens of Dex: its keys change, and it is down."""

from __future__ import annotations

import base64
import json
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import dex
from tests.integration.harness import Tower
from tests.integration.person import Person
from tests.integration.programs import wait_for
from tests.integration.token_issuer import segment
from tests.integration.token_users import CLUSTERS, anybody, message


class DexTests(SynchronousTestCase):
    """A Tower whose users have ID tokens of a real provider."""

    timeout = 120

    def setUp(self) -> None:
        """Prepare both; nothing is started."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.dex = dex.Dex(self.folder)
        self.addCleanup(self.dex.stop)

    def started(self, *options: str) -> Person:
        """Start the proxy with more options; return a client."""
        self.tower.proxy = self.tower.proxy_program(*options)
        self.tower.start()
        return anybody(self.tower)

    def test_login_and_rotation(self) -> None:
        """Tokens are accepted once the provider answers, while it is down, and with its new keys after."""
        client = self.started(
            f"--oidc-issuer-url={self.dex.url}",
            f"--oidc-client-id={dex.CLIENT}",
            f"--oidc-ca-file={self.dex.ca}",
            "--oidc-username-claim=email",
            "--oidc-groups-claim=groups",
            "--oidc-groups-prefix=dex:",
        )
        wait_for("the log", lambda: "it is tried again every 10 s" in self.tower.proxy.output())
        self.dex.start()
        first = self.dex.token()
        status, reason, text = message(client, CLUSTERS, first)
        self.assertEqual((status, reason), (401, "Unauthorized"))
        self.assertIn("oidc: authenticator not initialized (GET https://", text)

        wait_for("the keys", lambda: message(client, CLUSTERS, first)[0] == 403, 30)
        self.assertIn(f'"{dex.USER}" ', message(client, CLUSTERS, first)[2])
        self.assertEqual(message(client, CLUSTERS, first[:-8] + "AAAAAAAA")[0], 401)

        self.dex.kill()
        self.assertEqual(message(client, CLUSTERS, first)[0], 403, "a provider that is down")
        header = json.loads(base64.urlsafe_b64decode(first.split(".")[0] + "=="))
        unknown = segment(json.dumps({**header, "kid": "new"}).encode())
        begin = time.monotonic()
        status, _, text = message(client, CLUSTERS, ".".join((unknown, *first.split(".")[1:])))
        self.assertEqual(status, 401)
        self.assertIn("failed to verify id token signature (fetching keys: ", text)
        self.assertLess(time.monotonic() - begin, 30)

        self.dex.start()
        second = self.dex.token()
        self.assertEqual(message(client, CLUSTERS, second)[0], 403, "a key that is new")
        self.assertEqual(message(client, CLUSTERS, first)[0], 401, "a key that the provider has no more")
        log = self.tower.proxy.output()
        for token in (first, second):
            self.assertNotIn(token.rsplit(".", 1)[1], log)

    def test_file(self) -> None:
        """A changed file of issuers is used without a restart, and a bad one is not."""
        self.dex.start()
        path = self.folder / "authentication.yaml"

        def write(audience: str, extra: Mapping[str, Any]) -> None:
            issuer = {
                "url": self.dex.url,
                "audiences": [audience],
                "certificateAuthority": self.dex.ca.read_text(),
            }
            mappings = {"username": {"claim": "email", "prefix": "file:"}}
            content = {
                "apiVersion": "apiserver.config.k8s.io/v1",
                "kind": "AuthenticationConfiguration",
                "jwt": [{"issuer": issuer, "claimMappings": mappings, **extra}],
            }
            draft = path.with_suffix(".draft")
            draft.write_text(yaml.safe_dump(content))
            draft.rename(path)

        write("another", {})
        client = self.started(f"--authentication-config={path}")
        token = self.dex.token()
        expected = f'oidc: expected audience "another" got ["{dex.CLIENT}"]'
        wait_for("the keys", lambda: expected in message(client, CLUSTERS, token)[2], 30)

        write(dex.CLIENT, {"claimValidationRules": [{"claim": "name", "requiredValue": "Kilgore Trout"}]})
        wait_for("the file", lambda: message(client, CLUSTERS, token)[0] == 403, 30)
        self.assertIn(f'"file:{dex.USER}" ', message(client, CLUSTERS, token)[2])

        write("", {"wrong": 1})
        wait_for("the log", lambda: "its last content stays in use" in self.tower.proxy.output(), 30)
        self.assertEqual(message(client, CLUSTERS, token)[0], 403)
        self.assertIn('unknown field "jwt[0].wrong"', self.tower.proxy.output())
