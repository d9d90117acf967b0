"""Metrics of the audit, with kube-apiserver's names."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.metrics.families import counter, counters, gauge
from tower.web.access.audit.audit import Audit
from tower.web.access.audit.webhook_backend import WebhookBackend


class AuditCollector(Collector):
    """The counters of *audit*."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        audit = self._audit
        text = "Counter of audit events generated and sent to the audit backend."
        yield counter("apiserver_audit_event_total", text, audit.events)
        text = "Counter of audit events that failed to be audited properly."
        errors: dict[str, float] = {each.name: each.lost for each in audit.destinations}
        if any(each.limit for each in audit.destinations):
            errors["truncate"] = sum(each.oversized for each in audit.destinations)
        yield counters("apiserver_audit_error_total", text, "plugin", errors)
        text = "Counter of policy levels for audit events (1 per request)."
        yield counters("apiserver_audit_level_total", text, "level", dict(audit.levels))
        text = "Counter of requests rejected due to an error in audit logging backend."
        yield counter("apiserver_audit_requests_rejected_total", text, audit.rejected)
        for each in audit.destinations:
            if isinstance(each.backend, WebhookBackend):
                text = "Audit events that wait for the webhook."
                yield gauge("tower_audit_webhook_waiting_events", text, each.backend.waiting)
