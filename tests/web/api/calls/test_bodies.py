"""Tests of `tower.web.api.calls.bodies`."""

from __future__ import annotations

import time

from twisted.trial.unittest import SynchronousTestCase

from tower.kube.status import StatusError
from tower.web.api.calls.bodies import DEPTH_LIMIT, YAML_LIMIT, parse


class BodiesTests(SynchronousTestCase):
    """JSON and YAML."""

    def refused(self, raw: bytes, *, yaml: bool = False) -> StatusError:
        """Return the error for a body."""
        error: StatusError = self.assertRaises(StatusError, parse, raw, yaml=yaml)
        return error

    def test_depth(self) -> None:
        """The deepest values are read, and deeper ones rejected with the limit."""
        for opening, closing in ((b"[", b"]"), (b'{"a":', b"}")):
            for yaml in (False, True):
                inner = b"1" if opening != b"[" else b""
                parse(opening * DEPTH_LIMIT + inner + closing * DEPTH_LIMIT, yaml=yaml)
                for depth in (DEPTH_LIMIT + 1, 300, 990, 5_000):
                    error = self.refused(opening * depth + inner + closing * depth, yaml=yaml)
                    text = "the body is nested too deeply: at most 64 levels are allowed"
                    self.assertEqual((error.code, error.message), (400, text))

    def test_open_brackets(self) -> None:
        """Brackets that are never closed are rejected early, although YAML reads each one slowly."""
        began = time.process_time()
        self.assertIn("levels", self.refused(b"[" * (YAML_LIMIT - 1), yaml=True).message)
        self.assertIn("levels", self.refused(b"{" * (YAML_LIMIT - 1), yaml=True).message)
        self.assertLess(time.process_time() - began, 0.2)
        self.assertEqual(self.refused(b"[" * 1_000_000).code, 400)

    def test_indentation(self) -> None:
        """Indented YAML has the same limit."""
        lines = b"".join(b" " * depth + b"a:\n" for depth in range(300))
        self.assertIn("levels", self.refused(lines, yaml=True).message)
        self.assertIn("levels", self.refused(b"- " * 300, yaml=True).message)
        self.assertEqual(
            parse(b"a:\n  b:\n  - c: 1\n  - {d: [2]}\n", yaml=True), {"a": {"b": [{"c": 1}, {"d": [2]}]}}
        )

    def test_invalid(self) -> None:
        """Other bodies are rejected without their text."""
        for raw in (b"{", b"nan", b'{"a": NaN}', b'{"a": 1e999}', b"\xff", b"9" * 5_000):
            self.assertEqual(self.refused(raw).code, 400)
        for raw in (b"a: &x 1\nb: *x", b"a: [", b"!!python/object:os.system {}"):
            self.assertEqual(self.refused(raw, yaml=True).code, 400)

    def test_surrogates(self) -> None:
        """Half of a surrogate pair, which no answer could contain, is rejected; pairs are characters."""
        for raw, yaml in (
            (rb'{"verb": "\ud800"}', False),
            (rb'{"\uDFFF": 1}', False),
            (rb'["\udc00\ud800"]', False),
            (rb'verb: "\ud800"', True),
        ):
            error = self.refused(raw, yaml=yaml)
            self.assertEqual((error.code, "surrogate" in error.message), (400, True), raw)
        self.assertEqual(self.refused(b'{"verb": "\xed\xa0\x80"}').code, 400)
        self.assertEqual(self.refused('{"verb": "\\ud800"}'.encode("utf-16-le")).code, 400)
        self.assertEqual(parse(rb'{"a": "\ud83d\ude80", "b": "\\ud800"}'), {"a": "🚀", "b": r"\ud800"})

    def test_long_yaml(self) -> None:
        """The limit of YAML bodies is lower, because parsing is slow."""
        error = self.refused(b"a: " + b"x" * YAML_LIMIT, yaml=True)
        self.assertEqual(error.code, 413)
        self.assertIn(str(YAML_LIMIT), error.message)
