"""Tests of `tower.cloud.gcfg` and `tower.cloud.config.sections`."""

from __future__ import annotations

from collections.abc import Callable
from operator import methodcaller

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs as captured_logs
from twisted.trial.unittest import SynchronousTestCase

from tower.cloud.config.sections import Section, Sections
from tower.cloud.config.text import CONFIG_LIMIT, ConfigText
from tower.cloud.errors import CloudConfigError
from tower.cloud.gcfg import KEY_LIMIT, parse


def read(text: str) -> Sections:
    """Parse a text."""
    return parse(ConfigText("cloud.conf", text))


def value(line: str) -> str:
    """Return what the key has in a section with one line."""
    return read(f"[s]\n{line}\n").section("s").text("key")


class GcfgCase(SynchronousTestCase):
    """Errors."""

    def why_not(self, text: str) -> str:
        """Return the error of a text."""
        return str(self.assertRaises(CloudConfigError, read, text))


class SectionTests(GcfgCase):
    """Headers, and where keys belong."""

    def test_keys(self) -> None:
        """Keys belong to the header above them."""
        sections = read("[a]\nx = 1\n[b]\nx = 2\n")
        self.assertEqual(sections.section("a").text("x"), "1")
        self.assertEqual(sections.section("b").text("x"), "2")
        self.assertEqual(sections.section("c").text("x", "none"), "none")

    def test_case(self) -> None:
        """Names of sections and keys are taken in any case."""
        section = read("[Global]\nAuth-URL = u\n").section("gLOBAL")
        self.assertEqual(section.text("auth-url"), "u")
        self.assertIn("AUTH-URL", section)

    def test_letters(self) -> None:
        """Letters and digits of any script make names."""
        self.assertEqual(
            read("[größe]\nключ-٣ = x\n").section("GRÖSSE".replace("SS", "ß")).text("ключ-٣"), "x"
        )

    def test_again(self) -> None:
        """A section may be opened again."""
        section = read("[a]\nx = 1\n[b]\n[A]\ny = 2\nx = 3\n").section("a")
        self.assertEqual((section.text("y"), section.texts("x"), section.line), ("2", ["1", "3"], 1))

    def test_subsections(self) -> None:
        """Names of subsections are case-sensitive."""
        sections = read('[o]\nurl=0\n[O "eu"]\nurl=1\n[o "EU"]\nurl=2\n[o\t"a\\"\\\\b] c" ] ; x\nurl=3\n')
        found = sections.subsections("o")
        self.assertEqual(
            {name: each.text("url") for name, each in found.items()}, {"eu": "1", "EU": "2", 'a"\\b] c': "3"}
        )
        self.assertEqual(sections.section("o").text("url"), "0")
        self.assertEqual(sections.section("o", "EU").text("url"), "2")

    def test_empty(self) -> None:
        """No text, comments alone, and a section without keys are configurations."""
        for text in ("", "\n\n", "# a\n; b", "\r\n \t"):
            self.assertEqual(list(read(text)), [])
        self.assertEqual(read("[a]").section("a").line, 1)

    def test_marks(self) -> None:
        """A byte order mark, and the line ends of Windows, do not count."""
        section = read("\ufeff[a]\r\nx = 1\r\n\r\ny = two words\r\nz\r\n").section("a")
        self.assertEqual((section.text("x"), section.text("y"), section.flag("z")), ("1", "two words", True))

    def test_bad_headers(self) -> None:
        """Errors of headers have the line, and no quote."""
        for text, error in {
            "[": "cloud.conf:1: after [ a section's name is expected, not the end of the line",
            "\n[1a]": "cloud.conf:2: after [ a section's name is expected, not another character",
            "[a": 'cloud.conf:1: after a section\'s name, ] or a "subsection" is expected, '
            "not the end of the line",
            "[a.b]": 'cloud.conf:1: after a section\'s name, ] or a "subsection" is expected, '
            "not another character",
            '[a ""]': 'cloud.conf:1: a subsection needs a name: remove the ""',
            '[a "b]\nx=1': "cloud.conf:1: a quote is not closed",
            '[a "\\q"]': 'cloud.conf:1: a backslash is allowed only before " and \\',
            "[a] x = 1": "cloud.conf:1: only a comment is allowed after a [section]",
            "x = 1": "cloud.conf:1: there is a key before the first [section]",
        }.items():
            self.assertEqual(self.why_not(text), error, text)


