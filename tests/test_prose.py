"""Tests of `tools/check-prose` and its rules."""

import importlib.machinery
import importlib.util
import io
import os
import sys
import tomllib
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from twisted.trial import unittest

_TOOL = Path(__file__).parents[1] / "tools" / "check-prose"

#: Rules for the tests; the words are not English.
_WORDS = """
[[rule]]
words = "zork zorks"
then = " the"
suggest = "do it"
bad = ["zork the thing"]
good = ["do the thing"]

[[rule]]
words = "blip"
at = "start"
suggest = "a noun"
bad = ["Blip."]
good = ["A noun."]

[[rule]]
words = "quux"
at = "sentence"
suggest = "name it"
bad = ["Quux is here."]
good = ["The quux."]

[[rule]]
words = "blop"
unless_after = "old|very new"
suggest = "name it"
bad = ["a blop"]
good = ["an old blop"]
"""


def _load() -> ModuleType:
    """Import the tool, whose file is not named like a module."""
    loader = importlib.machinery.SourceFileLoader("check_prose", str(_TOOL))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[loader.name] = module  # dataclasses look their module up there
    loader.exec_module(module)
    return module


tool: Any = _load()


def found(source: str, path: str = "tower/x.py", words: str = _WORDS) -> list[str]:
    """Return the findings in a file of this content, without its path."""
    checker = tool.Checker(tomllib.loads(words))
    return [f"{finding.line}: {finding.words}" for finding in sorted(checker.check(path, source))]


class RulesTests(unittest.TestCase):
    """The rules of ``tools/prose-words.toml``."""

    def setUp(self) -> None:
        """Read the rules."""
        self.checker = tool.Checker(tomllib.loads(tool.WORDS.read_text()))

    def _rules(self, text: str) -> list[Any]:
        """Return the rules that a docstring of this text breaks."""
        return [finding.rule for finding in self.checker.check("x.py", f"'''{text}'''\n")]

    def test_bad(self) -> None:
        """Each rule finds its bad examples."""
        for rule in self.checker.rules:
            for text in rule.bad:
                self.assertIn(rule, self._rules(text), text)

    def test_good(self) -> None:
        """No rule finds a good example."""
        for rule in self.checker.rules:
            for text in rule.good:
                self.assertEqual([broken.words for broken in self._rules(text)], [], text)

    def test_complete(self) -> None:
        """Each rule has a suggestion and examples of both kinds."""
        for rule in self.checker.rules:
            self.assertTrue(rule.suggest and rule.bad and rule.good, rule.words)

    def test_reasons(self) -> None:
        """Each exception has a reason."""
        for exempt in self.checker.exempt:
            self.assertTrue(exempt.reason, exempt.phrase)


class MatchingTests(unittest.TestCase):
    """Conditions under which a rule applies."""

    def test_line_break(self) -> None:
        """A phrase is found across a line break, at the line of its first word."""
        self.assertEqual(found('"""It does.\n\nIt zorks\nthe end.\n"""\n'), ["3: zorks the"])

    def test_paragraphs(self) -> None:
        """A phrase does not extend over two paragraphs."""
        self.assertEqual(found("zork\n\nthe end\n", "a.md"), [])

    def test_whole_words(self) -> None:
        """Words are matched whole, in any case, outside of paths, options and names."""
        self.assertEqual(
            found("Zork the. azork the, a/zork the, --zork the, x_zork the", "a.md"), ["1: Zork the"]
        )

    def test_start(self) -> None:
        """A rule of starts applies to the first word of a docstring or message, if it is capitalized."""
        self.assertEqual(found('"""Blip it."""\nx = "Blip that"\n'), ["1: Blip", "2: Blip"])
        self.assertEqual(found('"""It: Blip."""\nx = "blip that"\n# Blip it\n'), [])

    def test_sentence(self) -> None:
        """A rule of sentences applies to the start of each, also in lists and tables."""
        self.assertEqual(found("A quux.  Quux is. Old; quux\n\n* quux\n\n| quux |\n", "a.md"), [
            "1: Quux", "1: quux", "3: quux", "5: quux",
        ])  # fmt: skip
        self.assertEqual(found("a\nquux\n", "a.md"), [])

    def test_unless_after(self) -> None:
        """Preceding words can make a phrase good."""
        self.assertEqual(
            found("old blop, very\nnew (blop), new blop. Old. Blop", "a.md"), ["2: Blop", "2: blop"]
        )


class MarkdownTests(unittest.TestCase):
    """Reading Markdown."""

    def test_code(self) -> None:
        """Code fences, indented code, inline code, targets of links and URLs are ignored."""
        for code in (
            "```sh\nzork the\n```\n",
            "~~~\nzork the\n```\nzork the\n~~~\n",
            "Run:\n\n    zork the\n\n    zork the\n",
            "`zork the` and ``a ` zork\nthe``",
            "[a](blop) https://x/blop",
        ):
            self.assertEqual(found(code, "a.md"), [], code)

    def test_after_code(self) -> None:
        """Text behind code is checked, with the right line."""
        self.assertEqual(found("```\nx\n```\nzork the\n", "a.md"), ["4: zork the"])

    def test_lists(self) -> None:
        """Indented paragraphs of lists are text."""
        self.assertEqual(found("1. one\n\n    zork the\n", "a.md"), ["3: zork the"])

    def test_single_backtick(self) -> None:
        """A backtick without a partner hides no later paragraph."""
        self.assertEqual(found("a ` b\n\nzork the ` c\n", "a.md"), ["3: zork the"])


