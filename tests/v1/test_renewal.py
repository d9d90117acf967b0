"""Tests of `tower.v1.renewal`."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from typing import Any, cast

from attrs import evolve
from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.member.reconnecting import RENEWAL, Reconnecting
from tower.v1.config import AgentConfig
from tower.v1.renewal import RegistrationRenewal, renewal_limit
from tower.v1.uplink import V1Uplink

NOW = 1_800_000_000.0  # s since the epoch
HOUR, YEAR = 3600.0, 365 * 86400.0
POD = {"serviceaccount": {"name": "tower-agent", "uid": "u1"}, "pod": {"name": "agent-1", "uid": "p1"}}


def token(begin: float, end: float | None, objects: Any = POD, subject: str = "system:a:b") -> bytes:
    """Return a JWT of a service account, without a signature."""
    claims = {"iss": "https://kubernetes.default.svc", "sub": subject, "iat": int(begin)}
    bound = {**objects, "warnafter": int(begin) + 3607}
    claims |= {"kubernetes.io": bound} | ({} if end is None else {"exp": int(end)})
    parts = (b"{}", json.dumps(claims).encode(), b"signature")
    return b".".join(urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def registration(bearer: bytes, **changes: Any) -> AgentConfig:
    """Return a registration with a token."""
    return AgentConfig(name="alpha", kubernetes="10.0.0.1:6443", bearer=bearer, **changes)


class LimitTests(SynchronousTestCase):
    """Tests of `renewal_limit`."""

    def limit(self, sent: bytes, current: bytes, now: float = NOW, **changes: Any) -> float | None:
        """Return the limit for two tokens."""
        return renewal_limit(registration(sent), registration(current, **changes), now)

    def test_renewed_in_a_pod(self) -> None:
        """The hourly renewal of a token that is valid for a year waits for the end of the sent one."""
        sent = token(NOW, NOW + YEAR)
        for hour in (1, 24, 8000):
            now = NOW + hour * HOUR
            self.assertIsNone(self.limit(sent, token(now, now + YEAR), now))
        end = NOW + YEAR
        current = token(end - HOUR, end + YEAR)
        self.assertIsNone(self.limit(sent, current, end - 601))
        self.assertEqual(self.limit(sent, current, end - 600), 540)
        self.assertEqual(self.limit(sent, current, end - 61), 1)
        self.assertEqual(self.limit(sent, current, end + 100), 0)

    def test_short(self) -> None:
        """A token of ten minutes, renewed after eight, has its new registration before its end."""
        sent, current = token(NOW, NOW + 600), token(NOW + 480, NOW + 1080)
        self.assertIsNone(self.limit(sent, current, NOW + 480))
        self.assertEqual(self.limit(sent, current, NOW + 540), 30)

    def test_at_once(self) -> None:
        """Any other change is sent at once: another account, pod or address, or a token without an end."""
        sent, later = token(NOW, NOW + YEAR), NOW + HOUR
        recreated = {**POD, "serviceaccount": {"name": "tower-agent", "uid": "u2"}}
        for current in (
            token(later, later + YEAR, subject="system:c:d"),
            token(later, later + YEAR, recreated),
            token(later, later + YEAR, {**POD, "pod": {"name": "agent-2", "uid": "p2"}}),
            b"opaque",
        ):
            self.assertEqual(self.limit(sent, current, later), RENEWAL)
        same = token(later, later + YEAR)
        self.assertEqual(self.limit(sent, same, later, kubesphere="10.0.0.2:80"), RENEWAL)
        self.assertEqual(self.limit(sent, same, later, authority=b"PEM"), RENEWAL)
        self.assertEqual(self.limit(sent, b"", later, certificate=b"PEM", key=b"PEM"), RENEWAL)
        self.assertEqual(self.limit(token(NOW, None), same, later), RENEWAL)
        self.assertEqual(self.limit(b"opaque", same, later), RENEWAL)


class FakeUplink:
    """The last registration that was sent, and its change."""

    def __init__(self, sent: AgentConfig | None) -> None:
        self.sent = sent
        self.change: AgentConfig | None = None


class FakeService:
    """Records renewals."""

    def __init__(self) -> None:
        self.limits: list[float] = []

    def renew(self, limit: float) -> None:
        """Record it."""
        self.limits.append(limit)


class RenewalTests(SynchronousTestCase):
    """Tests of `RegistrationRenewal`."""

    def setUp(self) -> None:
        """Start with a registration that was sent an hour ago."""
        self.now = NOW
        self.sent = registration(token(NOW, NOW + YEAR))
        self.uplink = FakeUplink(self.sent)
        self.service = FakeService()
        self.asked: list[tuple[AgentConfig, Deferred[bool]]] = []
        self.lines = logged_lines(self)
        self.renewal = RegistrationRenewal(
            cast(V1Uplink, self.uplink), cast(Reconnecting, self.service), self.ask, lambda: self.now
        )

    def ask(self, sent: AgentConfig) -> Deferred[bool]:
        """Be `SentCredential.is_accepted`."""
        self.asked.append((sent, Deferred()))
        return self.asked[-1][1]

    def test_nothing(self) -> None:
        """Without a change, or before the first registration, nothing happens."""
        self.renewal.check(is_changed=True)
        self.uplink.sent, self.uplink.change = None, self.sent
        self.renewal.check(is_changed=True)
        self.assertEqual((self.asked, self.service.limits), ([], []))

    def test_renewed(self) -> None:
        """A renewed token is sent when the old one ends soon; until then the API server is asked once."""
        self.uplink.change = registration(token(NOW + HOUR, NOW + HOUR + YEAR))
        self.now += HOUR
        self.renewal.check(is_changed=True)
        self.renewal.check(is_changed=False)
        ((asked, answer),) = self.asked
        self.assertIs(asked, self.sent)
        answer.callback(True)
        self.assertEqual(self.service.limits, [])
        self.now = NOW + YEAR - 100
        self.renewal.check(is_changed=False)
        self.renewal.check(is_changed=False)
        self.assertEqual(self.service.limits, [40, 40])
        self.assertEqual(sum("reconnecting to send" in line for line in self.lines), 1)

    def test_rejected(self) -> None:
        """If the API server no longer accepts the sent token, the new one is sent at once."""
        self.uplink.change = registration(token(NOW + HOUR, NOW + HOUR + YEAR))
        self.renewal.check(is_changed=True)
        self.asked[0][1].callback(False)
        self.assertEqual(self.service.limits, [RENEWAL])

    def test_sent_meanwhile(self) -> None:
        """An answer about a registration that was replaced meanwhile has no effect."""
        self.uplink.change = registration(token(NOW + HOUR, NOW + HOUR + YEAR))
        self.renewal.check(is_changed=True)
        self.uplink.sent = evolve(self.sent, version="other")
        self.asked[0][1].callback(False)
        self.assertEqual(self.service.limits, [])
