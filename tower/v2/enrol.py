"""The two authentication requests of an agent, encoded and parsed.  No I/O.

Both are SSH_MSG_USERAUTH_REQUEST (RFC 4252 section 5) with the cluster's name as user name and
``ssh-connection`` as service.  Method ``publickey`` (section 7) is for an enrolled key.  Method
``enrol@tower.kubesphere.io`` has a join token and the key to enrol with it::

    byte      50
    string    cluster
    string    "ssh-connection"
    string    "enrol@tower.kubesphere.io"
    string    join token
    string    "ssh-ed25519"
    string    public key blob
    string    signature

The signature is made with that key over the session identifier (as a string) and everything before the
signature, message type included: it proves possession of the key, on this connection.
"""

from __future__ import annotations

from attrs import field, frozen
from twisted.conch.ssh.common import NS

from tower.conch.transport.fields import MessageReader
from tower.conch.transport.keys import ED25519, KeyPair, fingerprint, verify
from tower.conch.transport.userauth_messages import CONNECTION, LONGEST_NAME, MSG_USERAUTH_REQUEST, PUBLICKEY

ENROL = b"enrol@tower.kubesphere.io"

#: Longest token accepted, B.
LONGEST_TOKEN = 256


class ClaimRejected(Exception):
    """A well-formed request that is rejected without a lookup; the text is for the log."""


@frozen
class Claim:
    """An agent's claim to serve a cluster.

    :ivar blob: the ed25519 public key blob.
    :ivar proven: whether the request is signed; an unsigned one only asks whether the key would be accepted.
    :ivar token: the join token; only with method ``enrol@tower.kubesphere.io``.
    """

    cluster: str
    blob: bytes
    fingerprint: str
    proven: bool
    token: str | None = field(default=None, repr=False)


def publickey_request(session_id: bytes, cluster: str, key: KeyPair) -> bytes:
    """Return the body (without the type) of a signed ``publickey`` request."""
    body = b"".join((_begin(cluster, PUBLICKEY), b"\1", NS(ED25519), NS(key.blob)))
    return body + NS(key.sign(_to_sign(session_id, body)))


def enrol_request(session_id: bytes, cluster: str, key: KeyPair, token: str) -> bytearray:
    """Return the body (without the type) of an enrolment.  Secret: overwrite it after sending."""
    secret = token.encode()
    body = _joined(_begin(cluster, ENROL), len(secret).to_bytes(4, "big"), secret, NS(ED25519), NS(key.blob))
    signed = _joined(_to_sign(session_id, b""), body)
    request = _joined(body, NS(key.sign(signed)))
    for copy in (body, signed):
        copy[:] = bytes(len(copy))
    return request


def _begin(cluster: str, method: bytes) -> bytes:
    return NS(cluster.encode()) + NS(CONNECTION) + NS(method)


def _joined(*parts: bytes | bytearray) -> bytearray:
    """Return *parts* joined, without the copies that a growing buffer would leave in memory."""
    whole = bytearray(sum(map(len, parts)))
    at = 0
    for part in parts:
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


def _to_sign(session_id: bytes, before: bytes) -> bytes:
    return b"%b%c%b" % (NS(session_id), MSG_USERAUTH_REQUEST, before)


def method_of(body: bytes) -> bytes:
    """Return the method of an authentication request.

    :raise Malformed: it is not an authentication request.
    """
    fields = MessageReader(body)
    fields.string()
    fields.string()
    return fields.string()


def read_claim(session_id: bytes, body: bytes) -> Claim:
    """Return the claim of a ``publickey`` or ``enrol@tower.kubesphere.io`` request; its signature is
    verified.

    :raise Malformed: its fields do not fill it.
    :raise NotAccepted: wrong service, key type, cluster name, token or signature.
    """
    fields = MessageReader(body)
    user, service, method = fields.string(), fields.string(), fields.string()
    token, proven = b"", True
    if method == ENROL:
        token = fields.string()
    else:
        proven = fields.boolean()
    algorithm, blob = fields.string(), fields.string()
    if service != CONNECTION:
        raise ClaimRejected("the service is not ssh-connection")
    if algorithm != ED25519:
        raise ClaimRejected("the key is not ed25519")
    if not user or len(user) > LONGEST_NAME or not user.isascii():
        raise ClaimRejected("the user name is not a cluster name")
    if len(token) > LONGEST_TOKEN or not token.isascii():
        raise ClaimRejected("the join token is malformed")
    if proven:
        signed = _to_sign(session_id, fields.before())
        if not verify(blob, fields.string(), signed):
            raise ClaimRejected("wrong signature")
    fields.end()
    return Claim(
        cluster=user.decode(),
        blob=blob,
        fingerprint=fingerprint(blob),
        proven=proven,
        token=token.decode() if method == ENROL else None,
    )
