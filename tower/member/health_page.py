"""The agent's health page: liveness, whether the tunnel is up, and whether the member is usable."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IListeningPort, IReactorTCP
from twisted.web.http import Request
from twisted.web.resource import Resource
from twisted.web.server import Site

from tower.kube.member_cures import is_warning
from tower.kube.member_status import Check
from tower.member.member_health import MemberHealth
from tower.member.policy.owner_enforcement import OwnerEnforcement
from tower.member.reconnecting import Reconnecting


class HealthPage(Resource):
    """The answers to probes, in the form of kube-apiserver's.

    `/healthz` is 200 while the process runs.  `/readyz` is 200 while the tunnel is up, the member is
    usable, and the owner's policy, if there is one, has been read, else 503 with the first reason; with
    ``?verbose`` it has a line for each check.  `/readyz/NAME` is one check.
    """

    isLeaf = True

    def __init__(
        self, uplink: Reconnecting, health: MemberHealth, owner: OwnerEnforcement | None = None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._uplink = uplink
        self._health = health
        self._owner = owner

    def render_GET(self, request: Any) -> bytes:
        """Answer GET and HEAD."""
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.setHeader(b"cache-control", b"no-store")
        if request.path == b"/healthz":
            return b"ok\n"
        if request.path == b"/readyz":
            problem, text = self._verbose() if is_verbose(request) else self._brief()
            return _answer(request, problem, text)
        for name, problem, note in self._checks():
            if request.path == b"/readyz/" + name.encode():
                return _answer(request, problem, f"not ready: {problem}" if problem else note)
        request.setResponseCode(404)
        return b"not found: the paths are /healthz, /readyz and /readyz/CHECK\n"

    def _brief(self) -> tuple[str, str]:
        problem = next((problem for _, problem, _ in self._checks() if problem), "")
        lines = [f"not ready: {problem}"] if problem else ["ok"]
        warnings = list(self._health.warnings)
        if self._owner is not None and not self._owner.failure and self._owner.problem:
            warnings.append(self._owner.problem)
        return problem, "\n".join([*lines, *(f"warning: {text}" for text in warnings)])

    def _verbose(self) -> tuple[str, str]:
        checks = list(self._checks())
        lines = [
            f"[-]{name} failed: {problem}" if problem else f"[+]{name} {note}"
            for name, problem, note in checks
        ]
        failed = next((problem for _, problem, _ in checks if problem), "")
        return failed, "\n".join([*lines, f"readyz check {'failed' if failed else 'passed'}"])

    def _checks(self) -> Iterator[tuple[str, str, str]]:
        """Return the name, the problem and, without a problem, the result of each check."""
        ready = self._uplink.ready
        yield "tunnel", "" if ready else self._uplink.state, "ok"
        for name, check in self._health.checks:
            if self._health.status is None:
                yield name, self._health.problem, ""
            elif check.status == "False":
                yield name, check.text, ""
            else:
                yield name, "", _result(check)
        if self._owner is not None:
            problem = self._owner.problem
            yield "policy", self._owner.failure, f"ok, warning: {problem}" if problem else "ok"


def _result(check: Check) -> str:
    """Return the result of a check that did not fail."""
    if check.status == "Unknown":
        return f"unknown {check.text}".strip()
    return f"ok, warning: {check.text}" if is_warning(check) else "ok"


def is_verbose(request: Any) -> bool:
    """Return whether the query has ``verbose``, with or without a value, which Twisted requires."""
    query: bytes = request.uri.partition(b"?")[2]
    return any(pair.partition(b"=")[0] == b"verbose" for pair in query.split(b"&"))


def _answer(request: Any, problem: str, text: str) -> bytes:
    if problem:
        request.setResponseCode(503)
    return f"{text}\n".encode()


class _QuietSite(Site):
    """A site without an access log: kubelets probe every few seconds."""

    noisy = False

    def log(self, request: Request) -> None:
        """No-op."""


class HealthService(Service):
    """The server of a health page, which listens from its construction on; timeout of requests: 10 s.

    :raise twisted.internet.error.CannotListenError: the port is in use or cannot be bound.
    """

    def __init__(self, reactor: IReactorTCP, host: str, port: int, page: Resource) -> None:
        site: Any = _QuietSite(page, timeout=10)  # type: ignore[no-untyped-call]
        self._port: IListeningPort = reactor.listenTCP(port, site, interface=host)

    def stopService(self) -> Deferred[None]:
        """Stop listening."""
        super().stopService()  # type: ignore[no-untyped-call]
        return maybeDeferred(self._port.stopListening).addCallback(lambda _: None)