class ValueTests(GcfgCase):
    """Values of keys."""

    def test_plain(self) -> None:
        """Spaces around a value do not count, those within do."""
        self.assertEqual(value("key = a  b\t c \t"), "a  b\t c")
        self.assertEqual(value("  key=x"), "x")
        self.assertEqual(value("key ="), "")
        self.assertEqual(value("key = a=b]c[d"), "a=b]c[d")

    def test_comments(self) -> None:
        """A comment begins anywhere but in quotes."""
        self.assertEqual(value("key = a # b"), "a")
        self.assertEqual(value("key = a;b"), "a")
        self.assertEqual(value('key = "a # b; c" ; d'), "a # b; c")
        self.assertEqual(value("; key = b\nkey = c"), "c")
        self.assertEqual(value("key = #x"), "")

    def test_quotes(self) -> None:
        """Quotes keep what is in them, anywhere in a value."""
        self.assertEqual(value('key = " a "'), " a ")
        self.assertEqual(value('key = a" b "c'), "a b c")
        self.assertEqual(value('key = ""'), "")
        self.assertEqual(value('key = a "" '), "a ")
        self.assertEqual(value('key = "a""b"'), "ab")

    def test_escapes(self) -> None:
        """Four characters have a backslash in quotes, one has it elsewhere."""
        self.assertEqual(value(r'key = "a\n\t\"\\b"'), 'a\n\t"\\b')
        self.assertEqual(value(r"key = a\"b"), 'a"b')

    def test_continuation(self) -> None:
        """A backslash at the end of a line goes on with the next, and lines are counted on."""
        self.assertEqual(value("key = a\\\nb\\\r\n  c # d"), "ab  c")
        self.assertIn(":4:", self.why_not("[s]\nkey = a\\\nb\n!"))

    def test_repeated(self) -> None:
        """A repeated key makes a list; its last value is the single one."""
        section = read("[s]\ntag = a\nTAG = b\ntag = a\n").section("s")
        self.assertEqual((section.texts("tag"), section.text("tag")), (["a", "b", "a"], "a"))
        self.assertEqual(section.texts("other"), [])

    def test_bad_lines(self) -> None:
        """Syntax errors have the line, and never a value."""
        for text, error in {
            "[s]\n=1": "cloud.conf:2: a key or a [section] is expected, not another character",
            "[s]\n1a=1": "cloud.conf:2: a key or a [section] is expected, not another character",
            "[s]\npassword hunter2": "cloud.conf:2: '=' is expected after a key; "
            "names are letters, digits and hyphens",
            "[s]\nclient_secret=hunter2": "cloud.conf:2: '=' is expected after a key; "
            "names are letters, digits and hyphens",
            '[s]\na=1\npassword="hunter2\n': "cloud.conf:3: a quote is not closed in a value",
            "[s]\npassword=hunter2\\x": "cloud.conf:2: a backslash is allowed only before the end of the line"
            ' or " in a value',
            "[s]\nkey=a\\": "cloud.conf:2: a backslash is allowed only before the end of the line"
            ' or " in a value',
            '[s]\nkey="a\\\nb"': 'cloud.conf:2: a backslash is allowed only before n, t, " and \\ in a value',
            "[s]\n\nkey=\0": "cloud.conf:3: a NUL character",
        }.items():
            self.assertEqual(self.why_not(text), error, text)

    def test_limits(self) -> None:
        """A configuration has a largest size and a largest number of keys."""
        self.assertIn("larger than", self.why_not("#" * (CONFIG_LIMIT + 1)))
        read("[s]\n" + "k\n" * KEY_LIMIT)
        self.assertIn(f":{KEY_LIMIT + 2}: more than", self.why_not("[s]\n" + "k\n" * (KEY_LIMIT + 1)))


