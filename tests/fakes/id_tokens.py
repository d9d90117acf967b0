"""ID tokens of an issuer in memory, its documents, and an agent that serves them."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.defer import Deferred, succeed
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent
from zope.interface import implementer

from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings

NOW = 1_700_000_000.0
URL, CLIENT = "https://issuer.example", "tower"
DOCUMENT, KEYS = URL + "/.well-known/openid-configuration", URL + "/keys"
GOOD = {"iss": URL, "aud": CLIENT, "sub": "jane", "exp": int(NOW) + 600}
ISSUER = IssuerSettings(URL, (CLIENT,), ClaimSource("sub"), ClaimSource("groups"))


def rsa_key(name: str = "first", bits: int = 2048) -> rsa.RSAPrivateKey:
    """Return the key of this name."""
    return _rsa_key(name, bits)


@cache
def _rsa_key(name: str, bits: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, bits)


def ec_key(curve: type[ec.EllipticCurve] = ec.SECP256R1) -> ec.EllipticCurvePrivateKey:
    """Return a key on a curve."""
    return _ec_key(curve)


@cache
def _ec_key(curve: type[ec.EllipticCurve]) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve())


def jwk(key: Any, name: str | None = "first", **fields: Any) -> dict[str, Any]:
    """Return the public part of a key as JWK."""
    algorithm: Any = jwt.algorithms.RSAAlgorithm
    if isinstance(key, ec.EllipticCurvePrivateKey):
        algorithm = jwt.algorithms.ECAlgorithm
    made: dict[str, Any] = {**algorithm.to_jwk(key.public_key(), as_dict=True), "use": "sig", **fields}
    return made if name is None else {**made, "kid": name}


def key_set(*names: str) -> dict[str, Any]:
    """Return the JWKS of the RSA keys of these names."""
    return {"keys": [jwk(rsa_key(name), name) for name in names]}


def id_token(
    claims: dict[str, Any] | None = None,
    name: str | None = "first",
    *,
    key: Any = None,
    algorithm: str = "RS256",
    **changes: Any,
) -> bytes:
    """Return a signed token: with *claims*, by default good ones, and with *changes*.

    :param name: of the RSA key; also the ``kid``.
    """
    content = {**(GOOD if claims is None else claims), **changes}
    header = {} if name is None else {"kid": name}
    made = jwt.api_jws.encode(
        json.dumps(content).encode(), key or rsa_key(name or "first"), algorithm, header
    )
    return made.encode()


class ServedDocument:
    """A response.

    :ivar length: unknown, as of a body in chunks.
    """

    length: Any = UNKNOWN_LENGTH

    def __init__(
        self, body: bytes, code: int = 200, content_type: str = "application/json", **more: str
    ) -> None:
        self.code = code
        self.body = body
        fields = {"content-type": content_type, **more}
        self.headers = Headers({name: [value] for name, value in fields.items()})

    def deliverBody(self, protocol: Any) -> None:
        """Deliver the whole body."""
        protocol.dataReceived(self.body)
        protocol.connectionLost(Failure(ResponseDone()))


@implementer(IAgent)
class ProviderAgent:
    """Answers requests to the issuer.

    :ivar answers: by URL: a value (as JSON), a `ServedDocument`, an exception, or a function that returns
        one; None: no answer at all.
    :ivar asked: all URLs.
    """

    def __init__(self, *names: str) -> None:
        self.answers: dict[str, Any] = {
            DOCUMENT: {"issuer": URL, "jwks_uri": KEYS},
            KEYS: key_set(*names or ("first",)),
        }
        self.asked: list[str] = []

    def request(
        self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None
    ) -> Deferred[Any]:
        """Answer a request."""
        url = uri.decode()
        self.asked.append(url)
        answer = self.answers.get(url, ServedDocument(b"", 404))
        if isinstance(answer, Callable):  # type: ignore[arg-type]
            answer = answer()
        if answer is None:
            return Deferred()
        if isinstance(answer, Deferred):
            return answer
        if isinstance(answer, Exception):
            failed: Deferred[Any] = Deferred()
            failed.errback(answer)
            return failed
        if not isinstance(answer, ServedDocument):
            answer = ServedDocument(json.dumps(answer).encode())
        return succeed(answer)

    def rotate(self, *names: str) -> None:
        """Serve other keys."""
        self.answers[KEYS] = key_set(*names)


def public_pem(key: Any) -> bytes:
    """Return the public key in PEM."""
    pem: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def account_key_id(key: Any) -> str:
    """Return kube-apiserver's ID of a key that signs tokens of service accounts."""
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return urlsafe_b64encode(sha256(der).digest()).rstrip(b"=").decode()
