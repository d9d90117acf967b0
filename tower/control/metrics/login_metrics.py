"""Metrics of login sessions; see `tower.web.access.authentication.login`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.clusters.login.login_sessions import LoginSessions
from tower.metrics.families import counters, gauge
from tower.web.access.authentication.login.confirmer import Confirmer


class LoginCollector(Collector):
    """Metrics of *sessions*, which *confirmer* confirms."""

    def __init__(self, sessions: LoginSessions, confirmer: Confirmer) -> None:
        self._sessions, self._confirmer = sessions, confirmer

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        text = "Sessions of 'tower login' in the store; expired ones are removed every minute."
        yield gauge("tower_login_sessions", text, len(self._sessions))
        text = "Requests to identity providers to confirm the user of a login session."
        yield counters("tower_login_confirmations_total", text, "result", self._confirmer.results)
