"""The XML of AWS's Query APIs, read without what XML has and they do not use.

No document type, so no entities that grow or reach out; no more elements and no deeper than any answer needs.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers.expat import ExpatError, ParserCreate

from tower.cloud.errors import AnswerTooLarge, CloudError

#: Most elements in an answer; an instance has about 150, and 4 more for each address of a pod on it.
ELEMENT_LIMIT = 500_000

#: Deepest element of an answer; those of EC2 go down to about 12.
DEPTH_LIMIT = 32


class BadXML(CloudError):
    """An answer is no XML, or not of the kind that AWS sends."""


def parse_xml(data: bytes) -> Element:
    """Return the root of an answer; names are without their namespace's address.

    :raise BadXML: saying what is wrong, without quoting the answer.
    :raise AnswerTooLarge: it has more elements than `ELEMENT_LIMIT`.
    """
    builder = TreeBuilder()
    depth = count = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth, count
        depth += 1
        count += 1
        if depth > DEPTH_LIMIT:
            raise BadXML("the answer has elements that are too deep")
        if count > ELEMENT_LIMIT:
            raise AnswerTooLarge("the answer has too many elements")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def doctype(*_: object) -> None:
        raise BadXML("the answer declares a document type")

    parser = ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(data, True)  # noqa: FBT003 (that this is all)
    except ExpatError as e:
        raise BadXML(f"the answer is no XML: line {e.lineno}") from e
    return builder.close()


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
