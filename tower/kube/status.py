"""Errors as Kubernetes Status objects; see the Kubernetes API conventions, "Response Status Kind"."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from tower.errors import (
    AlreadyExists,
    ClusterUnreachable,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    PeerError,
    TowerError,
    Unauthorized,
)
from tower.escaping import escaped, json_text, shortened

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    408: "Timeout",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    417: "BadRequest",
    422: "Invalid",
    429: "TooManyRequests",
    431: "BadRequest",
    500: "InternalError",
    501: "NotImplemented",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}

#: Longest text of a warning, characters.
WARNING_LIMIT = 1024

# In the text of a warning: characters that need a backslash, and the beginning of an RFC 2047 word, which
# client-go would decode.
_SPECIAL = re.compile(r'["\\]')
_ENCODED_WORD = re.compile(r"=\?")

#: A message that begins with a field's path, or with the name of an option.
_FIELD = re.compile(r"((?:metadata|spec|status)[.\[][^\s:]+|[a-z][A-Za-z]*): (.+)", re.DOTALL)
_NAME = "cluster name "

_UNAUTHORIZED = "Unauthorized"

_ERRORS: tuple[tuple[type[TowerError], int, str], ...] = (
    (Unauthorized, 401, _UNAUTHORIZED),
    (Forbidden, 403, "Forbidden"),
    (NotFound, 404, "NotFound"),
    (AlreadyExists, 409, "AlreadyExists"),
    (Conflict, 409, "Conflict"),
    (Invalid, 422, "Invalid"),
    (ClusterUnreachable, 503, "ServiceUnavailable"),
    (PeerError, 502, "BadGateway"),
)


class StatusError(TowerError):
    """An error answer.

    The message may quote a request or a peer, so it is escaped: clients print it unchanged.

    :ivar reason: machine-readable reason of the Status; by default the usual one for *code*.
    :ivar details: details of the Status, if any (``name``, ``kind``, ``retryAfterSeconds``, ...).
    :ivar kind: of the reason why Tower denies a user's request, for metrics: one of `POLICY_REFUSALS`.
    :ivar close: whether the user's connection must close after this answer.
    """

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        details: dict[str, Any] | None = None,
        kind: str = "other",
        close: bool = False,
    ) -> None:
        message = escaped(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.details = details or {}
        self.kind = kind
        self.close = close


def _begun(text: str, code: int) -> str:
    """Return the message; that of a 401 begins with kube-apiserver's, which has no more."""
    return text if code != 401 or text.startswith(_UNAUTHORIZED) else f"{_UNAUTHORIZED}: {text}"


def refusal_of(error: BaseException) -> StatusError:
    """Return the answer for *error*: subclasses of `TowerError` determine the code.

    Other exceptions are bugs: 500, without their text.
    """
    if isinstance(error, StatusError):
        return error
    for kind, code, reason in _ERRORS:
        if isinstance(error, kind):
            return StatusError(code, _begun(str(error), code), reason=reason)
    if isinstance(error, TowerError):
        return StatusError(500, str(error))
    return StatusError(500, "Tower failed to serve the request; the proxy's log has the reason")


def status_object(refusal: StatusError, request_id: str = "") -> dict[str, Any]:
    """Return the Status object for *refusal*, with the request ID in the message and in a cause.

    For an Invalid Status kubectl shows the kind, the name and the causes instead of the message, so the last
    cause ends with the request ID.
    """
    message, details = refusal.message, dict(refusal.details)
    end = f" (request {request_id})" if request_id else ""
    message += end
    if refusal.reason == "Invalid":
        details = _invalid(refusal.message, details, end)
    elif request_id:
        cause = {"reason": "RequestID", "message": request_id, "field": "request"}
        details["causes"] = [*details.get("causes", ()), cause]
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": refusal.reason,
    }
    if details:
        status["details"] = details
    status["code"] = refusal.code
    return status


def _invalid(text: str, details: dict[str, Any], end: str) -> dict[str, Any]:
    """Return the details of an Invalid Status whose last cause ends with *end*.

    If *text* names no field, they omit the kind and the name: only then kubectl shows the message.
    """
    causes = list(details.get("causes", ()))
    if not causes:
        field = _FIELD.match(text)
        if field is not None:
            path, text = field.groups()
        elif text.startswith(_NAME):
            path, text = "metadata.name", text.removeprefix(_NAME)
        else:
            return {key: value for key, value in details.items() if key not in ("kind", "name", "group")}
        causes.append({"reason": "FieldValueInvalid", "message": text, "field": path})
    causes[-1] = {**causes[-1], "message": f"{causes[-1]['message']}{end}"}
    return {**details, "causes": causes}


def status_line(code: int) -> bytes:
    """Return the status line for *code*, with its CRLF."""
    return _LINES.get(code) or b"HTTP/1.1 %d Unknown\r\n" % code


def request_id_lines(request_id: str) -> bytes:
    """Return the header lines that name the request in an answer: Tower's, and that of Kubernetes."""
    value = request_id.encode("ascii")
    return b"X-Request-Id: %b\r\nAudit-Id: %b\r\n" % (value, value)


def warning_line(text: str) -> bytes:
    """Return the header line that makes kubectl and client-go print *text* once.

    kubectl drops the text of a Status that answers a discovery request, but prints warnings (RFC 7234 section
    5.5) and omits repetitions.
    """
    return b"Warning: %b\r\n" % warning_value(text)


def warning_value(text: str) -> bytes:
    """Return the value of a ``Warning`` header field with *text*."""
    text = _ENCODED_WORD.sub("= ?", escaped(shortened(text, WARNING_LIMIT)))
    return b'299 tower "%b"' % _SPECIAL.sub(r"\\\g<0>", text).encode("utf-8", "replace")


_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_response(
    refusal: StatusError,
    request_id: str = "",
    *,
    close: bool = False,
    without_body: bool = False,
    warn: bool = False,
    extra: bytes = b"",
) -> bytes:
    """Return the complete HTTP answer for *refusal*.

    :param close: add ``Connection: close``.
    :param without_body: for HEAD requests.
    :param warn: repeat the message in a ``Warning`` line.
    :param extra: more header lines, each with its CRLF.
    """
    body = json_text(status_object(refusal, request_id)).encode() + b"\n"
    head = [
        status_line(refusal.code),
        b"Content-Type: application/json\r\nCache-Control: no-cache, private\r\n",
        b"X-Content-Type-Options: nosniff\r\nContent-Length: %d\r\n" % len(body),
        extra,
    ]
    if refusal.code == 401:
        head.append(b'WWW-Authenticate: Bearer realm="tower"\r\n')
    if retry := refusal.details.get("retryAfterSeconds"):
        head.append(b"Retry-After: %d\r\n" % retry)
    if request_id:
        head.append(request_id_lines(request_id))
    if warn:
        head.append(warning_line(refusal.message))
    if close:
        head.append(b"Connection: close\r\n")
    head.append(b"\r\n")
    if not without_body:
        head.append(body)
    return b"".join(head)
