r"""Parser of the INI dialect of clouds' configurations, which Go programs read with *gcfg*.

::

    # a comment; a semicolon begins one too
    [global]
    project-id = my-project        ; names: letters, digits and hyphens, case-insensitive
    node-tags = a                  # a repeated key makes a list
    node-tags = "b # no comment"   # in quotes, \n \t \" and \\ are escapes
    multizone                      # true
    token-url = https://exam\
    ple.com

    [ServiceOverride "eu"]         # names of subsections are case-sensitive
    url = https://ec2.example

No I/O; takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from tower.cloud.config.sections import Section, Sections, Value
from tower.cloud.config.text import CONFIG_LIMIT, ConfigText
from tower.cloud.errors import CloudConfigError

#: Maximum number of keys.
KEY_LIMIT = 10_000

_SPACE = re.compile(r"[ \t\r]*")
_NAME = re.compile(r"[^\W\d_](?:[^\W_]|-)*")  # a letter, then letters, digits, hyphens
_COMMENT = re.compile(r"[^\n]*")
_PLAIN = re.compile(r'[^\\"\n;#]+')
_QUOTED = re.compile(r'[^\\"\n]+')
_LINE_END = re.compile(r"\r?\n")
_SUBSECTION_ESCAPES = {'"': '"', "\\": "\\"}
_ESCAPES = {"n": "\n", "t": "\t", **_SUBSECTION_ESCAPES}


def parse(config: ConfigText) -> Sections:
    """Parse a configuration; raise `CloudConfigError`, ``<file>:<line>: ...``, for a syntax error."""
    if len(config.text) > CONFIG_LIMIT:
        raise CloudConfigError(config.path, 0, f"larger than {CONFIG_LIMIT} characters")
    return _Parser(config).parse()


class _Parser:
    """One pass through a text.

    Errors do not quote the text: it may be a password, or another file by mistake.
    """

    def __init__(self, config: ConfigText) -> None:
        self._file = config.path
        self._text = config.text
        self._at = 0
        self._line = 1

    def parse(self) -> Sections:
        if "\0" in self._text:
            self._line += self._text.count("\n", 0, self._text.index("\0"))
            self._fail("a NUL character")
        sections = Sections(self._file)
        section: Section | None = None
        keys = 0
        while True:
            self._skip(_SPACE)
            here = self._peek()
            if not here:
                return sections
            if here == "\n":
                self._next_line()
            elif here in ";#":
                self._skip(_COMMENT)
            elif here == "[":
                section = self._header(sections)
            elif section is None:
                self._fail("there is a key before the first [section]")
            else:
                keys += 1
                if keys > KEY_LIMIT:
                    self._fail(f"more than {KEY_LIMIT} keys")
                self._key(section)

    def _header(self, sections: Sections) -> Section:
        line = self._line
        self._at += 1
        self._skip(_SPACE)
        name = self._skip(_NAME)
        if not name:
            self._fail(f"after [ a section's name is expected, not {self._found()}")
        self._skip(_SPACE)
        subsection = ""
        if self._peek() == '"':
            subsection = self._quoted()
            if not subsection:
                self._fail('a subsection needs a name: remove the ""')
            self._skip(_SPACE)
        if self._peek() != "]":
            self._fail(f'after a section\'s name, ] or a "subsection" is expected, not {self._found()}')
        self._at += 1
        self._expect_end()
        return sections.open(name, subsection, line)

    def _key(self, section: Section) -> None:
        line = self._line
        name = self._skip(_NAME)
        if not name:
            self._fail(f"a key or a [section] is expected, not {self._found()}")
        self._skip(_SPACE)
        text: str | None = None
        if self._peek() == "=":
            self._at += 1
            self._skip(_SPACE)
            text = self._value(name)
        elif self._peek() not in ("", "\n", ";", "#"):
            self._fail("'=' is expected after a key; names are letters, digits and hyphens")
        section.values.setdefault(name.lower(), []).append(Value(line, text))

    def _value(self, name: str) -> str:
        """Read until the end of the line or a comment; trailing spaces are kept only in quotes."""
        parts: list[str] = []
        kept = 0  # parts that do not end with unquoted space
        while True:
            plain = self._skip(_PLAIN)
            if plain:
                bare = plain.rstrip(" \t\r")
                parts.append(bare)
                if bare:
                    kept = len(parts)
                if len(bare) < len(plain):
                    parts.append(plain[len(bare) :])
            here = self._peek()
            if here == '"':
                parts.append(self._quoted(name))
                kept = len(parts)
            elif here == "\\":
                parts.append(self._bare_escape(name))
                kept = len(parts)
            else:
                return "".join(parts[:kept]).replace("\r", "")

    def _quoted(self, name: str = "") -> str:
        """Read a quoted text of the key *name*; empty: the text is a subsection's name."""
        line = self._line
        parts = []
        self._at += 1
        while True:
            parts.append(self._skip(_QUOTED))
            here = self._peek()
            if here == '"':
                self._at += 1
                return "".join(parts).replace("\r", "")
            if here != "\\":
                self._line = line
                self._fail(f"a quote is not closed{_of(name)}")
            if name:
                parts.append(self._escape(name, _ESCAPES, 'n, t, " and \\'))
            else:
                parts.append(self._escape(name, _SUBSECTION_ESCAPES, '" and \\'))

    def _escape(self, name: str, known: Mapping[str, str], what: str) -> str:
        """Read an escape sequence."""
        self._at += 1
        character = known.get(self._peek())
        if character is None:
            self._fail(f"a backslash is allowed only before {what}{_of(name)}")
        self._at += 1
        return character

    def _bare_escape(self, name: str) -> str:
        """Read a backslash outside quotes, which may join lines."""
        match = _LINE_END.match(self._text, self._at + 1)
        if match is None:
            return self._escape(name, {'"': '"'}, 'the end of the line or "')
        self._at = match.end()
        self._line += 1
        return ""

    def _expect_end(self) -> None:
        self._skip(_SPACE)
        if self._peek() not in ("", "\n", ";", "#"):
            self._fail("only a comment is allowed after a [section]")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            return ""
        self._at = match.end()
        return match.group()

    def _next_line(self) -> None:
        self._at += 1
        self._line += 1

    def _found(self) -> str:
        return "the end of the line" if self._peek() in ("", "\n") else "another character"

    def _fail(self, text: str) -> NoReturn:
        raise CloudConfigError(self._file, self._line, text)


def _of(name: str) -> str:
    return " in a value" if name else ""
