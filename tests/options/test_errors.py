"""Tests of `tower.options.errors`."""

from __future__ import annotations

from twisted.internet.error import CannotListenError
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError, TowerError
from tower.options.errors import OptionError, OptionErrors, one_line_errors


class OneLineTests(SynchronousTestCase):
    """Errors of a makeService end the program."""

    def code(self, error: Exception) -> object:
        """Return what the program ends with when its makeService raises *error*."""

        @one_line_errors("tower-proxy")
        def make_service() -> None:
            raise error

        for _ in range(2):
            exit_ = self.assertRaises(SystemExit, make_service)
        return exit_.code

    def test_configuration(self) -> None:
        """A configuration error is one line, however long."""
        self.assertEqual(self.code(ConfigurationError("no\n  such file")), "tower-proxy: no such file")
        self.assertEqual(self.code(OptionError("port", "1", "is taken")), "tower-proxy: --port '1' is taken")

    def test_port(self) -> None:
        """The error about a port in use names the port."""
        text = str(self.code(CannotListenError("127.0.0.1", 8080, OSError(98, "Address already in use"))))
        self.assertIn("127.0.0.1 port 8080 (Address already in use)", text)

    def test_others(self) -> None:
        """Other errors keep their traceback."""
        with self.assertRaises(TowerError), one_line_errors("tower-proxy"):
            raise TowerError("other")

    def test_several(self) -> None:
        """Several errors have one line each."""
        errors = OptionErrors([OptionError("port", "1", "is\ntaken"), ConfigurationError("no file")])
        self.assertEqual(str(errors).splitlines(), ["--port '1' is taken", "no file"])
        self.assertEqual(self.code(errors), "tower-proxy: --port '1' is taken\ntower-proxy: no file")
