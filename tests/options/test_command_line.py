"""Tests of `tower.options.command_line`; see `tests.options.test_base` for its errors."""

from __future__ import annotations

from twisted.trial.unittest import SynchronousTestCase

from tower.options.command_line import CommandLine


class CommandLineTests(SynchronousTestCase):
    """A command line with a value, a flag and a short option."""

    def setUp(self) -> None:
        """Make it."""
        self.errors: list[Exception] = []
        self.line = CommandLine("tower-agent", "v:", ["secure-port=", "leader-elect"], self.errors)

    def test_names(self) -> None:
        """Names are without getopt's sign of a value."""
        self.assertEqual(self.line.names, {"secure-port", "leader-elect"})

    def test_normalized(self) -> None:
        """Spellings of Go become those of getopt; klog's flags without effect are removed."""
        for given, expected in (
            (["--secure_port=1"], ["--secure-port=1"]),
            (["--secure_port", "--x_y"], ["--secure-port", "--x_y"]),  # the second is a value
            (["-v=5", "-v", "4"], ["-v5", "-v", "4"]),
            (["--leader-elect=TRUE", "--leader-elect=0"], ["--leader-elect"]),
            (["--logtostderr", "--log_dir", "/x", "--log-dir=/x", "--secure-port=1"], ["--secure-port=1"]),
        ):
            self.assertEqual(self.line.normalized(given), expected)
        self.assertEqual(self.errors, [])

    def test_no_boolean(self) -> None:
        """The value of a flag is true or false; the error names the variable if it is from one."""
        for value in ("x", "yes", "on", "tRUE"):
            self.assertEqual(self.line.normalized([f"--leader-elect={value}"]), [])
        self.assertFalse(self.line.is_true("leader-elect", "no", "TOWER_LEADER_ELECT"))
        cure = "is not a boolean: give true or false"
        expected = [f"--leader-elect '{value}' {cure}" for value in ("x", "yes", "on", "tRUE")]
        expected.append(f"TOWER_LEADER_ELECT 'no' {cure}")
        self.assertEqual(list(map(str, self.errors)), expected)

    def test_rest(self) -> None:
        """All invalid words are collected as errors; the others remain."""
        chosen, line = self.line.options(
            ["--bogus", "1", "word", "--secure-port=2", "--leader-elect=x", "-v3"]
        )
        self.assertEqual(chosen, [("--secure-port", "2"), ("-v", "3")])
        self.assertEqual(line, ["--secure-port=2", "-v3"])
        self.assertEqual(len(self.errors), 3)
