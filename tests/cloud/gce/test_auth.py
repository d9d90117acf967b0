"""Tokens for Compute Engine, from each source."""

from __future__ import annotations

import json
import os
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from tests.cloud.asking import as_reactor, asking, logged
from tests.cloud.gce.kit import CONFIG, GCETestCase
from tests.cloud.standins.gce import ACCOUNT, GCE, PROJECT
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudAnswerError, CloudError
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.federation import load_account
from tower.cloud.gce.provider import GCECloud, make
from tower.errors import ConfigurationError

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)


def pem(key: Any) -> str:
    """Return a private key as Google hands it out."""
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


class MetadataTokenTests(GCETestCase):
    """Tokens of the metadata service."""

    def tokens_asked(self) -> int:
        """Return the number of requests for tokens."""
        return self.gce.resource.count("GET", "/token")

    def test_one_for_many(self) -> None:
        """A token serves until shortly before its end."""
        for _ in range(3):
            self.names(self.cloud)
        self.assertEqual(1, self.tokens_asked())
        self.clock.advance(3400)
        self.names(self.cloud)
        self.assertEqual(2, self.tokens_asked())
        self.assertEqual([], self.gce.resource.refused)

    def test_revoked(self) -> None:
        """A token that is refused is replaced once, and the request made again."""
        self.names(self.cloud)
        self.gce.revoke()
        self.assertEqual(3, len(self.names(self.cloud)))
        self.assertEqual([401], [reply.code for _, reply in self.gce.resource.refused])

    def test_never_good(self) -> None:
        """Tokens that are rejected repeatedly are an error."""
        self.gce.resource.faults.append(Fault(Reply(401, b"no"), 99, "/compute/"))
        with self.assertRaisesRegex(CloudAnswerError, "answered 401"):
            self.names(self.cloud)

    def test_other_server(self) -> None:
        """A server that is not Google's metadata service is not used."""
        self.gce.flavored = False
        with self.assertRaisesRegex(CloudError, "gce.test is not Google's metadata service"):
            self.names(self.cloud)
        self.assertEqual(0, self.gce.resource.count("GET", "instances"))

    def test_garbage(self) -> None:
        """A token that cannot be read is a clear error, that does not show it."""
        for body in (
            b"ya29.half",
            b"[]",
            b'{"access_token": "ya29.x"}',
            b'{"access_token": 1, "expires_in": "x"}',
        ):
            reply = Reply(200, body, {"Metadata-Flavor": "Google"})
            self.gce.resource.faults.append(Fault(reply, 1, "token"))
            with self.assertRaisesRegex(CloudError, "^the metadata service sent no valid token$"):
                self.names(self.cloud)

    def test_silence(self) -> None:
        """A missing metadata service is detected within half a minute."""
        self.gce.resource.faults.append(Fault(None, 99, "/computeMetadata/"))
        before = self.clock.seconds()
        with self.assertRaisesRegex(
            CloudError, "no answer within 5 s: outside Google Cloud, set project-id,"
        ):
            self.names(self.cloud)
        self.assertLess(self.clock.seconds() - before, 30)

    def test_project(self) -> None:
        """The project defaults to that of this machine, and is requested once."""
        cloud = self.provider("", CONFIG.replace(f"project-id = {PROJECT}\n", ""))
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(1, self.gce.resource.count("GET", "project-id"))


class AlternateTokenTests(GCETestCase):
    """Tokens of the operator's token service."""

    TEXT = 'token-url = http://gce.test/alternate-token\ntoken-body = "{\\"audience\\": \\"tower\\"}"\n'

    def test_used(self) -> None:
        """Its tokens are used and renewed in time; it is shown those of the metadata service."""
        cloud = self.provider(self.TEXT)
        self.assertEqual(3, len(self.names(cloud)))
        self.clock.advance(3400)
        self.assertEqual(3, len(self.names(cloud)))
        self.assertEqual(2, self.gce.resource.count("POST", "/alternate-token"))
        self.assertEqual([], self.gce.resource.refused)

    def test_nil(self) -> None:
        """``nil`` stands for no such service."""
        self.assertEqual(3, len(self.names(self.provider("token-url = nil\n"))))
        self.assertEqual(0, self.gce.resource.count("POST", "/alternate-token"))

    def test_garbage(self) -> None:
        """A token that cannot be read is a clear error, that does not show it."""
        cloud = self.provider(self.TEXT)
        bodies: list[object] = [
            {"accessToken": "ya29.x"},
            {"accessToken": "ya29.x", "expireTime": "soon"},
            [],
        ]
        for body in bodies:
            self.gce.resource.faults.append(Fault(Reply(body=body), 1, "alternate"))
            with self.assertRaisesRegex(CloudError, "^the token service sent no valid token$"):
                self.names(cloud)


