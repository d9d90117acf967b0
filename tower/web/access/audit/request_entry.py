"""The interface between a request and its audit entry.

`tower.web.access.audit.entry.Entry` implements all of it.  The entry of an equal request
(`tower.web.access.audit.known_entry`) records only answer and end: it has no bodies, and its decisions are
known.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from mypy_extensions import mypyc_attr

from tower.escaping import json_text
from tower.http.requests import Fields
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit.body_record import BodyRecord
    from tower.web.access.authentication.identity import Identity

#: Fields of a Status, of its details and of their causes that are strings.
_TEXTS: Final = ("status", "message", "reason")
_DETAILS: Final = ("name", "group", "kind", "uid")
_CAUSE: Final = ("reason", "message", "field")

#: Largest number in a field of type ``int32``.
_INT32: Final = (1 << 31) - 1

#: The answer, until there is one.
UNANSWERED: Final = ResponseRecord(0)


@mypyc_attr(allow_interpreted_subclasses=True)
class RequestEntry:
    """The base of both kinds of entries.

    :ivar received: s since the epoch.
    :ivar records_bodies: whether bodies are copied for the events.
    :ivar status: ``responseStatus`` from a member's Status, in JSON; empty: the member sent none.
    """

    __slots__ = ("_answer", "received", "records_bodies", "status")

    records_bodies: bool
    _answer: ResponseRecord
    received: float
    status: str

    def admitted(self, identity: Identity) -> None:
        """Record how access policies admitted the user."""

    def acts_as(self, identity: Identity) -> None:
        """Record that the request acts as *identity*."""

    def decided(self, decision: str, reason: str) -> None:
        """Record the decision of the modes of authorization."""

    def answered(self, answer: ResponseRecord) -> None:
        """Record that the status was sent; only the first call counts."""
        if self._answer is UNANSWERED:
            self._answer = answer

    def member_status(self, code: int, body: bytes) -> None:
        """Record *body*, of a member's answer with status *code*, if it is a Status; otherwise ignore it."""
        try:
            value = json.loads(body)
        except (ValueError, RecursionError):
            return
        if not isinstance(value, dict) or value.get("kind") != "Status":
            return
        known: dict[str, Any] = _texts(value, _TEXTS)
        if isinstance(details := value.get("details"), dict):
            known["details"] = _details(details)
        self.status = json_text({"metadata": {}, **known, "code": code}, separators=(",", ":"))

    def ended(self) -> None:
        """Record that the request has ended; only the first call counts."""
        raise NotImplementedError

    # Bodies

    def record_request_body(self, fields: Fields, body: bytes) -> None:
        """Copy the whole body of a request that Tower answers itself; it has no framing."""

    def record_answer(self, framing: int, media: bytes | None, encoding: bytes | None) -> BodyRecord | None:
        """Begin to copy the body of the answer; return the copy, or None."""
        return None


def _texts(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if isinstance(value.get(key), str)}


def _details(value: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Status's details that have the right types.

    One event that is not of the type ``audit.k8s.io/v1`` would make a webhook reject all events of its batch.
    """
    found = _texts(value, _DETAILS)
    causes = value.get("causes")
    if isinstance(causes, list):
        found["causes"] = [_texts(each, _CAUSE) for each in causes if isinstance(each, dict)]
    seconds = value.get("retryAfterSeconds")
    if type(seconds) is int and 0 <= seconds <= _INT32:
        found["retryAfterSeconds"] = seconds
    return found