class PythonTests(unittest.TestCase):
    """Reading Python."""

    def test_texts(self) -> None:
        """Docstrings, comments, strings, bytes and literal parts of f-strings are checked, code is not."""
        source = 'zork = the = 1\nx = "zork the"\ny = b"zork the"\n'
        source += 'z = f"{x} zork the"  # it zorks the\n#: zork the\n'
        self.assertEqual(found(source), [
            "2: zork the", "3: zork the", "4: zork the", "4: zorks the", "5: zork the",
        ])  # fmt: skip

    def test_single_words(self) -> None:
        """A string of one word is data, not text."""
        self.assertEqual(found('x = "Blip"\n'), [])
        self.assertEqual(found('x = "Blip now"\n'), ["1: Blip"])

    def test_concatenated(self) -> None:
        """In concatenated strings the line of the word is reported."""
        self.assertEqual(found('x = (\n    "one two "\n    "three zork the"\n)\n'), ["3: zork the"])

    def test_comments_in_strings(self) -> None:
        """A line of a string that looks like a comment is reported once."""
        self.assertEqual(found('x = """\n# zork the\n"""\n'), ["2: zork the"])

    def test_code_in_docstrings(self) -> None:
        """Inline code and names of parameters are ignored."""
        self.assertEqual(found('"""It `zork the` is.\n\n:param zork: the end.\n"""\n'), [])

    def test_adjacent_comments(self) -> None:
        """Comments of adjacent lines are one text."""
        self.assertEqual(found("# it zorks\n# the end\n"), ["1: zorks the"])


class KindsTests(unittest.TestCase):
    """Kinds of files."""

    def test_kinds(self) -> None:
        """Scripts are checked whole; YAML, TOML and Go by their comments; other files not at all."""
        for path, source, number in (
            ("Makefile", "x:\n\t@echo zork the  # zork the\n", 2),
            (".ci/run", "#!/bin/sh\necho zork the\n", 1),
            ("tools/x", "#!/usr/bin/env python3\nzork = 1  # zork the\n", 1),
            ("x.tac", "# zork the\n", 1),
            ("a.yaml", "a: zork the\nb: c # zork the\n", 1),
            ("a.toml", "# zork the\n", 1),
            ("a.go", "package zork // zork the\n", 1),
            ("a.lock", "# zork the\n", 0),
        ):
            self.assertEqual(len(found(source, path)), number, path)


class ProgramTests(unittest.TestCase):
    """The program as a whole."""

    def setUp(self) -> None:
        """Make two documents in a new working directory."""
        self.addCleanup(os.chdir, os.getcwd())
        directory = self.mktemp()
        os.makedirs(directory)
        os.chdir(directory)
        # Without a repository: git would ignore this directory.
        environment = mock.patch.dict(os.environ, GIT_DIR=os.path.abspath("none"))
        environment.start()
        self.addCleanup(environment.stop)
        Path("docs").mkdir()
        Path("docs/a.md").write_text("It zorks the end.\n")
        Path("docs/b.md").write_text("To zork the end, and\nzork\nthe end.\n")

    def _main(self, *arguments: str, more: str = "") -> tuple[int, list[str]]:
        """Return the exit status and the lines of output."""
        Path("words.toml").write_text(_WORDS + more)
        self.patch(tool, "WORDS", Path("words.toml"))
        output = io.StringIO()
        with redirect_stdout(output):
            status = tool.main(["docs", *arguments])
        return status, output.getvalue().splitlines()

    def test_findings(self) -> None:
        """Findings are sorted by file and line, with suggestions and a count; the exit status is 1."""
        self.assertEqual(self._main(), (1, [
            "docs/a.md:1: zorks the: do it",
            "docs/b.md:1: zork the: do it",
            "docs/b.md:2: zork the: do it",
            "3 findings in 2 files",
        ]))  # fmt: skip

    def test_clean(self) -> None:
        """Without findings the exit status is 0."""
        for path in ("docs/a.md", "docs/b.md"):
            Path(path).write_text("Do it.\n")
        self.assertEqual(self._main(), (0, ["0 findings in 2 files"]))

    def test_count(self) -> None:
        """--count prints numbers by directory and by rule."""
        status, lines = self._main("--count")
        self.assertEqual(
            (status, [line.split() for line in lines[:2]]),
            (1, [["3", "docs"], ["3", "zork", "the", "thing"]]),
        )

    def test_exception(self) -> None:
        """An exception allows its phrase in its file only."""
        status, lines = self._main(
            more='[[exception]]\nfile = "docs/a.md"\nphrase = "zorks the end"\nreason = "x"\n'
        )
        self.assertEqual((status, lines[0]), (1, "docs/b.md:1: zork the: do it"))

    def test_other_phrase(self) -> None:
        """An exception allows no more than its phrase."""
        status, lines = self._main(
            more='[[exception]]\nfile = "docs/*"\nphrase = "and zork the"\nreason = "x"\n'
        )
        self.assertEqual((status, lines[:-1]), (1, [
            "docs/a.md:1: zorks the: do it",
            "docs/b.md:1: zork the: do it",
        ]))  # fmt: skip

    def test_unused_exception(self) -> None:
        """An exception that covers nothing is an error."""
        for path in ("docs/a.md", "docs/b.md"):
            Path(path).write_text("Do it.\n")
        status, lines = self._main(
            more='[[exception]]\nfile = "docs/a.md"\nphrase = "zork the"\nreason = "x"\n'
        )
        self.assertEqual((status, lines[0]), (1, "words.toml: unused exception in docs/a.md: zork the"))

    def test_exception_of_other_files(self) -> None:
        """An exception is not unused when its file was not checked."""
        for path in ("docs/a.md", "docs/b.md"):
            Path(path).write_text("Do it.\n")
        status, _ = self._main(more='[[exception]]\nfile = "README.md"\nphrase = "zork the"\nreason = "x"\n')
        self.assertEqual(status, 0)
