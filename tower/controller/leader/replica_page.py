"""The health page of a replica of the proxy: leader or standby, in the form of kube-apiserver's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from twisted.web.resource import Resource

from tower.member.health_page import is_verbose
from tower.metrics.page import MetricsPage
from tower.metrics.port import MetricsResource

_LIVE = (b"/livez", b"/healthz")


class Replica(Protocol):
    """Source of the page."""

    @property
    def problem(self) -> str:
        """Why this replica is not ready; empty: it is."""

    @property
    def warnings(self) -> Sequence[str]:
        """Problems of the host cluster with which this replica serves."""

    @property
    def role(self) -> str:
        """``leader: …`` or ``standby: …``, with details."""


class ReplicaPage(Resource):
    """The answers to probes.

    `/livez` and `/healthz` are 200 while the process runs.  `/readyz` is 200 for a leader that serves and
    for a standby that takes part in the election, else 503 with the reason.  With ``?verbose`` it names the
    role, and problems of the host cluster that do not keep users out, too.  `/metrics` has the metrics of the
    election and of the process.
    """

    isLeaf = True

    def __init__(self, replica: Replica, metrics: MetricsPage) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._replica, self._metrics = replica, MetricsResource(metrics)

    def render_GET(self, request: Any) -> Any:
        """Answer GET and HEAD."""
        if request.path == b"/metrics":
            return self._metrics.render(request)
        request.setHeader(b"content-type", b"text/plain; charset=utf-8")
        request.setHeader(b"cache-control", b"no-store")
        if request.path in _LIVE:
            return b"ok\n"
        if request.path != b"/readyz":
            request.setResponseCode(404)
            return b"not found: the paths are /livez, /healthz, /readyz and /metrics\n"
        problem = self._replica.problem
        if problem:
            request.setResponseCode(503)
        lines = (
            self._verbose(problem) if is_verbose(request) else [f"not ready: {problem}" if problem else "ok"]
        )
        return "".join(f"{line}\n" for line in lines).encode()

    def _verbose(self, problem: str) -> Iterator[str]:
        yield self._replica.role
        for text in self._replica.warnings:
            yield f"warning: {text}"
        if problem:
            yield f"[-]host-cluster failed: {problem}"
        yield f"readyz check {'failed' if problem else 'passed'}"
