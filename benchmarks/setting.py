"""The environment that all systems share (folder, backend, CA), and the description of a system."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from benchmarks.processes import LOOPBACK, Process, Watched, build, free_port, listens
from tower.trust.pki import self_signed

#: Bearer token for the backend, which accepts any.
TOKEN = "the-backend-takes-any-token"


@dataclass
class System:
    """One path to a backend.

    :ivar ways: arguments of the load generator, by kind: ``stream``, ``http``, ``https``, ``port``.
    :ivar parts: programs whose CPU is measured: ``proxy``, ``agent`` next to the backend, and ``server``, a
        real API server as the backend.
    """

    name: str
    ways: dict[str, list[str]]
    parts: dict[str, Watched] = field(default_factory=dict)


@dataclass(frozen=True)
class Upstream:
    """The API server of an agent.

    :ivar port: loopback port with TLS.
    :ivar authority: file with its CA certificate.
    :ivar token: the agent's bearer token.
    """

    port: int
    authority: Path
    token: str


class Ground:
    """The environment in which systems are started.

    :param folder: an empty directory, for output and files of the programs.
    :param stack: stops the programs.
    :ivar load: path of the load generator.
    :ivar peer: path of ``gopeer`` with the newest libraries.
    :ivar authority: file with the CA certificate of the backend.
    :ivar stream: port of the backend for raw streams.
    :ivar http: port of the backend for HTTP.
    :ivar backend: the backend with TLS.
    """

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.stack = stack
        self.load = build("benchmarks/load")
        self.peer = build("tests/integration/gopeer", "-modfile=latest.mod")
        self.authority = self._certify()
        self.stream, self.http = free_port(), free_port()
        self.backend = Upstream(free_port(), self.authority, TOKEN)
        ports = (self.stream, self.http, self.backend.port)
        backend = self.start(
            "backend",
            str(self.load),
            "backend",
            *(
                f"-{kind}={LOOPBACK}:{port}"
                for kind, port in zip(("stream", "http", "https"), ports, strict=True)
            ),
            *self.pair("-cert=", "-key="),
        )
        backend.wait_until(lambda: all(map(listens, ports)), "its ports")

    @cached_property
    def deployed(self) -> Path:
        """Path of ``gopeer`` with the libraries of deployed agents and proxies."""
        return build("tests/integration/gopeer")

    def start(self, name: str, *argv: str, extra: dict[str, str] | None = None) -> Process:
        """Start a program that is stopped with all others."""
        process = Process(name, argv, self.folder, extra)
        self.stack.callback(process.stop)
        return process

    def write(self, name: str, content: bytes) -> Path:
        """Write a private file."""
        path = self.folder / name
        path.touch(0o600)
        path.write_bytes(content)
        return path

    def pair(self, certificate: str, key: str) -> list[str]:
        """Return arguments for the backend's certificate and key, with these prefixes."""
        return [f"{certificate}{self.folder / 'server.crt'}", f"{key}{self.folder / 'server.key'}"]

    def _certify(self) -> Path:
        """Create a CA and a certificate for the backend and the peers' user ports; ECDSA P-256."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmarks")])
        authority = self_signed(name, 86400.0, time.time())
        issued = authority.server_certificate([LOOPBACK, "localhost"], 86400.0, time.time())
        self.write("server.crt", issued.certificate_pem)
        self.write("server.key", issued.key_pem)
        return self.write("ca.crt", authority.pem)


def stream_way(port: int) -> dict[str, list[str]]:
    """Return load generator arguments for raw streams on a loopback port."""
    return {"stream": [f"-address={LOOPBACK}:{port}"]}


def http_way(port: int) -> dict[str, list[str]]:
    """Return load generator arguments for HTTP on a loopback port."""
    return {"http": [f"-url=http://{LOOPBACK}:{port}/"]}


def https_way(port: int, authority: Path) -> dict[str, list[str]]:
    """Return load generator arguments for HTTPS on a loopback port."""
    return {"https": [f"-url=https://{LOOPBACK}:{port}/", f"-ca={authority}"]}
