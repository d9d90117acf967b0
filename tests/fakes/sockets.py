"""Connections on socket pairs, driven turn by turn: no network, no time but a `Clock`'s."""

from __future__ import annotations

import datetime
import select
import socket
import ssl
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from twisted.internet.task import Clock
from zope.interface import implementer

from tower.reactor.interfaces import ISocketReactor

#: The name in the certificate of `server_context`.
HOST = "tower.example"


@implementer(ISocketReactor)
class SocketReactor(Clock):
    """Calls descriptors whose socket is ready, each once a turn.

    :ivar readers: descriptors that wait for bytes.
    :ivar writers: descriptors that wait for room.
    :ivar turns: turns in which a descriptor or a timer was called.
    """

    nameResolver: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Any] = []
        self.writers: list[Any] = []
        self.turns = 0

    def addReader(self, reader: Any) -> None:
        """See IReactorFDSet."""
        if reader not in self.readers:
            self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        """See IReactorFDSet."""
        if reader in self.readers:
            self.readers.remove(reader)

    def addWriter(self, writer: Any) -> None:
        """See IReactorFDSet."""
        if writer not in self.writers:
            self.writers.append(writer)

    def removeWriter(self, writer: Any) -> None:
        """See IReactorFDSet."""
        if writer in self.writers:
            self.writers.remove(writer)

    def removeAll(self) -> list[Any]:
        """See IReactorFDSet."""
        removed = [*self.readers, *self.writers]
        self.readers, self.writers = [], []
        return removed

    def getReaders(self) -> list[Any]:
        """See IReactorFDSet."""
        return self.readers

    def getWriters(self) -> list[Any]:
        """See IReactorFDSet."""
        return self.writers

    def run_once(self) -> bool:
        """Call every descriptor and timer that is ready; return whether there was one."""
        readable, writable, _ = select.select(self.readers, self.writers, [], 0)
        for reader in readable:
            if reader in self.readers:
                reader.doRead()
        for writer in writable:
            if writer in self.writers:
                writer.doWrite()
        due = any(call.getTime() <= self.seconds() for call in self.getDelayedCalls())
        self.advance(0)
        busy = bool(readable or writable or due)
        self.turns += busy
        return busy

    def run(self, meanwhile: Callable[[], bool] = lambda: False, *, limit: int = 20_000) -> None:
        """Run until nothing is ready; *meanwhile* plays a peer and returns whether it did something."""
        for _ in range(limit):
            busy = self.run_once()
            if not (meanwhile() or busy):
                return
        raise AssertionError(f"still busy after {limit} turns: {self.readers} {self.writers}")


def socket_pair(send_buffer: int | None = None) -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that do not block."""
    near, far = socket.socketpair()
    for end in (near, far):
        end.setblocking(False)
        if send_buffer is not None:
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    return near, far


def take(sock: socket.socket, size: int = 1 << 20) -> bytes | None:
    """Return what is there to read; b"" at the end, None if nothing is there now."""
    try:
        return sock.recv(size)
    except BlockingIOError:
        return None


@cache
def _certificate() -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    begin = datetime.datetime(2020, 1, 1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin.replace(year=2070))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return private + certificate.public_bytes(Encoding.PEM)


def _load(context: ssl.SSLContext, *, trusting: bool = True) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(_certificate())
        file.flush()
        context.load_cert_chain(file.name)
        if trusting:
            context.load_verify_locations(file.name)


@cache
def server_context(
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, *, trusting: bool = True
) -> ssl.SSLContext:
    """Return the context of a server named `HOST` that requests a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load(context, trusting=trusting)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.minimum_version = context.maximum_version = version
    return context


@cache
def client_context(*, trusting: bool = True, showing: bool = False) -> ssl.SSLContext:
    """Return the context of a client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if showing:
        _load(context)
    elif trusting:
        with tempfile.NamedTemporaryFile() as file:
            file.write(_certificate())
            file.flush()
            context.load_verify_locations(file.name)
    return context
