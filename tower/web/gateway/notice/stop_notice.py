"""The last frames of upgraded connections: the reason, in the form that their clients print.

* **Commands over WebSockets** (``kubectl exec``, ``attach``, ``cp``): a Status on the error channel, then a
  normal close, as kube-apiserver ends a command that failed.  kubectl prints only its message.
* **Commands over SPDY**: a Status on the error stream, which is the first one that client-go opens, and the
  end of the others.  Without it, kubectl treats the end of the connection as success, exit code 0.
* **Other WebSockets**: a close frame with code 1001 and the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tower.http.responses import ResponseHead
from tower.kube.status import StatusError, status_object
from tower.web.gateway.notice.boundaries import Boundaries, SPDYBoundaries, WebSocketBoundaries
from tower.web.request_kind import EXEC, request_kind
from tower.websocket.frames import BINARY, CLOSE, FrameWriter

if TYPE_CHECKING:
    from tower.web.gateway.request import Request

#: Makes the last frames with a reason.
MakeFrames: TypeAlias = Callable[[str], bytes]

#: Subprotocols whose error channel carries a Status, and the number of that channel.
_WITH_STATUS = (b"v4.channel.k8s.io", b"v5.channel.k8s.io")
_ERROR_CHANNEL = b"\x03"

#: Codes of close frames (RFC 6455 section 7.4.1), and the longest reason of one, B.
_NORMAL, _GOING_AWAY = 1000, 1001
_LONGEST_REASON = 123

#: Streams of a command over SPDY: the one for errors, and the most that client-go opens after it: standard
#: input, output and error, and sizes of the terminal.
_ERROR_STREAM = 1
_OTHER_STREAMS = (3, 5, 7, 9)
_LAST_OF_STREAM = 1

_WRITER = FrameWriter(to_server=False)


class StopNotice(NamedTuple):
    """How a connection ends.

    :ivar boundaries: of the frames that go to the user.
    :ivar last_frames: makes the last of them.
    """

    boundaries: Boundaries
    last_frames: MakeFrames


def stop_notice_for(request: Request, head: ResponseHead) -> StopNotice | None:
    """Return how an upgraded connection ends; None: its protocol has no frames for a reason.

    :param head: of the response that accepts the upgrade.
    """
    lines = (line.partition(b": ") for line in head.lines.split(b"\r\n"))
    fields = {name.lower(): value for name, _, value in lines}
    upgrade = fields.get(b"upgrade", b"").lower()
    is_command = request_kind(request.method, request.target, request.fields.upgrade) == EXEC
    if upgrade == b"websocket":
        has_status = is_command and fields.get(b"sec-websocket-protocol") in _WITH_STATUS
        return StopNotice(WebSocketBoundaries(), _status_message if has_status else _going_away)
    if upgrade == b"spdy/3.1" and is_command and fields.get(b"x-stream-protocol-version") in _WITH_STATUS:
        return StopNotice(SPDYBoundaries(), _status_on_stream)
    return None


def _status(reason: str) -> bytes:
    return json.dumps(status_object(StatusError(503, reason))).encode()


def _close(code: int, reason: bytes = b"") -> bytes:
    return _WRITER.wrap(code.to_bytes(2, "big") + reason, CLOSE)


def _status_message(reason: str) -> bytes:
    return _WRITER.wrap(_ERROR_CHANNEL + _status(reason), BINARY) + _close(_NORMAL)


def _going_away(reason: str) -> bytes:
    text = reason.encode()[:_LONGEST_REASON]
    return _close(_GOING_AWAY, text.decode(errors="ignore").encode())


def _status_on_stream(reason: str) -> bytes:
    frames = [_last_data(_ERROR_STREAM, _status(reason))]
    return b"".join((*frames, *(_last_data(number) for number in _OTHER_STREAMS)))


def _last_data(stream: int, data: bytes = b"") -> bytes:
    """Return a data frame of SPDY that ends *stream*."""
    return stream.to_bytes(4, "big") + bytes((_LAST_OF_STREAM,)) + len(data).to_bytes(3, "big") + data
