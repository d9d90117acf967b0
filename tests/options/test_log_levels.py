"""Log levels and the form of log lines."""

from __future__ import annotations

import io
import sys
from functools import partial
from pathlib import Path
from syslog import LOG_ALERT, LOG_INFO

from twisted.logger import Logger, LogLevel
from twisted.logger._legacy import publishToNewObserver
from twisted.python.failure import Failure
from twisted.python.log import textFromEventDict
from twisted.python.syslog import SyslogObserver
from twisted.trial.unittest import SynchronousTestCase

from tower.options.log_levels import log_output, observer, read_modules, read_verbosity, syslog_observer


class VerbosityTests(SynchronousTestCase):
    """Events that pass at each level."""

    def logged(self, verbosity: int, modules: dict[str, int]) -> set[str]:
        """Return the namespaces whose debugging passes."""
        out = io.StringIO()
        write = observer(out, verbosity, modules)
        for namespace in ("tower.conch.connection.mux", "tower.conch", "tower.tunnels", "twisted.x"):
            for level in (LogLevel.debug, LogLevel.info):
                text = f"[{namespace} {level.name}]"
                write({"log_level": level, "log_namespace": namespace, "log_format": text, "log_time": 0.0})
            self.assertIn(f"[{namespace} info]", out.getvalue())
        return {part.split("[")[-1] for part in out.getvalue().split(" debug]")[:-1]}

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

    def test_values(self) -> None:
        """Flags of klog are read, or rejected with a reason."""
        self.assertEqual([read_verbosity(text) for text in ("0", "5", "-1")], [0, 5, -1])
        for text in ("", "x", "1.5", "99999", "١"):
            self.assertRaises(ValueError, read_verbosity, text)
        self.assertEqual(read_modules("conch.mux=4,x=-1,"), {"conch.mux": 4, "x": -1})
        self.assertEqual(read_modules(""), {})
        for text in ("x", "=4", "x=", "x=y", "a b=4"):
            self.assertRaises(ValueError, read_modules, text)

    def test_output(self) -> None:
        """The log is written where twistd's options point."""
        self.assertIs(log_output(None, nodaemon=True), sys.stdout)
        self.assertIs(log_output("-", nodaemon=True), sys.stdout)
        path = Path(self.mktemp()).absolute()
        path.parent.mkdir(exist_ok=True, parents=True)
        file = log_output(str(path), nodaemon=True)
        file.write("words")
        file.close()
        self.assertEqual(path.read_text(), "words")


class LineTests(SynchronousTestCase):
    """The form of an event in the log."""

    def setUp(self) -> None:
        """Log to memory."""
        self.out = io.StringIO()
        self.observer = observer(self.out, 0, {})
        self.log = Logger(namespace="tower.x", observer=self.observer)

    def lines(self) -> list[str]:
        """Return the logged lines, split as the strictest reader does."""
        text = self.out.getvalue()
        self.assertTrue(text.endswith("\n"))
        lines = text.splitlines()
        self.assertEqual(lines, text[:-1].split("\n"))
        for line in lines:
            self.assertTrue(line.replace("\t", "").isprintable(), line)
        return lines

    def test_one_line(self) -> None:
        """An event is one line, regardless of its fields."""
        text = "a\n2026-01-01 [tower] forged\r\x9b2J\x85\u2028\u202e\x00\x7f\ud800ü"
        self.log.info("the text is {text}, {text!r} and {more[0]}", text=text, more=[text])
        self.log.info(text.replace("{", ""))
        (one, two) = self.lines()
        self.assertIn(
            r"the text is a\n2026-01-01 [tower] forged\r\x9b2J\x85\u2028\u202e\x00\x7f\ud800ü, ", one
        )
        self.assertTrue(two.endswith("\\ud800ü"))
        self.assertIn(" [tower.x#info] ", two)

    def test_traceback(self) -> None:
        """A traceback keeps its lines, each indented, and the texts in it are escaped."""
        try:
            raise ValueError("forged\r\x9b\u2028")
        except ValueError:
            self.log.failure("it failed for {name}", name="a\nb")
        first, *others = self.lines()
        self.assertTrue(first.endswith(r"[tower.x#critical] it failed for a\nb"))
        self.assertTrue(all(line.startswith("\t") for line in others))
        self.assertTrue(any(r"ValueError: forged\r\x9b\u2028" in line for line in others))
        self.assertGreater(len(others), 2)

    def test_libraries(self) -> None:
        """Events of Twisted's old logging are lines too: texts, systems, failures, and printed output."""
        publish = partial(publishToNewObserver, self.observer, textFromEventDict=textFromEventDict)
        event = {"time": 0.0, "isError": 0, "system": "a\u2028b", "message": ("one\ntwo\x9b",)}
        publish(event)
        (line,) = self.lines()
        self.assertTrue(line.endswith(r" [a\u2028b] one\ntwo\x9b"), line)
        failure = Failure(ValueError("x\x85y"))
        publish({"time": 0.0, "isError": 1, "system": "-", "message": (), "failure": failure, "why": "so"})
        self.assertIn(r"	Failure: builtins.ValueError: x\x85y", self.lines())

    def test_nothing(self) -> None:
        """An event without text is not logged."""
        self.observer({"log_level": LogLevel.info, "log_namespace": "tower.x", "log_time": 0.0})
        self.assertEqual(self.out.getvalue(), "")

    def test_syslog(self) -> None:
        """Events for syslog are escaped as well; a failure has the priority of one."""
        sent: list[tuple[int, str]] = []
        self.patch(SyslogObserver, "openlog", lambda *_: None)
        self.patch(SyslogObserver, "syslog", lambda _, priority, line: sent.append((priority, line)))
        log = Logger(namespace="tower.x", observer=syslog_observer("tower"))
        log.info("text {text}", text="a\nb\x9b\u2028")
        self.assertEqual(sent, [(LOG_INFO, r"[-] text a\nb\x9b\u2028")])
        try:
            raise ValueError("x\x9b")
        except ValueError:
            log.failure("failed")
        self.assertEqual({priority for priority, _ in sent[1:]}, {LOG_ALERT})
        self.assertEqual(sent[1][1], "[-] failed")
        self.assertIn(r"ValueError: x\x9b", sent[-1][1])
