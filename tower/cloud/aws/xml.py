"""The XML of AWS's Query APIs, read without what XML has and they do not use.

No document type, so no entities that grow or reach out; no more elements than any answer needs.  It is the
standard library's tree builder in C that makes elements: handlers in Python, three for each element, take
twice as long, and a page of EC2's has 30,000.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree.ElementTree import Element, ParseError, XMLParser

from tower.cloud.errors import AnswerTooLarge, CloudError
from tower.reactor.cooperate import yield_to_reactor

#: Most elements in an answer; an instance has about 150, and 4 more for each address of a pod on it.
ELEMENT_LIMIT = 500_000

#: So much is read before others have their turn, B: some ms.
PIECE = 1 << 18

# Stands in the first tag.
_NAMESPACE = re.compile(rb"""\sxmlns=(?:"[^"<>]*"|'[^'<>]*')""")
_HEAD = 1 << 10


class BadXML(CloudError):
    """An answer is no XML, or not of the kind that AWS sends."""


class _XMLReader:
    """Takes an answer part by part.

    :param unneeded: what may be left out, wherever it is found, without being looked into: elements from the
        begin to the end of each.
    """

    def __init__(self, data: bytes, unneeded: re.Pattern[bytes] | None) -> None:
        # Of the encodings that the parser knows by itself only UTF-8 writes this without zeros.
        if b"\0" in data:
            raise BadXML("the answer is no XML in UTF-8")
        if b"<!DOCTYPE" in data:
            raise BadXML("the answer declares a document type")
        if data.count(b"<") - data.count(b"</") > ELEMENT_LIMIT:
            raise AnswerTooLarge("the answer has too many elements")
        # What looks like a tag may be none within a comment or a CDATA section.
        self._unneeded = None if b"<!" in data else unneeded
        self._parser = XMLParser(encoding="utf-8")  # noqa: S314 (see above)

    def take(self, data: bytes, *, first: bool) -> None:
        if first:
            data = _NAMESPACE.sub(b"", data[:_HEAD], count=1) + data[_HEAD:]
        if self._unneeded is not None:
            data = self._unneeded.sub(b"", data)
        try:
            self._parser.feed(data)
        except ParseError as e:
            raise _bad(e) from None

    def end(self) -> Element:
        try:
            root: Element = self._parser.close()
        except ParseError as e:
            raise _bad(e) from None
        return root


def _bad(error: ParseError) -> BadXML:
    return BadXML(f"the answer is no XML: line {error.position[0]}")


def parse_xml(data: bytes) -> Element:
    """Return the root of an answer; names are without their namespace's address.

    :raise BadXML: saying what is wrong, without quoting the answer.
    :raise AnswerTooLarge: it has more elements than `ELEMENT_LIMIT`.
    """
    reader = _XMLReader(data, None)
    reader.take(data, first=True)
    return reader.end()


async def parse_long_xml(clock: Any, data: bytes, unneeded: re.Pattern[bytes]) -> Element:
    """The same for an answer that takes long, in pieces.

    :param clock: an ``IReactorTime``.
    :param unneeded: matches elements that may be left out.
    """
    reader = _XMLReader(data, unneeded)
    for at in range(0, len(data), PIECE):
        if at:
            await yield_to_reactor(clock)
        reader.take(data[at : at + PIECE], first=not at)
    return reader.end()


def text_of(element: Element, path: str) -> str:
    """Return the text below *element* at *path*, without blanks around it; empty if there is none."""
    return (element.findtext(path) or "").strip()


def error_of(root: Element) -> tuple[str, str]:
    """Return code and message of an answer that says what is wrong; empty ones if it is not such."""
    for path in ("Errors/Error", "Error"):
        found = root.find(path)
        if found is not None:
            return text_of(found, "Code"), text_of(found, "Message")
    return "", ""
