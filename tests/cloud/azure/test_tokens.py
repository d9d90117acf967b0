"""Logins at Azure without a secret: with a certificate or with a federated token in a file."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates

from tests.cloud.asking import logged
from tests.cloud.azure.kit import AzureTestCase
from tests.cloud.standins.azure import CLIENT, FEDERATED, TENANT
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.azure.tokens import BadAssertion, NoToken

PASSWORD = "0f-the-f1le"


def certify(key: RSAPrivateKey) -> x509.Certificate:
    """Return a certificate that a key made for itself."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tower")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 7, now, now + timedelta(days=1))
    return made.sign(key, SHA256())


class AssertionTest(AzureTestCase):
    """Credentials of the client."""

    def file(self, data: bytes) -> str:
        """Write a file."""
        path = Path(self.mktemp())
        path.write_bytes(data)
        return str(path)

    def listed(self, **keys: object) -> int:
        """Return how many machines a client without a secret sees."""
        instances = self.instances(aadClientSecret=None, **keys)
        return len(self.finish(instances.list_instances()))

    def test_pod(self) -> None:
        """A pod's workload identity is used, and its token reread for each login."""
        path = Path(self.file(b"stale"))
        self.environ = {
            "AZURE_FEDERATED_TOKEN_FILE": str(path),
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_TENANT_ID": TENANT,
        }
        instances = self.instances(aadClientId=None, aadClientSecret=None, tenantId=None)
        self.assertRaises(NoToken, self.finish, instances.list_instances())
        path.write_text(f"{FEDERATED}\n")
        self.assertEqual(len(self.finish(instances.list_instances())), 5)

    def test_certificate(self) -> None:
        """The client logs in with a certificate in PKCS#12, with and without password, and in PEM."""
        key = generate_private_key(65537, 2048)
        certificate = certify(key)
        thumbprint = base64.urlsafe_b64encode(certificate.fingerprint(SHA256())).rstrip(b"=").decode()
        self.azure.certificates[thumbprint] = key.public_key()
        for password, closed in (
            (PASSWORD, BestAvailableEncryption(PASSWORD.encode())),
            ("", NoEncryption()),
        ):
            packed = serialize_key_and_certificates(b"tower", key, certificate, None, closed)
            pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, closed)
            for data in (packed, pem + certificate.public_bytes(Encoding.PEM)):
                self.assertEqual(
                    self.listed(aadClientCertPath=self.file(data), aadClientCertPassword=password), 5
                )

    def test_wrong_certificate(self) -> None:
        """A certificate that Azure does not know, or that cannot be used, is an error without its content."""
        key = generate_private_key(65537, 2048)
        other = certify(generate_private_key(65537, 2048))
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        packed = serialize_key_and_certificates(
            b"tower", key, certify(key), None, BestAvailableEncryption(b"another")
        )
        for data, kind, wanted in (
            (
                pem + certify(key).public_bytes(Encoding.PEM),
                NoToken,
                "AADSTS700027: the key was not found: …",
            ),
            (packed, BadAssertion, "aadClientCertPassword is wrong"),
            (other.public_bytes(Encoding.PEM), BadAssertion, "no certificate with a key"),
            (pem, BadAssertion, "no certificate with a key"),
            (b"s3cr3t", BadAssertion, "no certificate with a key"),
        ):
            path = self.file(data)
            with logged() as lines:
                error = self.assertRaises(
                    kind,
                    self.listed,
                    aadClientCertPath=path,
                    aadClientCertPassword=PASSWORD * (data is packed),
                )
            self.assertIn(wanted, str(error))
            for text in (str(error), *lines):
                self.assertNotIn(PASSWORD, text)
                self.assertNotIn("s3cr3t", text)
        error = self.assertRaises(BadAssertion, self.listed, aadClientCertPath="/nowhere/at/all")
        self.assertIn("No such file", str(error))

    def test_no_token(self) -> None:
        """A file without a token is an error, and none of it is sent."""
        for data in (b"", b"two words", b"\xff\xfe"):
            path = self.file(data)
            error = self.assertRaises(
                BadAssertion,
                self.listed,
                useFederatedWorkloadIdentityExtension=True,
                aadFederatedTokenFile=path,
            )
            self.assertIn("the file has no token", str(error))
        self.assertEqual(self.azure.resource.asks, [])

    def test_not_repeated(self) -> None:
        """A token that Azure quotes is not in the error."""
        self.azure.resource.faults = [
            Fault(Reply(401, {"error": "x", "error_description": f"bad {FEDERATED}"}))
        ]
        error = self.assertRaises(
            NoToken,
            self.listed,
            useFederatedWorkloadIdentityExtension=True,
            aadFederatedTokenFile=self.file(FEDERATED.encode()),
        )
        self.assertIn("x: bad …", str(error))
