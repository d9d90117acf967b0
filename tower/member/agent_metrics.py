"""The agent's metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attrs import define
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from twisted.application.service import Service

from tower import __version__
from tower.kube.member_status import ConditionStatus, MemberStatus
from tower.member.policy.owner_enforcement import OwnerEnforcement
from tower.member.reconnecting import Reconnecting
from tower.member.stream_tally import StreamTally
from tower.metrics.families import counter, counters, gauge, gauges, histogram
from tower.metrics.loop_lag import LoopLag
from tower.metrics.page import MetricsPage, registry_of
from tower.metrics.port import MetricsPort
from tower.metrics.process import ProcessInfo
from tower.net.budget import Budget
from tower.reactor.interfaces import IReactor


@define(eq=False, kw_only=True)
class AgentCollector(Collector):
    """Collects the agent's metrics.

    :param status: returns the state of the API server; None: not checked yet.
    :param is_disabled: returns whether the proxy rejects the agent because its cluster is disabled.
    :param refused_heads: returns the number of requests that were not in the proxy's form, or claimed a
        system identity.
    :param owner: the owner's policy; None: there is none.
    """

    _uplink: Reconnecting
    _tally: StreamTally
    _budget: Budget
    _status: Callable[[], MemberStatus | None]
    _is_disabled: Callable[[], bool]
    _refused_heads: Callable[[], int]
    _owner: OwnerEnforcement | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._tunnel()
        status = self._status()
        if status is not None:
            yield from self._member(status)
        yield from self._streams()
        yield from self._dials()
        if self._owner is not None:
            text = "Whether the current policy of the cluster's owner is in use."
            yield gauge("tower_agent_policy_current", text, not (self._owner.problem or self._owner.failure))
        text = "Memory lent to streams for data that waits; its limit is --buffer-budget."
        yield gauge("tower_buffer_bytes", text, self._budget.lent)
        yield gauge("tower_buffer_limit_bytes", "Value of --buffer-budget.", self._budget.capacity)

    def _tunnel(self) -> Iterator[Metric]:
        uplink = self._uplink
        yield gauge("tower_agent_connected", "Whether a tunnel to the proxy accepts streams.", uplink.ready)
        text = "Whether the proxy rejects the agent because its cluster is disabled."
        yield gauge("tower_agent_cluster_disabled", text, self._is_disabled())
        text = "Attempts to reconnect, by the end of the previous tunnel or attempt."
        yield counters("tower_agent_reconnects_total", text, "reason", uplink.reconnects)
        if uplink.round_trip:
            yield gauge("tower_agent_rtt_seconds", "Round trip to the proxy.", uplink.round_trip)

    def _member(self, status: MemberStatus) -> Iterator[Metric]:
        text = "Whether the API server answers; no sample while this is unknown."
        yield from _known("tower_agent_apiserver_reachable", text, status.api_server.status)
        text = "Whether the agent may impersonate users and groups; no sample while this is unknown."
        yield from _known("tower_agent_impersonation_allowed", text, status.impersonation.status)
        if status.credential_expires is not None:
            text = "Expiry of the credential for the API server; no sample if it is unknown."
            expires = status.credential_expires
            yield gauge("tower_agent_credential_expiry_timestamp_seconds", text, expires)

    def _streams(self) -> Iterator[Metric]:
        tally = self._tally
        totals, labels = tally.traffic.totals(), tally.traffic.labels()
        numbers = {target: float(labels[target]) for target in tally.dials}
        text = "Open streams, idle ones included."
        yield gauges("tower_agent_streams", text, "target", numbers)
        text = "Bytes of all streams, without the tunnel's own protocol."
        moved = {"to_member": float(totals.received), "from_member": float(totals.sent)}
        yield counters("tower_agent_stream_bytes_total", text, "direction", moved)
        text = "Time that data waited because its receiver did not read, of all streams together."
        yield counter("tower_agent_stream_stall_seconds_total", text, totals.stalled)

    def _dials(self) -> Iterator[Metric]:
        tally = self._tally
        for target, dials in tally.dials.items():
            text = "Time to connect to a target, with TLS for the API server."
            yield histogram("tower_agent_dial_seconds", text, dials.times, target=target)
        for target, dials in tally.dials.items():
            text = "Failed connections to a target."
            yield counters("tower_agent_dial_failures_total", text, "reason", dials.failures, target=target)
        text = "Streams and requests that the owner does not allow, or that exceed a limit of the agent."
        refusals = {**tally.refusals, "request-policy": float(self._refused_heads())}
        if self._owner is not None:
            refusals["owner-policy"] = float(self._owner.gate.refused)
        yield counters("tower_agent_refusals_total", text, "reason", refusals)


def agent_registry(*collectors: Collector) -> CollectorRegistry:
    """Return the registry of all metrics of the agent: *collectors* and the process."""
    return registry_of(ProcessInfo("agent", __version__), *collectors)


def metrics_services(reactor: IReactor, collector: AgentCollector, host: str, port: int) -> list[Service]:
    """Return the services of ``--metrics-port``, which listens at once.

    :raise twisted.internet.error.CannotListenError: the port is in use or cannot be bound.
    """
    lag = LoopLag(reactor)
    served = MetricsPort(reactor, MetricsPage(reactor, agent_registry(collector, lag)), host, port)
    served.listen()
    return [lag, served]


def _known(name: str, text: str, status: ConditionStatus) -> Iterator[Metric]:
    if status != "Unknown":
        yield gauge(name, text, status == "True")
