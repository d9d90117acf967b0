"""Header fields with bearer tokens and claims of identities."""

from __future__ import annotations

TOKEN = b"eyJhbGciOiJSUzI1NiJ9.e30.c2lnbmF0dXJl"
BEARER = b"Authorization: Bearer " + TOKEN
ALICE = (b"Impersonate-User: alice", b"Impersonate-Group: ws-dev", b"Impersonate-Group: system:authenticated")

#: Fields of a hostile or careless trusted caller: two credentials, or a malformed one.
MIXED = (
    (BEARER, *ALICE),
    (b"Authorization: bearer " + TOKEN, b"impersonate-user: alice"),
    (BEARER, b"Impersonate-Group: ws-dev"),
    (BEARER, b"Impersonate-Uid: 7"),
    (BEARER, b"Impersonate-Extra-Scopes: all"),
    (BEARER, b"X-Remote-User: alice"),
    (b"Authorization: Basic YTpi", *ALICE),
    (b"Authorization: Negotiate x", *ALICE),
    (BEARER, b"Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r"),
    (*ALICE, b"Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r"),
    (b"Sec-WebSocket-Protocol: v4.channel.k8s.io, base64url.bearer.authorization.k8s.io.dG9r",),
    (b"Authorization: Bearer a b",),
    (b"Authorization: Bearer a,Bearer",),
    (b"Authorization: Bearer \xe9",),
)
