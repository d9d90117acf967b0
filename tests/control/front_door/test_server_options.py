"""Tests for `tower.control.front_door.server_options`."""

from __future__ import annotations

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options


def parsed(*arguments: str) -> Options:
    """Return parsed options."""
    options = Options({})
    options.parse(arguments)
    return options


class ServerOptionsTests(SynchronousTestCase):
    def problem(self, *arguments: str) -> str:
        """Return the error for *arguments*."""
        with self.assertRaises(usage.UsageError) as caught:
            parsed(*arguments)
        return str(caught.exception)

    def test_defaults(self) -> None:
        """The defaults are kube-apiserver's, but for profiling."""
        options = parsed()
        self.assertEqual(options["request-timeout"], 60.0)
        self.assertEqual(options["min-request-timeout"], 1800.0)
        self.assertEqual(options["shutdown-delay-duration"], 0.0)
        self.assertIsNone(options["cors-allowed-origins"])
        self.assertFalse(options["profiling"])

    def test_all_errors(self) -> None:
        """All errors are reported together, one in a line, with kube-apiserver's texts and the cures."""
        lines = self.problem(
            "--request-timeout=-1s",
            "--min-request-timeout=-5",
            "--shutdown-delay-duration=-2s",
            "--cors-allowed-origins=example.com",
            "--max-requests-inflight=-1",
        ).splitlines()
        self.assertCountEqual(
            lines,
            [
                "--request-timeout '-1s' can not be negative value: give a duration such as 1m",
                "--min-request-timeout '-5' can not be negative value: give a number of seconds such as 1800",
                "--max-requests-inflight '-1' can not be negative value: give 0 or more",
                (
                    "--shutdown-delay-duration '-2s' can not be negative value: give a duration such as "
                    "10s, or 0s"
                ),
                (
                    "--cors-allowed-origins 'example.com' has an invalid regular expression: regular "
                    "expression does not pin to start/end of host in the origin header: give patterns such "
                    r"as '^https://example\.com(:|$)' or '//example\.com(:|$)'"
                ),
            ],
        )

    def test_other_values(self) -> None:
        """Other values that cannot work."""
        for argument, text in (
            ("--request-timeout=0", "must be more than 0"),
            ("--request-timeout=60", "is not a duration"),
            ("--min-request-timeout=30m", "is not a whole number"),
            ("--min-request-timeout=0", "ends each watch at once"),
            ("--cors-allowed-origins=^https://a(:|$),", "has an empty value"),
            ("--cors-allowed-origins=^https://(a$", "error parsing regexp: "),
        ):
            self.assertIn(text, self.problem(argument), argument)

    def test_origins(self) -> None:
        """Patterns pin both ends of the host; several are separated by commas; empty: no origins."""
        for text in (r"^https://a\.example(:|$)", "//a(:|$)", "^https://a:8443", "^a$"):
            self.assertTrue(parsed(f"--cors-allowed-origins={text}")["cors-allowed-origins"].patterns)
        for text in ("https://a", "^https://a", "^https://(?:a|b)", "a$", "^a"):
            self.assertIn("does not pin", self.problem(f"--cors-allowed-origins={text}"))
        self.assertIsNone(parsed("--cors-allowed-origins=")["cors-allowed-origins"])
        origins = parsed("--cors-allowed-origins=^https://a(:|$),//b:1$")["cors-allowed-origins"]
        for origin in (b"https://a", b"https://a:1", b"http://b:1"):
            self.assertTrue(origins.lines(origin), origin)
        for other in (b"https://a.evil", b"http://b", b"http://b:12", b"", None):
            self.assertEqual(origins.lines(other), b"", other)
