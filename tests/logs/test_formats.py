"""The form of log lines."""

from __future__ import annotations

import io
import json
from functools import partial
from syslog import LOG_ALERT, LOG_INFO
from typing import Any

from twisted.logger import Logger, LogLevel
from twisted.logger._legacy import publishToNewObserver
from twisted.python.failure import Failure
from twisted.python.log import textFromEventDict
from twisted.python.syslog import SyslogObserver
from twisted.trial.unittest import SynchronousTestCase

from tower.logs.formats import (
    FIELD_LIMIT,
    FORMATS,
    LineObserver,
    logger_of,
    read_format,
    subject_of,
    syslog_observer,
)


class LineTests(SynchronousTestCase):
    """The form of an event in the log."""

    def setUp(self) -> None:
        """Log to memory."""
        self.out = io.StringIO()
        self.observer = LineObserver(self.out.write, FORMATS["text"])
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
        self.assertRegex(two, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z info x: a")

    def test_traceback(self) -> None:
        """A traceback keeps its lines, each indented, and the texts in it are escaped."""
        try:
            raise ValueError("forged\r\x9b\u2028")
        except ValueError:
            self.log.failure("it failed for {name}", name="a\nb")
        first, *others = self.lines()
        self.assertTrue(first.endswith(r" critical x: it failed for a\nb"))
        self.assertTrue(all(line.startswith("\t") for line in others))
        self.assertTrue(any(r"ValueError: forged\r\x9b\u2028" in line for line in others))
        self.assertGreater(len(others), 2)

    def test_libraries(self) -> None:
        """Events of Twisted's old logging are lines too: texts, systems, failures, and printed output."""
        publish = partial(publishToNewObserver, self.observer, textFromEventDict=textFromEventDict)
        event = {"time": 0.0, "isError": 0, "system": "a\u2028b", "message": ("one\ntwo\x9b",)}
        publish(event)
        (line,) = self.lines()
        self.assertTrue(line.endswith(r" info a\u2028b: one\ntwo\x9b"), line)
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

    def test_subjects(self) -> None:
        """The subject is a room of Tower or a library; no line has a path of modules."""
        for namespace, logger, subject in (
            ("tower.web.gateway.request.Request", "web.gateway.request", "gateway"),
            ("tower.v2.acceptor.AgentAcceptor", "v2.acceptor", "v2"),
            ("tower.proxy.Proxy", "proxy", "proxy"),
            ("tower.reactor.repeating", "reactor.repeating", "reactor"),
            ("tower.signals", "signals", "signals"),
            ("twisted.internet.tcp.Port", "twisted.internet.tcp.Port", "twisted"),
            ("tower", "tower", "tower"),
            (None, "-", "-"),
        ):
            event = {"log_namespace": namespace}
            self.assertEqual((logger_of(event), subject_of(event)), (logger, subject))


class JSONTests(SynchronousTestCase):
    """The same events as JSON."""

    def setUp(self) -> None:
        """Log to a list."""
        self.entries: list[dict[str, Any]] = []
        observer = LineObserver(self.entry, FORMATS["json"])
        self.log = Logger(namespace="tower.v2.acceptor.AgentAcceptor", observer=observer)

    def entry(self, line: str) -> None:
        """Keep the entry of a line."""
        self.assertTrue(line.endswith("\n"))
        self.assertTrue(line[:-1].isascii())
        self.assertTrue(line[:-1].isprintable())
        self.entries.append(json.loads(line))

    def test_keys(self) -> None:
        """An entry has time, level, logger and message, and the fields of the event."""
        self.log.warn("agent of {cluster}\n{x}", cluster="alpha", x=1, request_id="a-b", time="mine", no=None)
        (entry,) = self.entries
        self.assertRegex(entry.pop("time"), r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertEqual(
            entry,
            {
                "level": "warn",
                "logger": "v2.acceptor",
                "message": "agent of alpha\n1",
                "cluster": "alpha",
                "x": 1,
                "request_id": "a-b",
                "time_": "mine",
                "no": None,
            },
        )

    def test_traceback(self) -> None:
        """A traceback is part of its event."""
        try:
            raise ValueError("forged\n{}")
        except ValueError:
            self.log.failure("it failed")
        (entry,) = self.entries
        self.assertEqual((entry["level"], entry["message"]), ("critical", "it failed"))
        self.assertIn("Traceback", entry["error"])
        self.assertIn("ValueError: forged", entry["error"])
        self.assertNotIn("log_failure", entry)

    def test_objects(self) -> None:
        """Fields that JSON does not have are text, of limited length."""
        self.log.info("x", error=ValueError("reason"), long="y" * 5000, some=[1, "\x9b"])
        (entry,) = self.entries
        self.assertEqual((entry["error_"], len(entry["long"])), ("reason", FIELD_LIMIT))
        self.assertEqual(entry["some"], str([1, "\x9b"]))

    def test_names(self) -> None:
        """Only the two formats are accepted."""
        self.assertEqual([read_format(name) for name in ("text", "json")], ["text", "json"])
        self.assertRaises(ValueError, read_format, "xml")
