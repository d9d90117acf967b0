"""Tests of `tower.control.metrics.authentication_metrics`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.logins import LoginKit
from tower.control.front_door.oidc_authentication import ConfigurationReloads
from tower.control.metrics.authentication_metrics import AuthenticationCollector
from tower.control.metrics.login_metrics import LoginCollector
from tower.metrics.page import registry_of
from tower.web.access.authentication.attempts import Attempts
from tower.web.access.authentication.login.confirmer import AGE
from tower.web.access.authentication.login.token_endpoint import ProviderRefused, ProviderUnavailable
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.token_reviewer import Reviewing, TokenReviewer


class Client:
    """A client of a webhook that does not answer."""

    def __init__(self) -> None:
        self.codes = {200: 2, 0: 1}

    async def post(self, body: Any) -> Any:
        """Wait."""
        await Deferred()


class AuthenticationMetricsTests(SynchronousTestCase):
    """The metrics, with upstream's names."""

    def test_values(self) -> None:
        """Attempts, reviews and reloads."""
        clock, client = Clock(), Client()
        reviewer = TokenReviewer(client, Reviewing("webhook", "the webhook"), clock, clock.seconds)
        reviewer.authenticate(Presented(None, b"t"))
        reloads = ConfigurationReloads(clock.seconds, "sha256:x")
        clock.advance(7)
        reloads.count("failure")
        attempts = Attempts(clock.seconds)
        attempts.counts["success"] = 3
        clients: Any = {"webhook": client}
        registry = registry_of(AuthenticationCollector(attempts, [reviewer], clients, reloads))
        controller = "apiserver_authentication_config_controller"
        for name, labels, value in (
            ("authentication_attempts", {"result": "success"}, 3),
            ("authentication_attempts", {"result": "error"}, 0),
            ("authentication_duration_seconds_count", {"result": "success"}, 0),
            ("authentication_token_cache_request_total", {"status": "miss", "method": "webhook"}, 1),
            ("authentication_token_cache_request_total", {"status": "hit", "method": "webhook"}, 0),
            ("authentication_token_cache_fetch_total", {"status": "ok", "method": "webhook"}, 0),
            (
                "authentication_token_cache_active_fetch_count",
                {"status": "in_flight", "method": "webhook"},
                1,
            ),
            ("authentication_token_cache_active_fetch_count", {"status": "blocked", "method": "webhook"}, 1),
            ("apiserver_delegated_authn_request_total", {"code": "200", "method": "webhook"}, 2),
            ("apiserver_delegated_authn_request_total", {"code": "<error>", "method": "webhook"}, 1),
            (f"{controller}_automatic_reloads_total", {"status": "failure"}, 1),
            (f"{controller}_automatic_reload_last_timestamp_seconds", {"status": "failure"}, 7),
            (f"{controller}_last_config_info", {"hash": "sha256:x"}, 1),
        ):
            self.assertEqual(registry.get_sample_value(name, labels), value, (name, labels))

    def test_logins(self) -> None:
        """Sessions, and the answers of identity providers."""
        kit = LoginKit(self)
        kit.in_use.append(kit.begun().id)
        more = LoginCollector(kit.sessions, kit.confirmer)
        registry = registry_of(AuthenticationCollector(Attempts(kit.clock.seconds), [], {}, None, [more]))

        def value(result: str) -> float | None:
            return registry.get_sample_value("tower_login_confirmations_total", {"result": result})

        self.assertEqual(registry.get_sample_value("tower_login_sessions"), 1)
        kit.pass_time(AGE + 10)
        kit.requests.answer = ProviderUnavailable("no answer")
        kit.pass_time(AGE)
        kit.requests.answer = ProviderRefused("invalid_grant")
        kit.pass_time(20)
        self.assertEqual((value("confirmed"), value("refused")), (1, 1))
        self.assertGreater(value("unavailable") or 0, 0)
        self.assertEqual(registry.get_sample_value("tower_login_sessions"), 0)

    def test_without_file(self) -> None:
        """Without a file there are no reloads."""
        registry = registry_of(AuthenticationCollector(Attempts(Clock().seconds), [], {}, None))
        names = {metric.name for metric in registry.collect()}
        self.assertEqual(names, {"authentication_attempts", "authentication_duration_seconds"})
