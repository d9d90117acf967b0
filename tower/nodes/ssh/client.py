# mypy: untyped-calls-exclude=twisted
"""SSH client for nodes: works with any server of RFC 4253, mostly OpenSSH."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from attrs import frozen
from twisted.conch.ssh.transport import DISCONNECT_BY_APPLICATION
from twisted.internet.defer import CancelledError, Deferred
from twisted.python.failure import Failure

from tower.clusters.node import Node
from tower.conch.connection.client import Client
from tower.conch.connection.global_requests import Answer
from tower.conch.connection.keepalive import KEEPALIVE
from tower.conch.transport.fields import MessageReader
from tower.conch.transport.handshake_buffer import HandshakeBuffer
from tower.conch.transport.kex import PLACEHOLDER_MACS
from tower.conch.transport.limits import Closed, HandshakeTimeout, TransportLimits
from tower.conch.transport.signatures import verify
from tower.errors import PeerError
from tower.escaping import VERSION_LIMIT, escaped, quoted, shortened
from tower.net.connecting import ConnectFailed, connect
from tower.nodes.ssh.auth import SERVER_SIG_ALGS, KeyAuth, read_extensions
from tower.nodes.ssh.client_key import ClientKey
from tower.nodes.ssh.failures import PREFACE, login_failed
from tower.nodes.ssh.host_keys import HostKeyRefused, HostKeys
from tower.reactor.interfaces import ISocketReactor
from tower.reactor.timers import Clock, within

#: Time limit for handshake and login, once the TCP connection is up, s.
HANDSHAKE = 30.0

#: Time limit for the TCP connection to a node, s: longer than a kernel tries.
CONNECT = 150.0

#: How much longer than our own time limit that of `connect` is, s.
_LONGER = 5.0

#: Interval between probes of a node, s.  A request to a node that just froze waits up to three of these.
KEEPALIVE_INTERVAL = 5.0

_EXT_INFO_C = b"ext-info-c"
_MSG_EXT_INFO = 7

#: Our ciphers use no MAC, but the lists must have a name in common: so all names that servers have.
_MACS = [
    *PLACEHOLDER_MACS,
    b"hmac-sha1-etm@openssh.com",
    *(b"umac-%d%b@openssh.com" % (size, mode) for size in (128, 64) for mode in (b"-etm", b"")),
]

#: Most characters of a server's list of names in a message: OpenSSH's default lists fit.
_LISTED = 512


class NothingInCommon(PeerError):
    """A node's SSH server supports no algorithm that we support."""

    for_peer = "nothing in common"


class NodeLeft(Closed):
    """We closed the connection; the node is not sent the reason."""

    for_peer = "closed"


@frozen
class NodePeer:
    """The server of a `NodeTransport`.

    :ivar host_key: in SSH's wire format.
    :ivar version: its version line.
    """

    host_key: bytes
    version: str


