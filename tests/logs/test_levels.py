"""Log levels."""

from __future__ import annotations

import io
from pathlib import Path

from twisted.logger import FilteringLogObserver, LogLevel
from twisted.trial.unittest import SynchronousTestCase

from tower.logs.formats import FORMATS, LineObserver
from tower.logs.levels import LevelFilter, Levels, read_modules, read_verbosity

NAMESPACES = ("tower.conch.connection.mux", "tower.conch", "tower.tunnels", "twisted.x")


class VerbosityTests(SynchronousTestCase):
    """Events that pass at each level."""

    def logged(self, verbosity: int, modules: dict[str, int], level: object = LogLevel.debug) -> set[str]:
        """Return the namespaces whose events of *level* pass; warnings always do."""
        out = io.StringIO()
        lines = LineObserver(out.write, FORMATS["text"])
        write = FilteringLogObserver(lines, [LevelFilter(Levels(verbosity, modules))])
        for namespace in NAMESPACES:
            for each in (level, LogLevel.warn):
                text = f"[{namespace} {each}]"
                write({"log_level": each, "log_namespace": namespace, "log_format": text, "log_time": 0.0})
            self.assertIn(f"[{namespace} {LogLevel.warn}]", out.getvalue())
        return {namespace for namespace in NAMESPACES if f"[{namespace} {level}]" in out.getvalue()}

    def test_levels(self) -> None:
        """Tower's debugging begins at 4, the libraries' at 8; a module can be chosen."""
        self.assertEqual(self.logged(0, {}), set())
        self.assertEqual(self.logged(3, {}), set())
        ours = {"tower.conch.connection.mux", "tower.conch", "tower.tunnels"}
        self.assertEqual(self.logged(4, {}), ours)
        self.assertEqual(self.logged(8, {}), {*ours, "twisted.x"})
        self.assertEqual(
            self.logged(0, {"conch": 5, "tower.tunnels": 3}), {"tower.conch", "tower.conch.connection.mux"}
        )
        self.assertEqual(self.logged(5, {"conch": 0}), {"tower.tunnels"})

    def test_libraries(self) -> None:
        """The libraries' information is debugging for an operator."""
        self.assertNotIn("twisted.x", self.logged(0, {}, LogLevel.info))
        self.assertIn("tower.conch", self.logged(0, {}, LogLevel.info))
        self.assertIn("twisted.x", self.logged(4, {}, LogLevel.info))

    def test_values(self) -> None:
        """Flags of klog are read, or rejected with a reason."""
        self.assertEqual([read_verbosity(text) for text in ("0", "5", "-1")], [0, 5, -1])
        for text in ("", "x", "1.5", "99999", "١"):
            self.assertRaises(ValueError, read_verbosity, text)
        self.assertEqual(read_modules("conch.mux=4,x=-1,"), {"conch.mux": 4, "x": -1})
        self.assertEqual(read_modules(""), {})
        for text in ("x", "=4", "x=", "x=y", "a b=4"):
            self.assertRaises(ValueError, read_modules, text)


class FileTests(SynchronousTestCase):
    """The file of ``--log-levels``."""

    def overridden(self, text: str | bytes) -> Levels:
        """Return levels that a file with *text* overrides."""
        path = Path(self.mktemp())
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return Levels(1, {"v2": 4}).overridden_by(path)

    def test_lines(self) -> None:
        """Each line overrides one level; comments and a missing file override none."""
        self.assertEqual(self.overridden("# none\n\n"), Levels(1, {"v2": 4}))
        self.assertEqual(self.overridden(" v = 4 # all\n"), Levels(4, {"v2": 4}))
        self.assertEqual(self.overridden("--vmodule=web=5"), Levels(1, {"web": 5}))
        missing = Path(self.mktemp())
        self.assertEqual(Levels(2).overridden_by(missing), Levels(2))

    def test_errors(self) -> None:
        """Another line, a directory and a binary file are errors that name the line or the cause."""
        for text in ("v=x", "level=4", "debug", "vmodule=x"):
            self.assertIn(text, str(self.assertRaises(ValueError, self.overridden, text)))
        self.assertIn("not text", str(self.assertRaises(ValueError, self.overridden, b"\xff")))
        folder = Path(self.mktemp())
        folder.mkdir()
        self.assertIn("irectory", str(self.assertRaises(ValueError, Levels().overridden_by, folder)))
