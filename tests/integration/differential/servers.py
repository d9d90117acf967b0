"""A real kube-apiserver and Tower with the same options, files, roles and users."""

from __future__ import annotations

import hmac
import http.client
import json
import re
import ssl
import time
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
from attrs import define, field, frozen
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.integration.differential.asks import Ask, At, Hook, Token
from tests.integration.differential.certificates import Authorities
from tests.integration.differential.rows import NO_TLS
from tests.integration.differential.tokens import AUDIENCE, ISSUER
from tests.integration.person import Person
from tests.integration.programs import wait_for
from tests.integration.token_issuer import segment

_ACCOUNT = "system:serviceaccount:default:robot"
_LOGGED = b"Unable to authenticate the request"
_REASON = re.compile(r'err="((?:[^"\\]|\\.)*)"')


@frozen
class Answer:
    """An answer.

    :ivar status: 0: the server ended the TLS handshake.
    :ivar value: the object in it.
    :ivar logged: why kube-apiserver did not authenticate the user, in its log.
    """

    status: int
    value: Mapping[str, Any] = field(factory=dict)
    logged: str = ""

    def __str__(self) -> str:
        if not self.status:
            return NO_TLS
        user = self.value.get("status", {}) if isinstance(self.value.get("status"), dict) else {}
        said = self.value.get("message") or user.get("userInfo") or self.value
        return f"{self.status} {json.dumps(said).strip(chr(34))}"


@define(eq=False)
class Signer:
    """Makes tokens; the cluster's service accounts have *key*."""

    key: Any
    uid: str
    _others: dict[str, Any] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._others = {
            "other": ec.generate_private_key(ec.SECP256R1()),
            "rsa": rsa.generate_private_key(65537, 2048),
        }

    def token(self, token: Token) -> str:
        """Return a token."""
        if "{" not in token.form:
            return token.form
        header, payload, signature = whole = self._signed(token).split(".")
        claims = {**self.claims, "sub": "system:serviceaccount:default:joe"}
        none = {"alg": "none"}
        return token.form.format(
            whole=".".join(whole),
            cut=".".join(whole)[:-6],
            header=header,
            payload=payload,
            signature=signature,
            none=_segment(none),
            none_with_key=_segment({**none, "kid": self._key_id}),
            joe=_segment(claims),
            text=segment(b"x"),
            confused=self._confused(),
        )

    @property
    def claims(self) -> dict[str, Any]:
        """The claims of a good token."""
        now = int(time.time())
        return {
            "iss": ISSUER,
            "aud": [AUDIENCE],
            "sub": _ACCOUNT,
            "iat": now,
            "nbf": now,
            "exp": now + 600,
            "jti": "a-1",
            "kubernetes.io": {
                "namespace": "default",
                "serviceaccount": {"name": "robot", "uid": self.uid},
            },
        }

    @property
    def _key_id(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return segment(sha256(self.key.public_key().public_bytes(serialization.Encoding.DER, form)).digest())

    def _signed(self, token: Token) -> str:
        content = self.claims if token.content is None else token.content
        if isinstance(content, dict):
            content = _changed({**content}, token.claims)
            if token.private:
                content["kubernetes.io"] = _changed({**content["kubernetes.io"]}, token.private)
        key = self._others.get(token.key, self.key)
        algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        header = _changed({"kid": self._key_id}, token.header)
        if header.get("jwk"):
            header["jwk"] = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        return jwt.api_jws.encode(json.dumps(content).encode(), key, algorithm, header)

    def _confused(self) -> str:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        secret = self.key.public_key().public_bytes(serialization.Encoding.PEM, form)
        signed = f"{_segment({'alg': 'HS256', 'kid': self._key_id})}.{_segment(self.claims)}"
        return f"{signed}.{segment(hmac.new(secret, signed.encode(), sha256).digest())}"


def _segment(value: Any) -> str:
    return segment(json.dumps(value).encode())


def _changed(value: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return *value* with other parts, and without those that are None."""
    now = int(time.time())
    for name, part in changes.items():
        if isinstance(part, At):
            moment = now + part.seconds
            value[name] = str(int(moment)) if part.is_text else moment
        else:
            value[name] = part
    return {name: part for name, part in value.items() if part is not None}


def answer_of(hook: Hook, review: dict[str, Any]) -> tuple[int, bytes]:
    """Return status and body of the webhook's answer to a review."""
    if hook.body is not None:
        return hook.code, hook.body
    return hook.code, json.dumps({**review, "status": hook.status, **hook.top}).encode()


@define(eq=False)
class Side:
    """One of the two servers.

    :ivar tokens: of the users jane and admin.
    :ivar log: of kube-apiserver; None: this is Tower.
    """

    person: Person
    tokens: Mapping[str, str]
    log: Path | None = None

    def ask(self, ask: Ask, signer: Signer, authorities: Authorities, folder: Path) -> Answer:
        """Send a request on a new connection."""
        connection = self.connect(ask, authorities, folder)
        try:
            return self.send(connection, ask, signer)
        finally:
            connection.close()

    def connect(self, ask: Ask, authorities: Authorities, folder: Path) -> http.client.HTTPSConnection:
        """Return a connection with the certificate of a request."""
        context = ssl.create_default_context(cadata=self.person.ca)
        if ask.certificate is not None:
            pair = folder / "pair.pem"
            pair.write_bytes(authorities.issue(ask.certificate))
            context.load_cert_chain(pair)
        elif ask.user == "admin" and not self.tokens["admin"]:
            context = self.person.tls
        return http.client.HTTPSConnection(self.person.host, self.person.port, context=context, timeout=60)

    def send(self, connection: http.client.HTTPSConnection, ask: Ask, signer: Signer) -> Answer:
        """Send a request; the status 0 is for a connection that ended."""
        token = signer.token(ask.token) if isinstance(ask.token, Token) else ask.token
        token = token or (self.tokens[ask.user] if ask.user else "")
        fields = [*([f"Authorization: Bearer {token}"] if token else []), *ask.fields]
        start = 0 if self.log is None else self.log.stat().st_size
        try:
            status, body = _sent(connection, ask, fields)
        except (OSError, http.client.HTTPException):
            return Answer(0)
        logged = self._logged(start) if ask.has_reason and self.log is not None and status == 401 else ""
        return Answer(status, json.loads(body), logged)

    def _logged(self, start: int) -> str:
        assert self.log is not None
        wait_for("the log", partial(_has, self.log, start), 10)
        text = self.log.read_bytes()[start:].decode(errors="replace")
        (line,) = [each for each in text.splitlines() if _LOGGED.decode() in each][:1]
        found = _REASON.search(line)
        assert found is not None, line
        reason = str(json.loads(f'"{found[1]}"'))
        return reason.removeprefix("[invalid bearer token, ").removesuffix("]")


def _sent(connection: http.client.HTTPSConnection, ask: Ask, fields: list[str]) -> tuple[int, bytes]:
    body = ask.body if isinstance(ask.body, bytes) else json.dumps(ask.body or {}).encode()
    if ask.method in ("GET", "DELETE"):
        body = b""
    connection.putrequest(ask.method, ask.path)
    for name, _, value in (each.partition(":") for each in fields):
        connection.putheader(name, value.removeprefix(" ").encode())
    connection.putheader("Content-Type", ask.media)
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    answer = connection.getresponse()
    return answer.status, answer.read()


def _has(log: Path, start: int) -> bool:
    return _LOGGED in log.read_bytes()[start:]
