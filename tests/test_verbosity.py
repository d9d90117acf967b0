"""How much is logged."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from twisted.logger import LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tower.verbosity import log_output, observer, read_modules, read_verbosity


class VerbosityTests(SynchronousTestCase):
    """What passes at which level."""

    def logged(self, verbosity: int, modules: dict[str, int]) -> set[str]:
        """Return who gets his debugging through."""
        out = io.StringIO()
        write = observer(out, verbosity, modules)
        for namespace in ("tower.conch.mux", "tower.conch", "tower.tunnels", "twisted.x"):
            for level in (LogLevel.debug, LogLevel.info):
                text = f"[{namespace} {level.name}]"
                write({"log_level": level, "log_namespace": namespace, "log_format": text, "log_time": 0.0})
            self.assertIn(f"[{namespace} info]", out.getvalue())
        return {part.split("[")[-1] for part in out.getvalue().split(" debug]")[:-1]}

    def test_levels(self) -> None:
        """Tower's debugging begins at 4, the libraries' at 8; a module can be chosen."""
        self.assertEqual(self.logged(0, {}), set())
        self.assertEqual(self.logged(3, {}), set())
        ours = {"tower.conch.mux", "tower.conch", "tower.tunnels"}
        self.assertEqual(self.logged(4, {}), ours)
        self.assertEqual(self.logged(8, {}), {*ours, "twisted.x"})
        self.assertEqual(self.logged(0, {"conch": 5, "tower.tunnels": 3}), {"tower.conch", "tower.conch.mux"})
        self.assertEqual(self.logged(5, {"conch": 0}), {"tower.tunnels"})

    def test_values(self) -> None:
        """The values of klog's flags are read, or refused with a reason."""
        self.assertEqual([read_verbosity(text) for text in ("0", "5", "-1")], [0, 5, -1])
        for text in ("", "x", "1.5", "99999", "١"):
            self.assertRaises(ValueError, read_verbosity, text)
        self.assertEqual(read_modules("conch.mux=4,x=-1,"), {"conch.mux": 4, "x": -1})
        self.assertEqual(read_modules(""), {})
        for text in ("x", "=4", "x=", "x=y", "a b=4"):
            self.assertRaises(ValueError, read_modules, text)

    def test_output(self) -> None:
        """The log goes where twistd's options say."""
        self.assertIs(log_output(None, nodaemon=True), sys.stdout)
        self.assertIs(log_output("-", nodaemon=True), sys.stdout)
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(exist_ok=True, parents=True)
        file = log_output(str(path), nodaemon=True)
        file.write("words")
        file.close()
        self.assertEqual(path.read_text(), "words")
