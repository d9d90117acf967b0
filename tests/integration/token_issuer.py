"""An OpenID Connect issuer of the tests' own, on loopback with TLS: it signs any claims."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.fakes.certificates import DAY, authority
from tests.integration.programs import LOOPBACK
from tower.trust.pki import Authority

CLIENT = "tower"
DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/keys"


def segment(data: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def tls_files(folder: Path, name: str) -> tuple[Path, Path, Path]:
    """Write a new CA, and certificate and key of a server on loopback, for a month; return their paths."""
    now = time.time()
    root: Authority = authority(name, now=now)
    issued = root.server_certificate([LOOPBACK], 30 * DAY, now)
    paths = [folder / f"{name}.{suffix}" for suffix in ("ca", "crt", "key")]
    for path, data in zip(paths, (root.pem, issued.certificate_pem, issued.key_pem), strict=True):
        path.write_bytes(data)
    return paths[0], paths[1], paths[2]


class TokenIssuer:
    """The issuer.

    :ivar url: of the issuer; `ca` is the file with its CA.
    :ivar key: signs tokens; `key_id` names it.
    :ivar claims: of a good token.
    """

    def __init__(self, folder: Path, name: str = "issuer") -> None:
        self.ca, certificate, key = tls_files(folder, name)
        self.key = rsa.generate_private_key(65537, 2048)
        self.key_id = "first"
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            """Answers with the two documents."""

            def do_GET(self) -> None:
                """Answer."""
                document = {DISCOVERY: issuer.discovery, KEYS: issuer.key_set}.get(self.path)
                body = json.dumps(document() if document else {}).encode()
                self.send_response(200 if document else 404)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                """Log nothing."""

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://{LOOPBACK}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """End."""
        self._server.shutdown()
        self._server.server_close()

    def discovery(self) -> dict[str, Any]:
        """Return the discovery document."""
        return {
            "issuer": self.url,
            "jwks_uri": self.url + KEYS,
            "authorization_endpoint": self.url + "/auth",
            "token_endpoint": self.url + "/token",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def key_set(self) -> dict[str, Any]:
        """Return the key set."""
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": self.key_id, "use": "sig", "alg": "RS256"}]}

    def rotate(self) -> None:
        """Use a new key."""
        self.key, self.key_id = rsa.generate_private_key(65537, 2048), "second"

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of a good token."""
        now = int(time.time())
        return {"iss": self.url, "aud": CLIENT, "sub": "jane", "iat": now, "exp": now + 600}

    def token(
        self,
        *,
        without: str = "",
        algorithm: str = "RS256",
        key: Any = None,
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a signed token: a good one with other *claims*, and without the claim *without*."""
        content = {**self.claims, **claims}
        content.pop(without, None)
        fields = {"kid": self.key_id, **(header or {})}
        fields = {name: value for name, value in fields.items() if value is not None}
        return jwt.encode(content, key or self.key, algorithm, fields)

    def unsigned(self, **claims: Any) -> str:
        """Return a token with ``alg: none``."""
        return jwt.encode({**self.claims, **claims}, "", "none", {"kid": self.key_id})

    def confused(self) -> str:
        """Return a token whose HMAC has the public key as its secret."""
        secret = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        header = {"alg": "HS256", "typ": "JWT", "kid": self.key_id}
        signed = ".".join(segment(json.dumps(each).encode()) for each in (header, self.claims))
        return f"{signed}.{segment(hmac.new(secret, signed.encode(), hashlib.sha256).digest())}"

    def of_another_key(self, **header: Any) -> str:
        """Return a token that a key of another's has signed."""
        return self.token(key=rsa.generate_private_key(65537, 2048), header=header)

    def with_own_key(self, claims: Mapping[str, Any]) -> str:
        """Return a token that a key of another's has signed, which its header contains."""
        key = rsa.generate_private_key(65537, 2048)
        public = jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return self.token(key=key, header={"jwk": public, "jku": "https://127.0.0.1:1"}, **claims)

    def of_a_curve(self) -> str:
        """Return a token with a signature of an algorithm that is not allowed."""
        return self.token(key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256")
