"""Hostile requests, generated from a seed: every part of a request is right, odd or wrong."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable, Mapping, Sequence

from attrs import field, frozen

_METHODS = (b"GET", b"GET", b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS")
_ODD_METHODS = (
    b"TRACE",
    b"CONNECT",
    b"PROPFIND",
    b"get",
    b"G",
    b"X" * 40,
    b"M-SEARCH",
    b"PRI",
    b"",
    b"G\xc3\xa9T",
)
_VERSIONS = (b"HTTP/1.0", b"HTTP/0.9", b"HTTP/2.0", b"HTTP/1.10", b"HTTP/1.2", b"http/1.1", b"HTTP/1.1 ", b"")
_CLUSTER = b"/clusters/alpha"
_PATHS = (
    _CLUSTER + b"/api/v1/namespaces/team/pods",
    _CLUSTER + b"/api/v1/namespaces/team/pods/web/exec?command=id&stdin=true",
    _CLUSTER + b"/api/v1/namespaces/team/pods/web/log?follow=true",
    _CLUSTER + b"/api/v1/nodes/a/proxy/metrics",
    _CLUSTER + b"/api/v1/secrets?fieldSelector=metadata.name%3Da&watch=0",
    _CLUSTER + b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    _CLUSTER + b"/targets/wiki/",
    _CLUSTER + b"/targets/kubernetes/api",
    _CLUSTER + b"/targets/kubelet/a/pods",
    _CLUSTER,
    b"/clusters/beta/api",
    b"/clusters//api",
    b"/clusters/Alpha/api",
    b"/clusters/" + b"a" * 300 + b"/api",
    b"/apis/cluster.kubesphere.io/v1alpha1/clusters",
    b"/apis/cluster.kubesphere.io/v1alpha1/clusters/alpha/status",
    b"/apis/cluster.kubesphere.io/v1alpha1/accesspolicies?watch=true&timeoutSeconds=0",
    b"/apis/cluster.kubesphere.io/v1alpha1/loginsessions?limit=-1&continue=eyJ",
    b"/apis/rbac.authorization.k8s.io/v1/clusterroles?labelSelector=a%20in%20(",
    b"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    b"/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
    b"/apis/authentication.k8s.io/v1/selfsubjectreviews",
    b"/openapi/v2",
    b"/openapi/v3/apis/cluster.kubesphere.io/v1alpha1?hash=x",
    b"/login/sessions",
    b"/login/session",
    b"/login/clusters",
    b"/.well-known/tower-login",
    b"/healthz?exclude=ping&verbose",
    b"/readyz/shutdown",
    b"/version",
    b"/metrics",
    b"/debug/pprof/profile?seconds=1",
    b"/agent",
    b"/import/alpha",
    b"/",
    b"*",
    b"",
)

# The first of them are in the cluster.
_MEMBERS = 9

_ODD_PARTS = (
    b"%2e%2e/beta",
    b"..",
    b"..;/",
    b"%00",
    b"%",
    b"%zz",
    b"%ff%fe",
    b"\xc3\xa9",
    b"\\..\\",
    b"//",
    b"?",
    b"#",
    b"a b",
    b"%252e%252e%252f",
    b";a=b",
    b"{}|^`",
    b"A" * 5000,
    b"?" + b"a=1&" * 3000,
    b"?watch=true&resourceVersion=-1&allowWatchBookmarks=maybe",
)
_FIELDS = (
    b"Impersonate-User: admin",
    b"impersonate_user: admin",
    b"Impersonate-Group: system:masters",
    b"Impersonate-Uid: 0",
    b"Impersonate-Extra-%zz: a",
    b"Impersonate-Extra-: a",
    b"Impersonate-User: " + b"a" * 3000,
    b"Impersonate-User: \xff\xfe",
    b"X-Remote-User: admin",
    b"X-Remote-Group: tower:admins",
    b"X-Remote_User: admin",
    b"X-Forwarded-For: 127.0.0.1",
    b"Forwarded: for=127.0.0.1",
    b"X-Forwarded-Host: evil.example",
    b"Via: 1.1 " + b"a" * 500,
    b"Connection: close, Authorization",
    b"Connection: X-Remote-User, Host",
    b"Connection: Upgrade",
    b"Upgrade: SPDY/3.1",
    b"Upgrade: websocket",
    b"Upgrade: h2c",
    b"Upgrade: tower-stream",
    b"Sec-WebSocket-Key: x",
    b"Sec-WebSocket-Version: 99",
    b"Sec-WebSocket-Protocol: tower-v2",
    b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.@@@",
    b"Sec-WebSocket-Protocol: " + b", ".join([b"base64url.bearer.authorization.k8s.io.YQ"] * 3),
    b"Content-Length: 0",
    b"Content-Length: 5",
    b"Content-Length: -5",
    b"Content-Length: 99999999999999999999",
    b"Content-Length: 5, 5",
    b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: gzip, chunked",
    b"Transfer-Encoding : chunked",
    b"TE: trailers",
    b"Trailer: Impersonate-User",
    b"Expect: 100-continue",
    b"Expect: 200-ok",
    b"Host: beta",
    b"Host:",
    b"Origin: https://evil.example",
    b"Origin: null",
    b"Accept: application/json;as=Table;v=v1;g=meta.k8s.io,*/*;q=abc",
    b"Accept: application/vnd.kubernetes.protobuf",
    b"Accept: " + b"a/b," * 2000,
    b"Accept-Encoding: gzip, " + b"x" * 900,
    b"Content-Type: application/vnd.kubernetes.protobuf",
    b"Content-Type: application/apply-patch+yaml",
    b"Content-Type: text/plain",
    b"Cookie: " + b"a=b; " * 400,
    b"Range: bytes=0-,5-1",
    b"If-None-Match: *",
    b"Audit-Id: \x1b[2J",
    b"X-Request-Id: ../../x",
    b"A: b\r\n c: d",
    b"A: b\nC: d",
    b"A: b\rC: d",
    b"A\x00: b",
    b"A: \x00\x1b[31m\x85",
    b": b",
    b"No colon",
    b"Sec-Fetch-Mode: navigate",
    b"Kubectl-Command: \xe2\x80\xae",
    b"User-Agent: kubectl/v1.33.0 \xff",
    b"Authorization: Basic YWRtaW46YWRtaW4=",
    b"Authorization: Negotiate x",
    b"Authorization: Bearer",
    b"Authorization: Bearer a b",
    b"Authorization:",
)


def _nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


_BODIES = (
    b"",
    b"{}",
    b"hello",
    b"\x00\xff" * 50,
    b"k8s\x00" + b"\xff" * 40,
    b'{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{}}',
    b'{"kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":{"verb":7},"nonResourceAttributes":[]}}',
    b'{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectRulesReview","spec":{"namespace":{"a":1}}}',
    b'{"spec":{"nonResourceAttributes":{"verb":"\\ud800","path":"/\\udfff"}}}',
    b'{"spec":{"user":"\\ud800","cluster":"alpha","target":"kubelet","verb":"\\ud800","path":"\\ud800"}}',
    b'{"publicKey":"x","refreshToken":1,"client":"\\u0000"}',
    b'{"apiVersion":"cluster.kubesphere.io/v1alpha1","kind":"AccessPolicy","metadata":[],"spec":null}',
    b'{"apiVersion":"cluster.kubesphere.io/v1alpha1","kind":"Cluster","metadata":{"name":"\xed\xa0\x80"}}',
    b'{"a":1e999,"b":' + b"9" * 5000 + b"}",
    b'{"a":"\\ud800"}',
    _nested(5000),
    b'[{"op":"add","path":"/metadata/labels/a","value":1}]',
    b"a: &a [*a]\nb: !!python/object:os.system x\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=b\nhello\r\n0\r\n\r\n",
    b"ffffffffffffffffff\r\n",
    b"GET /clusters/alpha/api/v1/secrets HTTP/1.1\r\nHost: a\r\nImpersonate-User: admin\r\n\r\n",
    b"x" * 70_000,
)


@frozen
class HostileRequest:
    """One write to a connection.

    :ivar wire: its bytes.
    :ivar answers: number of answers that may come, at most; 0: the client closes at once.
    :ivar is_held: Tower may first request newer keys from the identity provider.
    """

    wire: bytes = field(repr=False)
    answers: int = 1
    is_held: bool = False


class HostileRequests:
    """The generator.

    :param seed: of all choices.
    :param good: valid bearer tokens, of users whose rights do not matter.
    :param bad: tokens of identity providers that must not be accepted.
    :param held: the same, with unknown keys.
    """

    def __init__(
        self, seed: int, good: Sequence[bytes], bad: Sequence[bytes], held: Callable[[], bytes]
    ) -> None:
        self._random = random.Random(seed)
        self._good, self._bad, self._held = good, bad, held

    def next(self) -> HostileRequest:
        """Return a request."""
        chance = self._random.random()
        if chance < 0.004:
            token = b"Authorization: Bearer " + self._held()
            return HostileRequest(self._request(token), is_held=True)
        wire = self._request(self._token())
        if chance < 0.03:
            return HostileRequest(self._garbage())
        if chance < 0.09:
            return HostileRequest(wire[: self._random.randrange(len(wire) + 1)], answers=0)
        if chance < 0.19:
            count = self._random.randint(2, 6)
            return HostileRequest(
                wire + b"".join(self._request(self._token()) for _ in range(count)), count + 1
            )
        return HostileRequest(wire)

    def _request(self, token: bytes) -> bytes:
        chance = self._random
        method = chance.choice(_METHODS if chance.random() < 0.97 else _ODD_METHODS)
        version = b"HTTP/1.1" if chance.random() < 0.98 else chance.choice(_VERSIONS)
        lines = [b"%b %b %b" % (method, self._target(), version)]
        if chance.random() < 0.99:
            lines.append(
                b"Host: tower" if chance.random() < 0.98 else b"Host: " + chance.choice(_ODD_PARTS[:-3])
            )
        if token:
            lines.append(token)
        lines += chance.sample(_FIELDS, chance.choice((0, 0, 0, 0, 0, 1, 1, 1, 2, 3)))
        if chance.random() < 0.005:
            lines += [b"X-Many-%d: a" % number for number in range(400)]
        if chance.random() < 0.005:
            lines.append(b"X-Huge: " + b"a" * 65_000)
        body = b""
        if method in (b"POST", b"PUT", b"PATCH", b"DELETE") or chance.random() < 0.05:
            body = chance.choice(_BODIES)
            if chance.random() < 0.97:
                lines.append(b"Content-Length: %d" % len(body))
        return b"\r\n".join(lines) + b"\r\n\r\n" + body

    def _target(self) -> bytes:
        chance = self._random
        path = chance.choice(_PATHS if chance.random() < 0.5 else _PATHS[:_MEMBERS])
        if chance.random() < 0.12:
            part = chance.choice(_ODD_PARTS)
            at = chance.randrange(len(path) + 1)
            path = path[:at] + part + path[at:]
        return b"https://evil.example" + path if chance.random() < 0.02 else path

    def _token(self) -> bytes:
        chance = self._random
        kind = chance.random()
        if kind < 0.15:
            return b""
        if kind < 0.55:
            token = chance.choice(self._good)
        elif kind < 0.75:
            token = chance.choice(self._bad)
        elif kind < 0.85:
            token = self._mutated(chance.choice((*self._good, *self._bad)))
        else:
            token = self._forged()
        if chance.random() < 0.1:
            text = base64.urlsafe_b64encode(token).rstrip(b"=")
            return b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io." + text
        return b"Authorization: Bearer " + token

    def _mutated(self, token: bytes) -> bytes:
        changed = bytearray(token)
        for _ in range(self._random.randint(1, 3)):
            changed[self._random.randrange(len(changed))] = self._random.choice(b"AZaz09-_.=")
        return bytes(changed)

    def _forged(self) -> bytes:
        """Return a token that Tower has to parse: of any method, or of none."""
        chance = self._random

        def part(value: object) -> bytes:
            return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=")

        odd: tuple[object, ...] = (None, 7, -1, 1e308, [], {}, "", "a" * 2000, [["a"]], True)
        claims: Mapping[str, object] = {
            "iss": chance.choice((*odd, "kubernetes/serviceaccount", "https://evil.example")),
            "sub": chance.choice((*odd, "system:serviceaccount:kube-system:admin")),
            "exp": chance.choice((*odd, 2**70)),
            "aud": chance.choice(odd),
        }
        header = {"alg": chance.choice((*odd, "none", "HS256", "RS256")), "kid": chance.choice(odd)}
        return chance.choice(
            (
                part(header) + b"." + part(claims) + b"." + bytes(chance.choices(b"abcXYZ019-_", k=40)),
                part(header) + b"." + part(claims) + b".",
                b"eyJ" + b"." * 3,
                b"towerk-" + bytes(chance.choices(b"abcdef0123456789", k=48)),
                b"towerk-"
                + part({"alg": "EdDSA", "typ": "tower-session+jwt", **header})
                + b"."
                + part(claims)
                + b".YQ",
                bytes(chance.choices(range(33, 127), k=chance.randint(1, 80))),
                b"a" * chance.choice((8191, 8193, 16_385, 40_000)),
            )
        )

    def _garbage(self) -> bytes:
        chance = self._random
        return (
            chance.choice(
                (
                    chance.randbytes(chance.randint(1, 400)),
                    b"\r\n" * chance.randint(1, 40),
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + chance.randbytes(30),
                    b"\x16\x03\x01\x02\x00" + chance.randbytes(60),
                    b"SSH-2.0-x\r\n",
                    b"PROXY TCP4 127.0.0.1 127.0.0.1 1 2\r\n",
                    b"GET / HTTP/1.1\r\n" + b"a" * 70_000,
                )
            )
            + b"\r\n\r\n"
        )
