# mypy: untyped-calls-exclude=twisted
"""How a node lets us in: by public key (RFC 4252 section 7), with signatures that it knows (RFC 8332)."""

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
from tower.escaping import LONGEST_SAID, quoted
from tower.nodes.ssh.client_key import ClientKey

#: A server that takes extensions names the signatures that it knows in this one (RFC 8308 section 3.1).
SERVER_SIG_ALGS = b"server-sig-algs"

#: Extensions that are looked at in one message; servers send three or four.
_MOST_EXTENSIONS = 64


class AuthRefused(PeerError):
    """A node does not let us in."""

    for_peer = "not let in"


def read_extensions(body: bytes) -> dict[bytes, bytes]:
    """Return the extensions in an SSH_MSG_EXT_INFO without its type (RFC 8308 section 2.3).

    :raise Malformed: its fields do not fill it.
    :raise PeerError: there are too many.
    """
    fields = MessageReader(body)
    count = fields.number()
    if count > _MOST_EXTENSIONS:
        raise PeerError("too many extensions")
    extensions = {fields.string(): fields.string() for _ in range(count)}
    fields.end()
    return extensions


def signatures_for(key: ClientKey, taken: Sequence[bytes] | None) -> list[bytes]:
    """Return the signatures to make with *key*, one after the other until one is accepted.

    There is more than one for RSA keys alone, and more than one is needed: what OpenSSH says it takes is all
    that it knows, and what its configuration allows may be less.

    :param taken: what the server says it takes; None when it does not say.
    :raise AuthRefused: it takes none of *key*.
    """
    if taken is None:
        return [RSA_SHA2_256, RSA_SHA2_512] if key.kind == RSA else list(key.algorithms)
    usable = [algorithm for algorithm in key.algorithms if algorithm in taken]
    if not usable:
        raise AuthRefused(
            f"its sshd takes no signature of a key of type {key.kind.decode()}, only {_shown(taken)}: use a "
            "key of another type, or allow this one with PubkeyAcceptedAlgorithms in its sshd_config"
        )
    return usable


def publickey_request(session_id: bytes, user: str, key: ClientKey, algorithm: bytes) -> bytes:
    """Return the body (without the type) of a signed ``publickey`` request."""
    body = b"".join((NS(user.encode()), NS(CONNECTION), NS(PUBLICKEY), b"\1", NS(algorithm), NS(key.blob)))
    signed = b"%b%c%b" % (NS(session_id), MSG_USERAUTH_REQUEST, body)
    return body + NS(key.sign(algorithm, signed))


class KeyAuth(SSHService):
    """Has us let in by one key, which is offered signed: a round trip less than asking first.

    :param taken: returns what `signatures_for` wants to know, once the service is asked for.
    :param succeeded: called when the node has let us in.
    """

    name = USERAUTH

    def __init__(
        self,
        user: str,
        key: ClientKey,
        taken: Callable[[], Sequence[bytes] | None],
        succeeded: Callable[[], None],
    ) -> None:
        self._user = user
        self._key: ClientKey | None = key
        self._taken = taken
        self._succeeded = succeeded
        self._signatures: list[bytes] = []

    def serviceStarted(self) -> None:
        """Offer the key."""
        assert self._key is not None
        self._signatures = signatures_for(self._key, self._taken())
        self._offer(self._key)

    def _offer(self, key: ClientKey) -> None:
        assert self.transport is not None
        assert self.transport.sessionID is not None
        algorithm = self._signatures.pop(0)
        body = publickey_request(self.transport.sessionID, self._user, key, algorithm)
        self.transport.sendPacket(MSG_USERAUTH_REQUEST, body)

    def serviceStopped(self) -> None:
        """Forget the key and whom to tell."""
        self._key = self.transport = None
        self._succeeded = do_nothing
        self._taken = lambda: None

    def packetReceived(self, messageNum: int, packet: bytes) -> None:
        """Take the node's answer.

        :raise AuthRefused: it is no.
        """
        if messageNum == MSG_USERAUTH_SUCCESS:
            self._succeeded()
        elif messageNum == MSG_USERAUTH_FAILURE:
            fields = MessageReader(packet)
            methods, partly = fields.names(), fields.boolean()
            fields.end()
            self._refused(methods, partly=partly)
        elif messageNum != MSG_USERAUTH_BANNER:
            raise PeerError(f"message {messageNum} before authentication")

    def _refused(self, methods: Sequence[bytes], *, partly: bool) -> None:
        """Sign in another way, if there is one."""
        key = self._key
        assert key is not None
        if partly or PUBLICKEY not in methods or not self._signatures:
            raise AuthRefused(self._why(key, methods, partly=partly))
        self._offer(key)

    def _why(self, key: ClientKey, methods: Sequence[bytes], *, partly: bool) -> str:
        """Return why we are not let in, and the cure."""
        who = f"user {self._user} with the key {key.kind.decode()} {key.fingerprint}"
        left = _shown(methods) or "nothing"
        if partly:
            return (
                f"its sshd takes {who}, but then wants {left}, too: let this key alone do with "
                "AuthenticationMethods in its sshd_config"
            )
        if PUBLICKEY not in methods:
            return (
                f"its sshd takes no keys from {who}, only {left}: allow them with PubkeyAuthentication and "
                "AuthenticationMethods in its sshd_config"
            )
        return (
            f"its sshd does not let in {who} (it offers {left}): add the key's public line to the user's "
            "authorized_keys there, and check that the user may log in"
        )


def _shown(names: Sequence[bytes]) -> str:
    """Return a list of a peer's names for people."""
    text = b",".join(names)[: 2 * LONGEST_SAID].decode("ascii", "replace")
    return quoted(text, LONGEST_SAID) if text else ""
