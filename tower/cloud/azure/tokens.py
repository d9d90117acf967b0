"""Tokens for Azure, with an application's login or the machine's managed identity."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from uuid import uuid4

from attrs import define
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.hazmat.primitives.serialization.pkcs12 import load_key_and_certificates

from tower.cloud.azure.config import AzureConfig
from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, error_detail
from tower.cloud.jwt import encode, signed_jwt
from tower.cloud.session import CloudSession

#: Version of the metadata service's API for tokens.
TOKEN_VERSION = "2018-02-01"  # noqa: S105 (a date)

#: Version of the metadata service's API for the machine.
INSTANCE_VERSION = "2021-02-01"

_METADATA_HEADERS = {"metadata": "true"}
_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class NoToken(CloudError):
    """Azure does not issue a token."""


@define(eq=False, repr=False)
class Tokens:
    """Fetches tokens with the login of a configuration; *now* returns s since the epoch."""

    _session: CloudSession
    _config: AzureConfig
    _now: Callable[[], float] = time.time

    async def fetch(self) -> tuple[str, float]:
        """Return a token and its lifetime, s.

        :raise NoToken: with Azure's reason.
        :raise CloudError: there is no response.
        """
        answer = await (self._of_machine() if self._config.managed else self._of_application())
        try:
            fields = answer.json()
            # The metadata service sends numbers as strings.
            token, life = fields["access_token"], float(fields["expires_in"])
        except (TypeError, KeyError, ValueError):
            raise NoToken(f"{answer.url}: the response has no token") from None
        if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
            raise NoToken(f"{answer.url}: the response has no token")
        return token, life

    async def _of_application(self) -> Answer:
        url = f"{self._config.login}/{quote(self._config.tenant, safe='')}/oauth2/v2.0/token"
        proof = self._proof(url)
        form = {
            "grant_type": "client_credentials",
            "client_id": self._config.client,
            "scope": f"{self._config.audience.rstrip('/')}/.default",
            **proof,
        }
        headers = {"content-type": "application/x-www-form-urlencoded"}
        try:
            return await self._session.request("POST", url, headers=headers, body=urlencode(form).encode())
        except CloudAnswerError as e:
            raise NoToken(f"no token for client {self._config.client}: {_without(proof, e)}") from None

    def _proof(self, url: str) -> dict[str, str]:
        config = self._config
        if config.token_file:
            assertion = federated_token(config.token_file)
        elif config.certificate:
            assertion = signed_assertion(
                config.certificate, config.certificate_password, config.client, url, self._now()
            )
        else:
            return {"client_secret": config.secret}
        return {"client_assertion_type": _ASSERTION, "client_assertion": assertion}

    async def _of_machine(self) -> Answer:
        query = {"api-version": TOKEN_VERSION, "resource": self._config.audience}
        if self._config.identity:
            is_resource = self._config.identity.startswith("/")
            query["msi_res_id" if is_resource else "client_id"] = self._config.identity
        url = f"{self._config.metadata}/metadata/identity/oauth2/token?{urlencode(query)}"
        try:
            # A service that is being updated responds with 404 or 410.
            return await self._session.request(
                "GET",
                url,
                headers=_METADATA_HEADERS,
                timeout=5.0,
                again=lambda answer: answer.code in (404, 410),
            )
        except CloudUnreachable as e:
            raise NoToken(f"no token for the managed identity, no metadata service: {e}") from None
        except CloudAnswerError as e:
            raise NoToken(f"no token for the managed identity: {e.detail or e}") from None


def _without(proof: Mapping[str, str], error: CloudAnswerError) -> str:
    """Return Azure's message without secret and assertion, which it may repeat."""
    secrets = [proof[name] for name in ("client_secret", "client_assertion") if proof.get(name)]
    return error_detail(error.body, secrets) or f"HTTP status {error.code}"


async def read_compute(session: CloudSession, config: AzureConfig) -> dict[str, object]:
    """Return the metadata service's data about this machine; raise `CloudError` outside Azure."""
    url = f"{config.metadata}/metadata/instance/compute?api-version={INSTANCE_VERSION}&format=json"
    answer = await session.request("GET", url, headers=_METADATA_HEADERS, timeout=5.0, attempts=2)
    fields = answer.json()
    if not isinstance(fields, dict):
        raise answer.unexpected()
    return fields


#: Lifetime of signed assertions, s; Azure requires a short one.
LIFE = 600

_FILE_LIMIT = 1 << 18  # B
_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]+")


class BadAssertion(CloudError):
    """The certificate or the federated token cannot be used."""


def federated_token(path: str) -> str:
    """Return the token in a file, which its issuer keeps fresh.

    :raise BadAssertion: the file has no token; the error does not quote it.
    """
    text = _read(path).decode("ascii", "replace").strip()
    if not _TOKEN.fullmatch(text):
        raise BadAssertion(f"{path}: the file has no token")
    return text


def signed_assertion(path: str, password: str, client: str, audience: str, now: float) -> str:
    """Return an assertion for one login, signed by the client's certificate (RFC 7523, PS256).

    :param path: file with certificate and key, PKCS#12 or PEM.
    :param password: of that file; empty: none.
    :param audience: the token endpoint's URL.
    :param now: s since the epoch.
    :raise BadAssertion: the file cannot be used; the error does not quote it.
    """
    key, certificate = _load(path, password)
    header = {"alg": "PS256", "typ": "JWT", "x5t#S256": encode(certificate.fingerprint(SHA256()))}
    began = int(now)
    claims = {
        "aud": audience,
        "iss": client,
        "sub": client,
        "jti": str(uuid4()),
        "nbf": began,
        "exp": began + LIFE,
    }
    padding = PSS(MGF1(SHA256()), SHA256.digest_size)
    return signed_jwt(header, claims, lambda data: key.sign(data, padding, SHA256()))


def _load(path: str, password: str) -> tuple[RSAPrivateKey, x509.Certificate]:
    data, secret = _read(path), password.encode() or None
    key: Any
    certificate: x509.Certificate | None
    try:
        if b"-----BEGIN" in data:
            key = load_pem_private_key(data, secret)
            certificate = x509.load_pem_x509_certificate(data)
        else:
            key, certificate, _ = load_key_and_certificates(data, secret)
    except (ValueError, TypeError):
        raise BadAssertion(
            f"{path}: the file has no certificate with a key, or aadClientCertPassword is wrong"
        ) from None
    if not isinstance(key, RSAPrivateKey) or certificate is None:
        raise BadAssertion(f"{path}: the file must have a certificate and its RSA key")
    return key, certificate


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_FILE_LIMIT)
    except OSError as e:
        raise BadAssertion(f"{path}: {e.strerror}") from None