class AccountTests(GCETestCase):
    """Tokens for the key of a service account."""

    def setUp(self) -> None:
        """Write a key file."""
        super().setUp()
        self.path = self.mktemp()
        self.gce = GCE(self.clock.seconds, account_key=RSA_KEY.public_key())
        self.write()

    def write(self, **changes: object) -> None:
        """Write the key file, with changes."""
        said = {
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "4711",
            "private_key": pem(RSA_KEY),
            "client_email": ACCOUNT,
            "token_uri": "http://gce.test/token",
        }
        with open(self.path, "w") as file:
            json.dump(said | changes, file)

    def with_account(self) -> GCECloud:
        """Return a provider for the account."""
        text = f"[global]\napi-endpoint = http://gce.test/compute/v1/\ncredentials-file = {self.path}\n"
        config = parse_gce_config(ConfigText("gce.conf", text), {})
        ask = asking(self.gce.resource, self.clock)
        cloud = GCECloud(config, load_account(self.path), ask=ask, now=self.clock.seconds)
        cloud.initialize(as_reactor(self.clock))
        return cloud

    def test_used(self) -> None:
        """An assertion that Google would take is traded for a token; the project is the account's."""
        cloud = self.with_account()
        self.assertEqual([], self.names(cloud))
        self.clock.advance(3500)
        self.assertEqual([], self.names(cloud))
        self.assertEqual(2, self.gce.resource.count("POST", "/token"))
        self.assertEqual([], self.gce.resource.refused)

    def test_renewed_key(self) -> None:
        """A key file that is replaced is used from the next token on."""
        cloud = self.with_account()
        self.names(cloud)
        self.gce._account_key = OTHER_KEY.public_key()
        self.gce.revoke()
        self.write(private_key=pem(OTHER_KEY))
        self.names(cloud)

    def test_refused(self) -> None:
        """A key that Google does not know is a clear error without the assertion."""
        self.write(private_key=pem(OTHER_KEY))
        with logged() as lines, self.assertRaisesRegex(CloudAnswerError, "400: invalid_grant: ") as caught:
            self.names(self.with_account())
        assertion = self.gce.resource.asks[0].body.decode().partition("assertion=")[2]
        self.assertGreater(len(assertion), 300)
        text = f"{caught.exception} {lines}"
        self.assertNotIn(assertion[:40], text)
        self.assertNotIn(assertion[-40:], text)

    def test_environment(self) -> None:
        """The key file and the metadata service may come from the usual variables."""
        variables = {"GOOGLE_APPLICATION_CREDENTIALS": self.path, "GCE_METADATA_HOST": "127.0.0.1:1"}
        config = parse_gce_config(None, variables)
        self.assertEqual((self.path, "127.0.0.1:1"), (config.credentials_file, config.metadata_host))

    def test_factory(self) -> None:
        """The factory reads the key file, so an invalid one is an error at the start."""
        text = f"[global]\ncredentials-file = {self.path}\n"
        cloud = make(ConfigText("gce.conf", text))
        self.assertEqual("gce", cloud.provider_name())
        os.unlink(self.path)
        with self.assertRaisesRegex(ConfigurationError, "No such file"):
            make(ConfigText("gce.conf", text))

    def test_bad_files(self) -> None:
        """An invalid key file is an error that does not quote the key."""
        secret = pem(RSA_KEY)
        wrong: list[dict[str, object]] = [
            {"type": "gdch_service_account"},
            {"private_key": secret[:200]},
            {"private_key": 5},
            {"private_key": pem(ec.generate_private_key(ec.SECP256R1()))},
        ]
        for changes in wrong:
            self.write(**changes)
            with self.assertRaises(ConfigurationError) as caught:
                load_account(self.path)
            self.assertNotIn(secret[30:60], str(caught.exception))
        for text in ("", "[]", "{"):
            with open(self.path, "w") as file:
                file.write(text)
            self.assertRaises(ConfigurationError, load_account, self.path)

    def test_user_login(self) -> None:
        """The login that gcloud leaves is an error that names the file and a command for the replacement."""
        self.write(type="authorized_user", refresh_token="1//refresh-secret")
        text = f"[global]\ncredentials-file = {self.path}\n"
        with self.assertRaises(ConfigurationError) as caught:
            make(ConfigText("gce.conf", text))
        self.assertEqual(
            str(caught.exception),
            f"{self.path}: credentials of type authorized_user are not supported, only service_account and "
            "external_account: create a key with 'gcloud iam service-accounts keys create FILE "
            "--iam-account ACCOUNT' and set credentials-file to FILE",
        )

    def test_repr(self) -> None:
        """An account's repr has no key."""
        self.assertNotIn("key=", repr(load_account(self.path)))
