"""The interface between a request and its audit entry.

`tower.web.access.audit.entry.Entry` implements all of it.  The entry of an equal request
(`tower.web.access.audit.known_entry`) records only answer and end: it has no bodies, and its decisions are
known.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tower.escaping import json_text
from tower.http.requests import Fields
from tower.web.outcome import ResponseRecord

if TYPE_CHECKING:
    from tower.web.access.audit.body_record import BodyRecord
    from tower.web.access.authentication.identity import Identity

#: The answer, until there is one.
UNANSWERED = ResponseRecord(0)


class RequestEntry:
    """The base of both kinds of entries.

    :ivar received: s since the epoch.
    :ivar records_bodies: whether bodies are copied for the events.
    :ivar status: ``responseStatus`` from a member's Status, in JSON; empty: the member sent none.
    """

    __slots__ = ("_answer", "received", "status")

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
        known = {
            key: value[key] for key in ("status", "message", "reason", "details", "code") if key in value
        }
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