class ReadingTests(GcfgCase):
    """Typed values."""

    def wrong(self, line: str, ask: Callable[[Section], object]) -> str:
        """Return the error of a section with one line."""
        section = read(f"[s]\n{line}").section("s")
        return str(self.assertRaises(CloudConfigError, ask, section))

    def test_flags(self) -> None:
        """Truth has eight names, and a key alone is true."""
        text = "".join(f"{word} = {word}\n" for word in ("true", "yes", "on", "False", "NO", "off"))
        section = read(f"[s]\n{text}one = 1\nnull = 0\nbare\nagain = no\nagain").section("s")
        for key in ("true", "yes", "on", "one", "bare", "again"):
            self.assertTrue(section.flag(key), key)
        for key in ("false", "no", "off", "null"):
            self.assertFalse(section.flag(key, True), key)
        self.assertTrue(section.flag("absent", True))
        self.assertFalse(section.flag("absent"))

    def test_bad_flags(self) -> None:
        """An invalid boolean is an error with its key, without the value."""
        self.assertEqual(
            self.wrong("multizone = maybe", lambda s: s.flag("multizone")),
            "cloud.conf:2: multizone must be true or false",
        )
        for key in ("use-token", "zone"):
            self.assertNotIn("hunter2", self.wrong(f"{key} = hunter2", methodcaller("flag", key)))

    def test_numbers(self) -> None:
        """Numbers are decimal or hexadecimal, and have limits."""
        section = read("[s]\na = 010\nb = 0x1F\nc = 7\n").section("s")
        self.assertEqual([section.number(key, 5) for key in "abcd"], [10, 31, 7, 5])
        for text in ("", "x", "-1", "1.0", "1_0", "٣", "0x", "9" * 30):
            self.assertIn(
                ":2: n must be a number from", self.wrong(f"n = {text}", lambda s: s.number("n", 1))
            )
        self.assertIn("from 1 to 9", self.wrong("n = 10", lambda s: s.number("n", 1, least=1, most=9)))

    def test_texts(self) -> None:
        """A key without a value is not a text."""
        self.assertEqual(
            self.wrong("zone", lambda s: s.text("zone")), "cloud.conf:2: zone needs a value: zone = ..."
        )

    def test_required(self) -> None:
        """A required key must exist and not be empty."""
        self.assertEqual(read("[s]\nzone = a").section("s").required("zone"), "a")
        self.assertEqual(self.wrong("zone =", lambda s: s.required("zone")), "cloud.conf:2: zone is empty")
        self.assertEqual(self.wrong("a = b", lambda s: s.required("zone")), "cloud.conf:1: zone is missing")
        section = read("").section("s")
        error = self.assertRaises(CloudConfigError, section.required, "zone")
        self.assertEqual(str(error), "cloud.conf: zone is missing")

    def test_urls(self) -> None:
        """A URL is HTTP with a host; the error of an invalid one does not quote it."""
        section = read("[s]\nurl = http://[::1]:8080/v3/\n").section("s")
        self.assertEqual(section.url("url", ""), "http://[::1]:8080/v3")
        self.assertEqual(section.url("other", "https://ec2.example"), "https://ec2.example")
        for text in (
            "ftp://h",
            "h:80",
            "http://",
            "http://u:hunter2@h",
            "http://h?x",
            "http://h/ x",
            "http://h:0",
            "http://h:99999",
        ):
            error = self.wrong(f'url = "{text}"', lambda s: s.url("url", ""))
            self.assertEqual(error, "cloud.conf:2: url must be a URL like https://HOST/PATH")

    def test_wrong(self) -> None:
        """An error has file, line and text."""
        error = read("[s]\n\nzone = a").section("s").wrong("Zone", "no such zone")
        self.assertEqual((error.file, error.line, error.text), ("cloud.conf", 3, "no such zone"))

    def test_hidden(self) -> None:
        """Values are not in a repr."""
        self.assertNotIn("hunter2", repr(read("[s]\npassword = hunter2").section("s")))

    def test_unknown(self) -> None:
        """Each unknown section and key is one warning with file and line, and without its text."""
        sections = read('[Global]\nzone = a\nzoen = hunter2\nzoen = b\n[x]\ny = 1\n[O "p"]\nurl = 1\nq\n')
        with captured_logs() as logs:
            sections.warn_about_unknown({"global": ("Zone",), "o": ("url",)})
        self.assertEqual(
            [event["log_format"].format(**event) for event in logs],
            [
                "cloud.conf:3: unknown key in [global] ignored",
                "cloud.conf:5: unknown section ignored",
                "cloud.conf:9: unknown key in [o] ignored",
            ],
        )


NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9-]{0,8}", fullmatch=True)
NAMED = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\t"), min_size=1, max_size=30)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=30)


def quoted(text: str) -> str:
    """Write a text as a quoted value."""
    for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\t", "\\t")):
        text = text.replace(plain, escaped)
    return f'"{text}"'


class PropertyTests(SynchronousTestCase):
    """Properties of all texts."""

    @given(st.lists(st.tuples(NAMES, TEXTS), max_size=8), NAMED)
    @settings(max_examples=150)
    def test_round_trip(self, pairs: list[tuple[str, str]], subsection: str) -> None:
        """Any text in quotes is read back."""
        lines = "".join(f"{name} = {quoted(text)} # c\n" for name, text in pairs)
        section = read(f"[s {quoted(subsection)}]\n{lines}").section("S", subsection)
        expected: dict[str, list[str]] = {}
        for name, text in pairs:
            expected.setdefault(name.lower(), []).append(text)
        self.assertEqual({name: section.texts(name) for name in section.values}, expected)

    @given(st.text(st.sampled_from('ab[]"\\=#;\n\r\t -é1_\0'), max_size=60))
    @settings(max_examples=400)
    def test_anything(self, text: str) -> None:
        """Any text is read, or refused with a line that it has."""
        try:
            read(text)
        except CloudConfigError as e:
            self.assertLessEqual(1, e.line)
            self.assertLessEqual(e.line, text.count("\n") + 1)
