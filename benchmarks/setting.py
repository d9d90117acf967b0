"""What all systems share: a folder, a backend, an authority; and what each of them is."""

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

#: The backend takes any.
TOKEN = "the-backend-takes-any-token"


@dataclass
class System:
    """One way to a backend.

    :ivar ways: what the load generator needs to use it, by kind: ``stream``, ``http``, ``https``, ``port``.
    :ivar parts: the programs whose CPU counts: ``proxy`` in the middle, ``agent`` beside the backend, and
        ``server``, the backend, if it is a real one.
    """

    name: str
    ways: dict[str, list[str]]
    parts: dict[str, Watched] = field(default_factory=dict)


@dataclass(frozen=True)
class Upstream:
    """What an agent reaches.

    :ivar port: of the loopback, with TLS.
    :ivar authority: file with its authority.
    :ivar token: what the agent authenticates with.
    """

    port: int
    authority: Path
    token: str


class Ground:
    """Where systems are built.

    :param folder: an empty directory; what is started says what it has to say there.
    :param stack: ends what was started.
    :ivar load: path of the load generator.
    :ivar peer: path of ``gopeer``, with the newest libraries.
    :ivar authority: file with the certificate that signed the backend's.
    :ivar stream: port of the backend for raw streams.
    :ivar http: port of the backend for HTTP.
    :ivar backend: the same with TLS.
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
        """Start a program that ends with everything else."""
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
        """Return arguments that name the backend's certificate and its key after these words."""
        return [f"{certificate}{self.folder / 'server.crt'}", f"{key}{self.folder / 'server.key'}"]

    def _certify(self) -> Path:
        """Make an authority, and a certificate that the backend and the peers' fronts share; ECDSA P-256."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmarks")])
        authority = self_signed(name, 86400.0, time.time())
        issued = authority.server_certificate([LOOPBACK, "localhost"], 86400.0, time.time())
        self.write("server.crt", issued.certificate_pem)
        self.write("server.key", issued.key_pem)
        return self.write("ca.crt", authority.pem)


def stream_way(port: int) -> dict[str, list[str]]:
    """Return the way to raw streams on a port of the loopback."""
    return {"stream": [f"-address={LOOPBACK}:{port}"]}


def http_way(port: int) -> dict[str, list[str]]:
    """Return the way to HTTP on a port of the loopback."""
    return {"http": [f"-url=http://{LOOPBACK}:{port}/"]}


def https_way(port: int, authority: Path) -> dict[str, list[str]]:
    """Return the way to HTTPS on a port of the loopback."""
    return {"https": [f"-url=https://{LOOPBACK}:{port}/", f"-ca={authority}"]}
