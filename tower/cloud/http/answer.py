"""What a cloud answered."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from email.utils import parsedate_to_datetime
from typing import Any

from attrs import field, frozen
from twisted.web.http_headers import Headers

from tower.cloud.errors import CloudError

#: So much of what a cloud says about an error is shown, characters.
SHOWN = 300

_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<(?:Message|message)>([^<]*)</")
_TAG = re.compile(r"<[^<>]{0,1000}>")


@frozen
class Answer:
    """An answer, body and all.

    :ivar code: HTTP's status code.
    :ivar url: that was asked, without its query, for errors.
    """

    code: int
    headers: Headers = field(repr=False)
    body: bytes = field(repr=False)
    url: str = ""

    def header(self, name: str) -> str | None:
        """Return a field of the head; None: it is not there."""
        values = self.headers.getRawHeaders(name)
        return values[-1] if values else None

    @property
    def date(self) -> float | None:
        """The cloud's time, s since the epoch; None: it does not say."""
        return parse_date(self.header("date"))

    def text(self) -> str:
        """Return the body as text."""
        return self.body.decode(errors="replace")

    def json(self) -> Any:
        """Return the body's value.

        :raise CloudError: it is no JSON.
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise CloudError(f"{self.url} answered {self.code} with something that is not JSON") from None


def parse_date(text: str | None) -> float | None:
    """Return what HTTP calls a date, s since the epoch; None: it is none."""
    if text is None:
        return None
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None


def shorten(text: str) -> str:
    """Return what people should see of a text that somebody else wrote: one short line."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[: 8 * SHOWN]).split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"


def what_it_says(body: bytes, secrets: Collection[str] = ()) -> str:
    """Return what a cloud says about an error, on a line of at most `SHOWN` printable characters.

    :param secrets: of the request; some clouds repeat them.
    """
    text = body[: 64 * SHOWN].decode(errors="replace")
    said = _in_json(body) or _in_xml(text) or _TAG.sub(" ", text)
    for secret in secrets:
        said = said.replace(secret, "…")
    return shorten(said)


def _in_json(body: bytes) -> str:
    """Return the words of the usual forms: OAuth's, Google's, Azure's, OpenStack's."""
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
    fields = (
        value.get(name) for name in ("__type", "code", "error", "message", "Message", "error_description")
    )
    return ": ".join(each for each in fields if isinstance(each, str) and each)


def _in_xml(text: str) -> str:
    found = [match.group(1) for match in (_CODE.search(text), _MESSAGE.search(text)) if match]
    return ": ".join(found)
