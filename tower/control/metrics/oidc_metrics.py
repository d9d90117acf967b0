"""Metrics of the issuers of ID tokens; see `tower.web.access.authentication.oidc`."""

from __future__ import annotations

from collections.abc import Iterator

from attrs import frozen
from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.metrics.families import gauges
from tower.web.access.authentication.oidc.method import OIDCMethod


@frozen(eq=False)
class OIDCCollector(Collector):
    """Metrics of the issuers of a method."""

    _method: OIDCMethod

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        providers = self._method.providers
        text = "Keys in use of an issuer of ID tokens; 0: none yet, so the issuer's tokens are rejected."
        yield gauges(
            "tower_oidc_keys", text, "issuer", {each.issuer.url: len(each.keys or ()) for each in providers}
        )
        text = "1: the last attempt to get the keys of an issuer failed."
        failed = {each.issuer.url: float(bool(each.problem)) for each in providers}
        yield gauges("tower_oidc_fetch_failed", text, "issuer", failed)
