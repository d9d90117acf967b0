# mypy: untyped-calls-exclude=twisted
"""Public key login at a node (RFC 4252 section 7), with the signatures that it accepts (RFC 8332)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.conch.ssh.common import NS
from twisted.conch.ssh.service import SSHService

from tower.conch.connection.server import USERAUTH
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.packet_transport import do_nothing
from tower.conch.transport.signatures import RSA, RSA_SHA2_256, RSA_SHA2_512
from tower.conch.transport.userauth_messages import (
    CONNECTION,
    MSG_USERAUTH_BANNER,
    MSG_USERAUTH_FAILURE,
    MSG_USERAUTH_REQUEST,
    MSG_USERAUTH_SUCCESS,
    PUBLICKEY,
)
from tower.errors import PeerError
from tower.escaping import PEER_TEXT_LIMIT, quoted
from tower.nodes.ssh.client_key import ClientKey

#: Extension in which a server lists the signatures that it accepts (RFC 8308 section 3.1).
SERVER_SIG_ALGS = b"server-sig-algs"

#: Most extensions in one message; servers send three or four.
_MOST_EXTENSIONS = 64


class AuthRefused(PeerError):
    """A node rejected the login."""

    for_peer = "login rejected"


def read_extensions(body: bytes) -> dict[bytes, bytes]:
    """Return the extensions in an SSH_MSG_EXT_INFO without its type (RFC 8308 section 2.3).

    :raise Malformed: its length does not match its fields.
    :raise PeerError: more than 64 extensions.
    """
    fields = MessageReader(body)
    count = fields.number()
    if count > _MOST_EXTENSIONS:
        raise PeerError("too many extensions")
    extensions = {fields.string(): fields.string() for _ in range(count)}
    fields.end()
    return extensions


def signatures_for(key: ClientKey, accepted: Sequence[bytes] | None) -> list[bytes]:
    """Return the signature algorithms to try with *key*, in this order.

    RSA keys have several, and all are needed: OpenSSH lists the algorithms that it knows, but its
    configuration may allow fewer.

    :param accepted: the server's list; None if it sent none.
    :raise AuthRefused: the server accepts no algorithm of *key*.
    """
    if accepted is None:
        return [RSA_SHA2_256, RSA_SHA2_512] if key.kind == RSA else list(key.algorithms)
    usable = [algorithm for algorithm in key.algorithms if algorithm in accepted]
    if not usable:
        raise AuthRefused(
            f"its sshd accepts no signature of a key of type {key.kind.decode()}, only {_shown(accepted)}: "
            "use a key of another type, or allow this type with PubkeyAcceptedAlgorithms in its sshd_config"
        )
    return usable


def publickey_request(session_id: bytes, user: str, key: ClientKey, algorithm: bytes) -> bytes:
    """Return the body (without the type) of a signed ``publickey`` request."""
    body = b"".join((NS(user.encode()), NS(CONNECTION), NS(PUBLICKEY), b"\1", NS(algorithm), NS(key.blob)))
    signed = b"%b%c%b" % (NS(session_id), MSG_USERAUTH_REQUEST, body)
    return body + NS(key.sign(algorithm, signed))


class KeyAuth(SSHService):
    """Logs in with one key.  It is offered signed, which saves the round trip of asking first.

    :param accepted: returns the server's list for `signatures_for`; called when the service starts.
    :param succeeded: called after the login.
    """

    name = USERAUTH

    def __init__(
        self,
        user: str,
        key: ClientKey,
        accepted: Callable[[], Sequence[bytes] | None],
        succeeded: Callable[[], None],
    ) -> None:
        self._user = user
        self._key: ClientKey | None = key
        self._accepted = accepted
        self._succeeded = succeeded
        self._signatures: list[bytes] = []

    def serviceStarted(self) -> None:
        """Offer the key."""
        assert self._key is not None
        self._signatures = signatures_for(self._key, self._accepted())
        self._offer(self._key)

    def _offer(self, key: ClientKey) -> None:
        assert self.transport is not None
        assert self.transport.sessionID is not None
        algorithm = self._signatures.pop(0)
        body = publickey_request(self.transport.sessionID, self._user, key, algorithm)
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, body)

    def serviceStopped(self) -> None:
        """Drop the key and the callbacks."""
        self._key = self.transport = None
        self._succeeded = do_nothing
        self._accepted = lambda: None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Handle the node's answer; raise `AuthRefused` if it rejects the login."""
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._succeeded()
        elif messageNum == MSG_USERAUTH_FAILURE:
            fields = MessageReader(packet)
            methods, partial = fields.names(), fields.boolean()
            fields.end()
            self._refused(methods, partial=partial)
        elif messageNum != MSG_USERAUTH_BANNER:
            raise PeerError(f"message {messageNum} before authentication")

    def _refused(self, methods: Sequence[bytes], *, partial: bool) -> None:
        """Try the next signature algorithm, if there is one."""
        key = self._key
        assert key is not None
        if partial or PUBLICKEY not in methods or not self._signatures:
            raise AuthRefused(self._why(key, methods, partial=partial))
        self._offer(key)

    def _why(self, key: ClientKey, methods: Sequence[bytes], *, partial: bool) -> str:
        """Return why the login was rejected, and the cure."""
        who = f"user {self._user} with the key {key.kind.decode()} {key.fingerprint}"
        left = _shown(methods) or "nothing"
        if partial:
            return (
                f"its sshd accepts {who}, but also requires {left}: make this key sufficient with "
                "AuthenticationMethods in its sshd_config"
            )
        if PUBLICKEY not in methods:
            return (
                f"its sshd accepts no keys from {who}, only {left}: allow them with PubkeyAuthentication and "
                "AuthenticationMethods in its sshd_config"
            )
        return (
            f"its sshd rejects {who} (it offers {left}): add the public key to the user's "
            "authorized_keys there, and check that the user may log in"
        )


def _shown(names: Sequence[bytes]) -> str:
    """Return a peer's list of names, fit for a message."""
    text = b",".join(names)[: 2 * PEER_TEXT_LIMIT].decode("ascii", "replace")
    return quoted(text, PEER_TEXT_LIMIT) if text else ""
