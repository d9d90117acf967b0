"""Reader of the XML of AWS's Query APIs, without document types, and with a limit of elements.

Without a document type there are no entities that grow or load files.  The standard library's tree builder in
C makes the elements: three handlers in Python for each take twice as long, and a page of EC2's has 30,000.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, ParseError, XMLParser

from twisted.internet.interfaces import IReactorTime

from tower.cloud.errors import AnswerTooLarge, CloudError
from tower.reactor.cooperate import yield_to_reactor

#: Maximum number of elements in a response; an instance has about 150, and 4 for each address of a pod.
ELEMENT_LIMIT = 500_000

#: Size of the pieces between which the reactor runs, B: some ms.
PIECE = 1 << 18

# In the first tag.
_NAMESPACE = re.compile(rb"""\sxmlns=(?:"[^"<>]*"|'[^'<>]*')""")
_HEAD = 1 << 10


class BadXML(CloudError):
    """A response is not XML as AWS sends it."""


class _XMLReader:
    """Reads a response piece by piece; whole elements that *unneeded* matches are cut out before parsing."""

    def __init__(self, data: bytes, unneeded: re.Pattern[bytes] | None) -> None:
        # UTF-8 is the only encoding without zero bytes that the parser detects.
        if b"\0" in data:
            raise BadXML("the response is not XML in UTF-8")
        if b"<!DOCTYPE" in data:
            raise BadXML("the response declares a document type")
        if data.count(b"<") - data.count(b"</") > ELEMENT_LIMIT:
            raise AnswerTooLarge("the response has too many elements")
        # Comments and CDATA sections may have text that looks like a tag.
        self._unneeded = None if b"<!" in data else unneeded
        self._parser = XMLParser(encoding="utf-8")  # noqa: S314 (see above)

    def feed(self, data: bytes, *, first: bool) -> None:
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
    return BadXML(f"the response is not XML: line {error.position[0]}")


def parse_xml(data: bytes) -> Element:
    """Return the root of a response; names have no namespace.

    :raise BadXML: it is not valid; the error does not quote it.
    :raise AnswerTooLarge: it has more elements than `ELEMENT_LIMIT`.
    """
    reader = _XMLReader(data, None)
    reader.feed(data, first=True)
    return reader.end()


async def parse_long_xml(clock: IReactorTime, data: bytes, unneeded: re.Pattern[bytes]) -> Element:
    """Return the root of a long response, parsed in pieces; see `parse_xml`.

    :param unneeded: matches whole elements that are cut out.
    """
    reader = _XMLReader(data, unneeded)
    for at in range(0, len(data), PIECE):
        if at:
            await yield_to_reactor(clock)
        reader.feed(data[at : at + PIECE], first=not at)
    return reader.end()


def text_of(element: Element, path: str) -> str:
    """Return the stripped text at *path* below *element*; empty: there is none."""
    return (element.findtext(path) or "").strip()


def error_of(root: Element) -> tuple[str, str]:
    """Return code and message of an error response; empty for other responses."""
    for path in ("Errors/Error", "Error"):
        found = root.find(path)
        if found is not None:
            return text_of(found, "Code"), text_of(found, "Message")
    return "", ""
