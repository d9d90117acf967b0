"""Bodies of watches: one JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from tower.escaping import reported
from tower.http.client_bodies import describe_failure
from tower.kube.client import APIError
from tower.kube.rest.host_api import EventType, WatchEvent

#: Longest line, B; etcd stores objects of up to 1.5 MiB.
LINE_LIMIT = 16 << 20

#: Longest silence, s; API servers send bookmarks every minute.
SILENCE = 180.0

#: How long after the requested time the server can end a watch, s.
OVERTIME = 60.0

#: Longest quotation of a strange line, B; the data of an object are not within it.
_QUOTED = 60

_TYPES: tuple[EventType, ...] = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


def is_stored(item: object, *, is_bookmark: bool = False) -> bool:
    """Return whether *item* has the metadata that every stored object has; a bookmark has only a version."""
    metadata = item.get("metadata") if isinstance(item, dict) else None
    keys = ("resourceVersion",) if is_bookmark else ("resourceVersion", "name", "uid")
    return isinstance(metadata, dict) and all(isinstance(metadata.get(key), str) for key in keys)


class WatchParser:
    """Splits a watch's body into events.  Sans-IO.

    :param path: of the watch, for errors.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[WatchEvent]:
        """Return the events that *data* completes.

        :raise APIError: the server sent an error event, or something else.
        """
        *lines, rest = data.split(b"\n")
        events = []
        for line in lines:
            self._pieces.append(line)
            whole = b"".join(self._pieces)
            self._pieces.clear()
            self._size = 0
            if whole.strip():
                events.append(self._event(whole))
        if rest:
            self._pieces.append(rest)
            self._size += len(rest)
        if self._size > LINE_LIMIT:
            raise self._error(0, f"an event has more than {LINE_LIMIT} B")
        return events

    def _event(self, line: bytes) -> WatchEvent:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            content = {}
        kind, item = content.get("type"), content.get("object")
        if kind == "ERROR" and isinstance(item, dict):
            raise self._status(item)
        for known in _TYPES:
            if kind == known and isinstance(item, dict) and is_stored(item, is_bookmark=known == "BOOKMARK"):
                return WatchEvent(known, item)
        raise self._error(0, f"not a watch event: {reported('the API server', line[:_QUOTED])}")

    def _status(self, status: dict[str, Any]) -> APIError:
        code, message, reason = status.get("code"), status.get("message"), status.get("reason")
        text = reported("the API server", message) if isinstance(message, str) else "an error event"
        return self._error(
            code if isinstance(code, int) else 500, text, reason if isinstance(reason, str) else ""
        )

    def _error(self, code: int, text: str, reason: str = "") -> APIError:
        return APIError("GET", self._path, code, text, reason=reason)


class WatchBody(Protocol):
    """Delivers the events of one watch; limits its time.

    :param path: of the watch, for errors.
    :param seconds: after which the server should end it.
    :ivar done: fires when the watch ends, or fails with `APIError`; cancelling it closes the connection.
    """

    def __init__(
        self, reactor: IReactorTime, path: str, deliver: Callable[[WatchEvent], None], seconds: float
    ) -> None:
        self._path = path
        self._parser = WatchParser(path)
        self._deliver = deliver
        self._is_over = False
        self.done: Deferred[None] = Deferred(self._canceled)
        self._silence: IDelayedCall = reactor.callLater(SILENCE, self.end)
        self._deadline: IDelayedCall = reactor.callLater(seconds + OVERTIME, self.end)

    def connectionMade(self) -> None:
        """Close the connection if the watch is over already."""
        if self._is_over:
            self._close()

    def dataReceived(self, data: bytes) -> None:
        """Deliver events."""
        if self._is_over:
            return
        self._silence.reset(SILENCE)
        try:
            events = self._parser.feed(data)
        except APIError as e:
            self.fail(e)
            return
        for event in events:
            self._deliver_open(event)

    def _deliver_open(self, event: WatchEvent) -> None:
        """Deliver *event* unless the delivery of an earlier one ended the watch."""
        if not self._is_over:
            self._deliver(event)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Finish, or fail if the connection was lost within the body."""
        if reason.check(ResponseDone, PotentialDataLoss):
            self.end()
            return
        error: Any = reason.value
        self.fail(APIError("GET", self._path, 0, describe_failure(error), error))

    def end(self) -> None:
        """End the watch: the server ended it, or is silent."""
        if self._finish():
            self.done.callback(None)

    def fail(self, error: APIError) -> None:
        """End the watch with *error*."""
        if self._finish():
            self.done.errback(error)

    def _canceled(self, _: object) -> None:
        self._finish()

    def _finish(self) -> bool:
        """Close the connection, which reports its loss at once; return whether it is the first call."""
        if self._is_over:
            return False
        self._is_over = True
        for timer in (self._silence, self._deadline):
            if timer.active():
                timer.cancel()
        self._close()
        return True

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()
