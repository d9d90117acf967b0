"""Tokens for Compute Engine with workload identity federation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cloud.asking import as_reactor, asking, logged
from tests.cloud.gce.kit import GCETestCase
from tests.cloud.standins.gce import ACCOUNT, IDENTITY, POOL, PROJECT
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.federation import load_account
from tower.cloud.gce.provider import GCECloud
from tower.errors import ConfigurationError


class FederationTests(GCETestCase):
    """Files of type external_account."""

    def setUp(self) -> None:
        """Write a token of the identity provider."""
        super().setUp()
        self.token = Path(self.mktemp())
        self.token.write_text(IDENTITY + "\n")

    def write(self, source: dict[str, Any] | None = None, **changes: Any) -> str:
        """Write the file, with changes; a None is left out."""
        said = {
            "type": "external_account",
            "universe_domain": "googleapis.com",
            "audience": POOL,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": "http://localhost/sts",
            "service_account_impersonation_url": (
                f"http://localhost/v1/projects/-/serviceAccounts/{ACCOUNT}:generateAccessToken"
            ),
            "credential_source": {"file": str(self.token)} if source is None else source,
            **changes,
        }
        return self.write_file(said)

    def write_file(self, said: dict[str, Any], path: Path | None = None) -> str:
        """Write the file; a None is left out."""
        path = path or Path(self.mktemp())
        path.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
        return str(path)

    def cloud_of(self, path: str) -> GCECloud:
        """Return a provider with this login."""
        text = (
            f"[global]\napi-endpoint = http://gce.test/compute/v1/\nproject-id = {PROJECT}\n"
            f"credentials-file = {path}\n"
        )
        config = parse_gce_config(ConfigText("gce.conf", text), {})
        ask = asking(self.gce.resource, self.clock)
        cloud = GCECloud(config, load_account(path), ask=ask, now=self.clock.seconds)
        cloud.initialize(as_reactor(self.clock))
        self.addCleanup(cloud.stop)
        return cloud

    def test_impersonation(self) -> None:
        """Our token is traded, what it gives for the service account's; both again before its end."""
        cloud = self.cloud_of(self.write())
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(1, self.gce.resource.count("POST", ":generateAccessToken"))
        self.clock.advance(3400)
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(2, self.gce.resource.count("POST", "/sts"))
        self.assertEqual(2, self.gce.resource.count("POST", ":generateAccessToken"))
        self.assertEqual([], self.gce.resource.refused)

    def test_directly(self) -> None:
        """Without a service account the traded token is used itself."""
        cloud = self.cloud_of(self.write(service_account_impersonation_url=None))
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(0, self.gce.resource.count("POST", ":generateAccessToken"))

    def test_sources(self) -> None:
        """The provider's token may be in JSON, or at a URL."""
        self.token.write_text(json.dumps({"id": IDENTITY}))
        in_json = {"type": "json", "subject_token_field_name": "id"}
        at_url = {
            "url": "http://localhost/identity",
            "headers": {"Metadata": "True"},
            "format": {"type": "json", "subject_token_field_name": "value"},
        }
        for source in ({"file": str(self.token), "format": in_json}, at_url):
            self.assertEqual(3, len(self.names(self.cloud_of(self.write(source)))))
        (asked,) = (ask for ask in self.gce.resource.asks if ask.path == "/identity")
        self.assertEqual("True", asked.headers["metadata"])

    def test_rotated(self) -> None:
        """The provider's token is reread for each exchange; a rejected one is not in the error."""
        self.token.write_text("a-stale-token-of-ours")
        cloud = self.cloud_of(self.write())
        with logged() as lines, self.assertRaisesRegex(CloudAnswerError, "400: invalid_grant: ") as caught:
            self.names(cloud)
        self.assertNotIn("a-stale-token", f"{caught.exception} {lines}")
        self.token.write_text(IDENTITY)
        self.assertEqual(3, len(self.names(cloud)))

    def test_no_token(self) -> None:
        """Without a valid token nothing is sent, and the error does not quote the file."""
        in_json = {"file": str(self.token), "format": {"type": "json", "subject_token_field_name": "id"}}
        for text, source in (
            ("", None),
            ("s3cr3t", in_json),
            ('{"id": 5}', in_json),
            ('["s3cr3t"]', in_json),
        ):
            self.token.write_text(text)
            error = self.assertRaises(CloudError, self.names, self.cloud_of(self.write(source)))
            self.assertIn("token of the identity provider", str(error))
            self.assertNotIn("s3cr3t", str(error))
        error = self.assertRaises(
            CloudError, self.names, self.cloud_of(self.write({"file": "/nowhere/at/all"}))
        )
        self.assertIn("No such file", str(error))
        self.assertEqual([], self.gce.resource.asks)

    def test_bad_files(self) -> None:
        """A file that is incomplete, or has URLs without HTTPS, is an error at the start."""
        for changes, wanted in (
            ({"audience": None}, "a field is missing or invalid"),
            ({"credential_source": []}, "a field is missing or invalid"),
            ({"credential_source": {"environment_id": "aws1"}}, "neither file nor url"),
            ({"token_url": "http://sts.example/"}, "a token URL is not https://"),
            ({"service_account_impersonation_url": "http://evil.example/"}, "a token URL is not https://"),
            ({"type": "gdch"}, "credentials of type gdch are not supported, only service_account and"),
        ):
            error = self.assertRaises(ConfigurationError, load_account, self.write(**changes))
            self.assertIn(wanted, str(error))
