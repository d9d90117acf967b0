"""Upstream's bugs 13 to 15, of its API server's front end: Tower's does not have them."""

from __future__ import annotations

import json
from typing import Any

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit
from tower.control.proxy_options import Options as ProxyOptions
from tower.member.options import Options as AgentOptions
from tower.web.gateway.gateway import RequestLimits

#: Options whose default depends on another, or that have a second name.
_DERIVED = {
    "bind-address": {"host", "advertise-address"},
    "host": {"advertise-address"},
    "publish-service-address": {"advertise-address"},
    "external-hostname": {"advertise-address"},
    "max-connections": {"max-connections-per-address"},
}

#: Values for options; the first valid one is used.
_VALUES = (
    "7",
    "7s",
    "7Mi",
    "7001-7002",
    "10.7.7.7",
    "seven=10.7.7.7:7",
    "ws://10.7.7.7:7",
    "/dev/null",
    "v2",
)


class OptionTests(SynchronousTestCase):
    """Upstream's default of one flag (``--audit-log-maxage``) was read from the variable of another."""

    def test_quirk_13_no_option_is_another(self) -> None:
        """Each option that is given on the command line changes itself and no other."""
        for make, base in (
            (ProxyOptions, []),
            (
                AgentOptions,
                ["--name=alpha", "--proxy-server=ws://127.0.0.1:1", f"--host-key=SHA256:{'A' * 43}"],
            ),
        ):
            before = dict(self.parsed(make, base).items())
            names = {entry[0] for entry in make.optParameters} - {word[2:].partition("=")[0] for word in base}
            changed = set()
            for name in names:
                for text in _VALUES:
                    try:
                        after = self.parsed(make, [*base, f"--{name}={text}"])
                    except UsageError:  # a value for another kind of option, or one that needs a second
                        continue
                    differing = {key for key, value in after.items() if value != before[key]}
                    self.assertLessEqual(differing, {name, *_DERIVED.get(name, ())})
                    changed |= differing
                    if differing:
                        break
            self.assertGreater(len(changed), len(names) * 0.6, names - changed)

    def parsed(self, make: Any, line: list[str]) -> Any:
        """Return the options of a command line."""
        options = make({})
        options.parse(line)
        return options


class FrontDoorTests(SynchronousTestCase):
    """The front door while no answer comes."""

    def answer(self, head: bytes, seconds: int = 60) -> bytes:
        """Return what a user gets for a request whose answer never begins."""
        kit = Kit(limits=RequestLimits(answer=10))
        kit.user.deliver(head + b"\r\nHost: tower.example\r\n\r\n")
        kit.sweep(seconds)
        return kit.user.taken()

    def test_quirk_14_timeouts_are_a_whole_status(self) -> None:
        """A 504 has its status line, its type and a complete Status."""
        head, _, body = self.answer(b"GET /clusters/alpha/api/v1/pods HTTP/1.1").partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 504 "))
        self.assertIn(b"\r\nContent-Type: application/json", head)
        status = json.loads(body)
        self.assertEqual(
            {key: status[key] for key in ("kind", "apiVersion", "metadata", "status", "reason", "code")},
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Failure",
                "reason": "Timeout",
                "code": 504,
            },
        )
        self.assertIn("alpha", status["message"])

    def test_quirk_15_watch_true_opens_no_limit(self) -> None:
        """``watch=true`` frees from the time limit what is a watch, and nothing else that has it."""
        for line in (
            b"POST /clusters/alpha/api/v1/namespaces/default/pods?watch=true",
            b"GET /clusters/alpha/api/v1/namespaces/default/pods/p1?watch=true",
            b"GET /clusters/alpha/healthz?watch=true",
            b"GET /clusters/alpha/api/v1/pods?fieldSelector=watch=true",
            b"DELETE /clusters/alpha/api/v1/namespaces/default/pods?watch=true",
        ):
            self.assertTrue(self.answer(line + b" HTTP/1.1").startswith(b"HTTP/1.1 504 "), line)
        self.assertEqual(self.answer(b"GET /clusters/alpha/api/v1/pods?watch=true HTTP/1.1"), b"")
