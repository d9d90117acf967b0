"""A server with TLS and many faults: an identity provider, a webhook, or an API server that reviews."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from tests.fakes.certificates import DAY, authority
from tests.integration.programs import LOOPBACK
from tests.integration.threaded import ThreadedServer

#: Returns the answer, as JSON, to a method, a path and a body.
Truth: TypeAlias = "Callable[[str, str, bytes], Any]"

#: Longest time that it keeps a connection, s.
PATIENCE = 20.0

_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def _whole(body: bytes, head: bytes = _OK) -> bytes:
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _drops(_: FaultyPeer) -> Iterator[bytes]:
    yield _OK + b"Content-Length: 500\r\n\r\n{"


def _freezes(peer: FaultyPeer) -> Iterator[bytes]:
    peer.wait()
    yield b""


def _drips(peer: FaultyPeer) -> Iterator[bytes]:
    yield _OK + b"Content-Length: 1000\r\n\r\n"
    while not peer.pause(0.05):
        yield b" "


def _drips_head(peer: FaultyPeer) -> Iterator[bytes]:
    yield _OK + b"X-Long: "
    while not peer.pause(0.05):
        yield b"a"


def _overflows(peer: FaultyPeer) -> Iterator[bytes]:
    yield _OK + b"Transfer-Encoding: chunked\r\n\r\n"
    while not peer.pause(0):
        yield b"10000\r\n" + b" " * 0x10000 + b"\r\n"


def _overflows_head(peer: FaultyPeer) -> Iterator[bytes]:
    yield _OK
    while not peer.pause(0):
        yield b"X-More: " + b"a" * 8000 + b"\r\n"


def _says(*answers: bytes) -> Callable[[FaultyPeer], Iterator[bytes]]:
    def say(_: FaultyPeer) -> Iterator[bytes]:
        yield from answers

    return say


def _redirects(peer: FaultyPeer) -> Iterator[bytes]:
    peer.redirected = True
    yield _whole(b"", b"HTTP/1.1 307 Go\r\nLocation: https://%b:%d/good\r\n" % (LOOPBACK.encode(), peer.port))


#: Faults after the handshake.
ANSWERS: dict[str, Callable[[FaultyPeer], Iterator[bytes]]] = {
    "drops the connection": _drops,
    "freezes": _freezes,
    "sends a byte now and then": _drips,
    "sends a byte of the head now and then": _drips_head,
    "sends without end": _overflows,
    "sends a head without end": _overflows_head,
    "redirects": _redirects,
    "does not speak HTTP": _says(b"SSH-2.0-OpenSSH_9.6\r\n" * 5),
    "sends HTML, not JSON": _says(_whole(b"<html>Log in to the wireless network</html>")),
    "sends half of a JSON": _says(_whole(b'{"status": {"allowed": true, "authenticated": true')),
    "sends JSON of another type": _says(_whole(b'[{"allowed": true}, "authenticated"]')),
    "sends other types in JSON": _says(
        _whole(b'{"status": {"allowed": "yes", "authenticated": 1}, "keys": 7}')
    ),
    "sends deep JSON": _says(_whole(b"[" * 100_000)),
    "sends an empty object": _says(_whole(b"{}")),
    "sends two lengths": _says(_OK + b"Content-Length: 2\r\nContent-Length: 900\r\n\r\n{}"),
    "fails": _says(_whole(b"{}", b"HTTP/1.1 500 No\r\n")),
    "is overloaded": _says(_whole(b"{}", b"HTTP/1.1 429 No\r\nRetry-After: 1e9\r\n")),
    "does not know Tower": _says(_whole(b"{}", b"HTTP/1.1 401 No\r\n")),
}

#: Faults of the handshake.
HANDSHAKES = ("is killed", "freezes in the handshake", "has another name", "has another CA", "has expired")


class FaultyPeer(ThreadedServer):
    """The server.

    :ivar fault: the current one, see `use`; empty: it answers with *truth*.
    :ivar redirected: it has sent a redirect; `followed`: a client followed it.
    :ivar ca: the file with its CA.
    :ivar connections: that are open and secure.
    """

    def __init__(self, folder: Path, truth: Truth) -> None:
        self.fault = ""
        self.redirected = self.followed = False
        self.connections: set[ssl.SSLSocket] = set()
        self._truth, self._folder = truth, folder
        self._closed = False
        self.ca = folder / "peer.ca"
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.rotate()
        super().__init__()
        self.kubeconfig = folder / "peer.kubeconfig"
        self._write_kubeconfig()

    def rotate(self) -> None:
        """Use a new CA and certificate; `ca` has the CA."""
        now = time.time()
        own, other = authority("peer", now=now), authority("peer", now=now)
        self.ca.write_bytes(own.pem)
        for fault, issued in (
            ("", own.server_certificate([LOOPBACK], DAY, now)),
            ("has another name", own.server_certificate(["peer.example"], DAY, now)),
            ("has another CA", other.server_certificate([LOOPBACK], DAY, now)),
            ("has expired", own.server_certificate([LOOPBACK], DAY, now - 3 * DAY)),
        ):
            certificate, key = self._folder / "peer.crt", self._folder / "peer.key"
            certificate.write_bytes(issued.certificate_pem)
            key.write_bytes(issued.key_pem)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            self._contexts[fault] = context
        if hasattr(self, "kubeconfig"):
            self._write_kubeconfig()

    @property
    def url(self) -> str:
        """Its URL."""
        return f"https://{LOOPBACK}:{self.port}"

    def close(self) -> None:
        """End."""
        self._closed = True
        super().close()

    def use(self, fault: str) -> None:
        """Fail like this from now on, or not; open connections end."""
        self.fault = fault
        for each in self.connections.copy():
            with contextlib.suppress(OSError):  # it has ended
                socket.socket.shutdown(each, socket.SHUT_RDWR)

    def pause(self, seconds: float) -> bool:
        """Wait; return whether the fault is over."""
        time.sleep(seconds)
        return self._closed or not self.fault

    def wait(self) -> None:
        """Wait until the fault is over."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not self.pause(0.05):
            pass

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(OSError, ValueError):
            connection.settimeout(PATIENCE)
            if self.fault == "is killed":
                return
            if self.fault == "freezes in the handshake":
                self.wait()
                return
            context = self._contexts.get(self.fault, self._contexts[""])
            with context.wrap_socket(connection, server_side=True) as secure:
                self.connections.add(secure)
                try:
                    while self._serve_one(secure):
                        pass
                finally:
                    self.connections.discard(secure)

    def _serve_one(self, secure: ssl.SSLSocket) -> bool:
        got = b""
        while b"\r\n\r\n" not in got:
            data = secure.recv(65_536)
            if not data:
                return False
            got += data
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        fields = {name.lower(): value for name, _, value in (each.partition(": ") for each in lines[1:])}
        while len(body) < int(fields.get("content-length", "0")):
            body += secure.recv(65_536)
        method, path, _ = lines[0].split(" ")
        answer = ANSWERS.get(self.fault)
        if path == "/good":
            self.followed, answer = True, None
        if answer is not None:
            for piece in answer(self):
                secure.sendall(piece)
            return False
        secure.sendall(_whole(json.dumps(self._truth(method, path, body)).encode()))
        return True

    def _write_kubeconfig(self) -> None:
        cluster = {
            "server": self.url,
            "certificate-authority-data": base64.b64encode(self.ca.read_bytes()).decode(),
        }
        value = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "peer", "cluster": cluster}],
            "users": [{"name": "tower", "user": {"token": "for-the-peer"}}],
            "contexts": [{"name": "peer", "context": {"cluster": "peer", "user": "tower"}}],
            "current-context": "peer",
        }
        self.kubeconfig.write_text(json.dumps(value))
