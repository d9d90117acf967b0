"""The relay of requests whose bodies the audit log contains: it also copies them, within limits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, cast

from tower.http.responses import ResponseHead
from tower.net.pipes import Buffer
from tower.web.gateway.proxy_client import ProxyClient
from tower.web.gateway.relay import ProxyClientFactory

if TYPE_CHECKING:
    from tower.web.access.audit.entry import Entry

_TYPE = re.compile(rb"(?i)\r\ncontent-type:[\t ]*([^\r]*)")
_ENCODING = re.compile(rb"(?i)\r\ncontent-encoding:[\t ]*([^\r]*)")


class RecordingClient(ProxyClient):
    """Copies the body of the request, and the one of the answer, into the request's audit entry."""

    __slots__ = ()

    @property
    def _entry(self) -> Entry:
        entry = self.request.entry
        assert entry is not None, "only audited requests are recorded"
        return cast("Entry", entry)

    def begin(self, head: bytes, plain: bool) -> None:
        """Send the request; copy the part of its body that has arrived."""
        request = self.request
        record = self._entry.record_request(request.fields)
        if record is not None and request.early:
            record.add(request.early)
        super().begin(head, plain)

    def _send_body(self, data: Buffer) -> bool:
        record = self._entry.request_record
        if record is not None:
            record.add(data)
        return super()._send_body(data)

    def handleResponseHead(self, status: int, head: bytes) -> bytes:
        """Begin to copy the answer."""
        framing = ResponseHead(head, bodiless=self.request.method == b"HEAD").body
        media, encoding = _TYPE.search(head), _ENCODING.search(head)
        self._entry.record_answer(framing, media and media[1], encoding and encoding[1])
        return head

    def handleResponsePart(self, data: Buffer) -> Buffer:
        """Copy a part of the answer."""
        record = self._entry.answer_record
        if record is not None:
            record.add(data)
        return data


class RecordingFactory(ProxyClientFactory):
    """Sends one request on a channel into its cluster, and copies its bodies."""

    protocol: ClassVar[type[ProxyClient]] = RecordingClient

    __slots__ = ()
