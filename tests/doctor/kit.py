"""A network in memory for the doctor's checks, and a test case that runs them."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from cryptography import x509
from twisted.internet import defer
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, NOW, authority
from tests.fakes.pipes import FakePipe
from tests.fakes.receivers import Recorder
from tower.doctor.findings import Finding
from tower.doctor.network import Glimpse
from tower.kube.client import APIError, APIResponse
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import ConnectFailed
from tower.net.proxy_environment import HTTPProxy, ServerURL
from tower.net.tls.ca_pinning import ChainUnknown
from tower.trust.pki import load_certificates

SERVING = authority("serving")


def chain_of(*names: str, lifetime: float = 90 * DAY, now: float = NOW) -> list[x509.Certificate]:
    """Return a serving certificate for *names* and its CA."""
    issued = SERVING.server_certificate(names, lifetime, now)
    return [*load_certificates(issued.certificate_pem), *SERVING.certificates]


class FakeNetwork:
    """See `tower.doctor.network.Network`.

    :ivar addresses: by host name; others do not resolve.
    :ivar failures: errors of connections, by host, or ``tls`` for those with TLS.
    :ivar certificates: of the server; empty: it has no TLS.
    :ivar http: answers to plain requests, by whether TLS is used.
    :ivar answers: status and object of API requests, by method and path; others have no answer.
    :ivar slow: paths of API requests without an answer in time.
    :ivar before: called with the path of each API request.
    :ivar asked: method, path, body and token of each API request.
    """

    def __init__(self) -> None:
        self.reactor = Clock()
        self.addresses: dict[str, list[str]] = {"tower.example": ["192.0.2.1"]}
        self.failures: dict[str, ConnectFailed] = {}
        self.certificates = chain_of("tower.example")
        self.http = {True: Glimpse(401, NOW, b"HTTP/"), False: Glimpse(0, None, b"")}
        self.answers: dict[tuple[str, str], tuple[int, Any]] = {}
        self.slow: set[str] = set()
        self.before: Callable[[str], None] = lambda _: None
        self.asked: list[tuple[str, str, Any, str | None]] = []

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses."""
        if host not in self.addresses:
            raise OSError("Name or service not known")
        return self.addresses[host]

    async def open(
        self,
        url: ServerURL,
        proxy: HTTPProxy | None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
    ) -> FakePipe:
        """Return a pipe, or fail."""
        for key in (url.host, *(["tls"] if tls is not None else [])):
            if key in self.failures:
                raise self.failures[key]
        pipe = FakePipe()
        pipe.receiver = Recorder()
        return pipe

    async def chain(self, url: ServerURL, proxy: HTTPProxy | None, name: str = "") -> list[x509.Certificate]:
        """Return the certificates."""
        if not self.certificates:
            raise ChainUnknown("the TLS handshake failed: wrong version number")
        return self.certificates

    async def glimpse(
        self, url: ServerURL, proxy: HTTPProxy | None, path: str, tls: ssl.SSLContext | None = None
    ) -> Glimpse:
        """Return the start of the answer."""
        return self.http[tls is not None]

    def client(self, access: KubeAccess, proxy: HTTPProxy | None) -> FakeTowerAPI:
        """Return the client of an API server in memory."""
        return FakeTowerAPI(self, access)


class FakeTowerAPI:
    """An `APIClient` whose answers *network* has."""

    def __init__(self, network: FakeNetwork, access: KubeAccess) -> None:
        self._network = network
        self._access = access

    async def request(self, method: str, path: str, body: bytes | None = None) -> APIResponse:
        """Return the answer."""
        network = self._network
        prefix = self._access.server.partition("://")[2].partition("/")[2]
        path = f"/{prefix}{path}" if prefix else path
        network.asked.append((method, path, body and json.loads(body), self._access.token))
        network.before(path)
        if path in network.slow:
            late = defer.TimeoutError("it took longer than 8 s")
            raise APIError(method, path, 0, str(late), late)
        if (method, path) not in network.answers:
            raise APIError(method, path, 0, "connection lost")
        code, value = network.answers[method, path]
        return APIResponse(code, (value if isinstance(value, str) else json.dumps(value)).encode())

    def close(self) -> None:
        """Do nothing."""


class DoctorTestCase(SynchronousTestCase):
    """Runs checks.

    :ivar network: of the checks.
    """

    def setUp(self) -> None:
        """Make a network in memory."""
        super().setUp()
        self.network: Any = FakeNetwork()

    def found(self, run: Coroutine[Any, Any, Iterable[Finding]]) -> dict[str, Finding]:
        """Return the findings of *run* by their check."""
        findings = list(self.successResultOf(Deferred.fromCoroutine(run)))
        by_check = {finding.check: finding for finding in findings}
        self.assertEqual(len(by_check), len(findings))
        return by_check

    def failed(self, findings: dict[str, Finding]) -> str:
        """Return the line of the only failure, which has a cure; all checks after it are skipped."""
        (line,) = (each.line for each in findings.values() if each.verdict.grade == "FAIL")
        self.assertIn(" -> ", line)
        return line

    def grades(self, findings: dict[str, Finding]) -> set[str]:
        """Return the grades that occur."""
        return {finding.verdict.grade for finding in findings.values()}
