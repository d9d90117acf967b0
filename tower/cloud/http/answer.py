"""Responses of clouds, and the texts of their errors."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from typing import Any

from attrs import field, frozen
from twisted.web.http_headers import Headers

from tower.cloud.errors import CloudError

#: Maximum length of a cloud's text in errors and logs, characters.
SHOWN = 300

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<(?:Message|message)>([^<]*)</")
_TAG = re.compile(r"<[^<>]{0,1000}>")


@frozen
class Answer:
    """A complete response.

    :ivar code: HTTP status.
    :ivar url: of the request, without its query, for errors.
    """

    code: int
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    url: str = ""

    def header(self, name: str) -> str | None:
        """Return a header field; None: there is none."""
        values = self.headers.getRawHeaders(name)
        return values[-1] if values else None

    @property
    def date(self) -> float | None:
        """The cloud's time, s since the epoch; None: unknown."""
        return parse_date(self.header("date"))

    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body's JSON value; raise `CloudError` if it is not JSON."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise self.not_json() from None

    def not_json(self) -> CloudError:
        """Return the error for a body that is not JSON; it does not quote the body."""
        return CloudError(f"{self.url} answered {self.code} with something that is not JSON")

    def unexpected(self) -> CloudError:
        """Return the error for a JSON body of an unexpected form; it does not quote the body."""
        return CloudError(f"{self.url} answered {self.code} with JSON of an unexpected form")


def parse_date(text: str | None) -> float | None:
    """Return an HTTP date, s since the epoch; None: it is not valid."""
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def shorten(text: str) -> str:
    """Return a text from outside as one line of at most `SHOWN` printable characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * SHOWN]).split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def error_detail(body: bytes, secrets: Collection[str] = ()) -> str:
    """Return the text of a cloud's error response, shortened as by `shorten`.

    :param secrets: secrets of the request, which are removed: some clouds repeat them.
    """
    text = body[: 64 * SHOWN].decode(errors="replace")
    detail = _in_json(body) or _in_xml(text) or _TAG.sub(" ", text)
    for secret in secrets:
        detail = detail.replace(secret, "…")
    return shorten(detail)


def _in_json(body: bytes) -> str:
    """Return the text of the usual forms: OAuth's, Google's, Azure's, OpenStack's."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if isinstance(value, dict) and len(value) == 1:
        (inner,) = value.values()
        value = inner if isinstance(inner, dict) else value
    if not isinstance(value, dict):
        return ""
    inner = value.get("error")
    if isinstance(inner, dict):
        value = inner
    names = ("__type", "code", "error", "message", "Message", "error_description")
    return ": ".join(each for each in map(value.get, names) if isinstance(each, str) and each)


def _in_xml(text: str) -> str:
    return ": ".join(match.group(1) for match in (_CODE.search(text), _MESSAGE.search(text)) if match)
