"""Metrics of authentication, with the names of kube-apiserver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from attrs import define
from prometheus_client import Metric
from prometheus_client.registry import Collector

from tower.control.front_door.oidc_authentication import ConfigurationReloads
from tower.kube.rest.webhook_client import WebhookClient
from tower.metrics.families import counters, gauge, gauges, histogram
from tower.web.access.authentication.attempts import Attempts
from tower.web.access.authentication.token_reviewer import TokenReviewer

_CACHE = "authentication_token_cache"
_FILE = "apiserver_authentication_config_controller"


@define(eq=False)
class AuthenticationCollector(Collector):
    """Counters of the methods of authentication.

    :param clients: of the reviewers, by method.
    :param reloads: of ``--authentication-config``; None: there is no file.
    :param more: further metrics.
    """

    _attempts: Attempts
    _reviewers: Sequence[TokenReviewer]
    _clients: Mapping[str, WebhookClient]
    _reloads: ConfigurationReloads | None
    _more: Sequence[Collector] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        attempts = self._attempts
        text = "Authentications of connections, and of their requests with another credential."
        yield counters("authentication_attempts", text, "result", attempts.counts)
        text = "Time of an authentication."
        for result, durations in attempts.durations.items():
            yield histogram("authentication_duration_seconds", text, durations, result=result)
        yield from self._of_reviews()
        if self._reloads is not None:
            yield from _of_file(self._reloads)
        for each in self._more:
            yield from each.collect()

    def _of_reviews(self) -> Iterator[Metric]:
        text = "Tokens of users by whether the answer to their review was kept."
        for each in self._reviewers:
            found = {"hit": each.hits, "miss": each.misses}
            yield counters(f"{_CACHE}_request_total", text, "status", found, method=each.method)
        text = "Reviews of tokens; error: there was no answer, or one with an error."
        for each in self._reviewers:
            yield counters(f"{_CACHE}_fetch_total", text, "status", each.fetches, method=each.method)
        text = "Reviews without an answer yet, and requests that wait for them."
        for each in self._reviewers:
            found = {"in_flight": each.in_flight, "blocked": each.blocked}
            yield gauges(f"{_CACHE}_active_fetch_count", text, "status", found, method=each.method)
        text = "Requests with reviews of tokens, by status code."
        for method, client in self._clients.items():
            codes = {str(code) if code else "<error>": count for code, count in client.codes.items()}
            name = "apiserver_delegated_authn_request_total"
            yield counters(name, text, "code", codes, method=method)


def _of_file(reloads: ConfigurationReloads) -> Iterator[Metric]:
    text = "Changes of the file of --authentication-config by whether it could be used."
    yield counters(f"{_FILE}_automatic_reloads_total", text, "status", reloads.counts)
    text = "Time of the last one."
    name = f"{_FILE}_automatic_reload_last_timestamp_seconds"
    yield gauges(name, text, "status", reloads.times)
    text = "Hash of the file's content that is in use."
    yield gauge(f"{_FILE}_last_config_info", text, 1, hash=reloads.digest)