class NodeTransport(Client):
    """The client's end of one connection.

    :param host_keys: verifies the node's key.
    :param keepalive: interval between probes of the node, s; 0: none.
    :ivar ready: fires with a `NodePeer` after the login, or fails with the reason why there is none.
    """

    __slots__ = ("_asked_at", "_host_keys", "_node", "_preface", "_signatures", "ready")

    answers: ClassVar[Mapping[bytes, Answer]] = {KEEPALIVE: Client.answers[KEEPALIVE]}
    supportedMACs = _MACS

    def __init__(
        self,
        clock: Clock,
        node: Node,
        user: str,
        key: ClientKey,
        host_keys: HostKeys,
        *,
        keepalive: float = KEEPALIVE_INTERVAL,
        limits: TransportLimits | None = None,
    ) -> None:
        super().__init__(clock, keepalive, limits or TransportLimits(handshake=HANDSHAKE))
        self.ready: Deferred[NodePeer] = Deferred()
        self._node = node
        self._host_keys = host_keys
        self._signatures: Sequence[bytes] | None = None
        self._preface = b""
        self._asked_at = 0.0
        self.supportedPublicKeys = host_keys.algorithms(node)
        self.auth = KeyAuth(user, key, lambda: self._signatures, self._accepted)

    @property
    def peer(self) -> str:
        """See `SecureTransport.peer`."""
        return "its sshd"

    # Negotiation

    def take_version(self, buffer: HandshakeBuffer) -> bool:
        """Keep the first line before the version: it may be all that a server sends."""
        if b"\n" not in self._preface.lstrip() and len(self._preface) < PREFACE:
            self._preface = buffer.beginning(PREFACE)
        return super().take_version(buffer)

    def markers(self) -> tuple[bytes, ...]:
        """Also request the server's extensions (RFC 8308 section 2.1)."""
        return (*super().markers(), _EXT_INFO_C)

    def check_kexinit(self, packet: bytes) -> None:
        """Check that there is a common algorithm of each kind; Conch's own error would not name them.

        :raise NothingInCommon: with the server's list, and the cure.
        """
        super().check_kexinit(packet)
        fields = MessageReader(packet)
        fields.skip(16)
        theirs = [fields.names() for _ in range(8)]
        _check("key exchanges", "KexAlgorithms", self.supportedKeyExchanges, theirs[0])
        _check("host keys", "HostKeyAlgorithms", self.supportedPublicKeys, theirs[1])
        for ciphers in theirs[2:4]:
            _check("ciphers", "Ciphers", self.supportedCiphers, ciphers)
        for macs in theirs[4:6]:
            _check("MACs", "MACs", self.supportedMACs, macs)
        for compressions in theirs[6:8]:
            _check("compressions", "Compression", self.supportedCompressions, compressions)

    def host_key_error(self, host_key: bytes) -> PeerError | None:
        """See `Client.host_key_error`; later key exchanges must use the same key."""
        if self.host_key is None:
            try:
                self._host_keys.judge(self._node, host_key)
            except HostKeyRefused as refused:
                return refused
        return None

    def verify_signature(self, host_key: bytes, signature: bytes, exchange_hash: bytes) -> bool:
        """See `Client.verify_signature`; with the negotiated signature algorithm."""
        return verify(self.keyAlg, host_key, signature, exchange_hash)

    def dispatchMessage(self, messageNum: int, payload: bytes) -> None:
        """Handle the server's extensions, sent after its first keys and possibly once more."""
        if messageNum != _MSG_EXT_INFO:
            super().dispatchMessage(messageNum, payload)
            return
        accepted = read_extensions(payload).get(SERVER_SIG_ALGS)
        if accepted is not None:
            self._signatures = accepted.split(b",")

    # Login

    def secured(self) -> None:
        """See `Client.secured`."""
        self._asked_at = self.clock.seconds()
        super().secured()

    def _accepted(self) -> None:
        assert self.host_key is not None
        self._host_keys.accepted(self._node, self.host_key)
        self.go_on()
        version = shortened(escaped(self.otherVersionString.decode("ascii", "replace")), VERSION_LIMIT)
        self.ready.callback(NodePeer(self.host_key, version))

    def go_on(self) -> None:
        """Start channels and probes after the login; subclasses may override this."""
        self.start_connection()
        self.start_keepalives(self._asked_at)

    def close(self, text: str) -> None:
        """Close after the queued data is sent; *text* is for our own log."""
        self.fail(NodeLeft(text), DISCONNECT_BY_APPLICATION)

    def _handshake_timed_out(self) -> None:
        self.fail(HandshakeTimeout(f"i/o timeout: no SSH session within {self.limits.handshake:g} s"))

    def drain(self) -> None:
        """No-op: the drain request is Tower's own."""

    def ended(self, reason: Exception) -> None:
        """Report that the login failed."""
        super().ended(reason)
        if not self.ready.called:
            self.ready.errback(Failure(login_failed(reason, self._preface, is_ssh=self.gotVersion)))


#: Connects to a host and a port; the connection is paused.
Dial = Callable[[str, int], Deferred[Any]]


def tcp_dialer(reactor: ISocketReactor, seconds: float) -> Dial:
    """Return a dialer that uses *reactor*; see `tower.net.connecting.connect`."""
    return partial(connect, reactor, timeout=seconds + _LONGER)


def dial_node(clock: Clock, node: Node, dial: Dial, seconds: float) -> Deferred[Any]:
    """Connect to *node* within so many seconds; fail with `ConnectFailed`."""

    def late() -> ConnectFailed:
        text = f"dial tcp {node.address}: i/o timeout: no answer within {seconds:g} s"
        return ConnectFailed("timeout", text)

    return within(clock, seconds, dial(node.host, node.port), late)


def authenticated(ssh: NodeTransport, abort: Callable[[], None]) -> Deferred[NodePeer]:
    """Return a Deferred for the login of *ssh*; cancelling it ends the connection with *abort*."""

    def cancel(opened: Deferred[NodePeer]) -> None:
        opened.errback(CancelledError())
        abort()

    def failed(failure: Failure) -> None:
        if not opened.called:
            opened.errback(failure)

    opened: Deferred[NodePeer] = Deferred(cancel)
    ssh.ready.addCallback(opened.callback).addErrback(failed)
    return opened


def _check(what: str, option: str, ours: Collection[bytes], theirs: Sequence[bytes]) -> None:
    if not any(name in theirs for name in ours):
        raise NothingInCommon(
            f"no {what} in common: its SSH server offers {_listed(theirs)}; we support {_listed(ours)}: add "
            f"one of these to {option} in its sshd_config"
        )


def _listed(names: Collection[bytes]) -> str:
    text = b",".join(names)[: 2 * _LISTED].decode("ascii", "replace")
    return quoted(text, _LISTED) if text else "none"
