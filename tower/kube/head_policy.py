"""The agent's policy for requests to the member's API server.

The agent belongs to the member cluster's owner, so the agent enforces the policy, regardless of the proxy.
It fails closed: a request without exactly one impersonated user is never sent with the agent's own rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from tower.http.paths import has_dot_segment, leaves_prefix
from tower.kube.head_fields import FORM, RefusedHead, Upstream, check_fields
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities

#: `Rewritten.length` of a chunked body.
CHUNKED: Final = -1

_LINE: Final = re.compile(rb"(?!CONNECT )[A-Z]+ (/[!\"$-~]*) HTTP/1\.1\r\n")
# Common case: "%", "\\" and ";" occur in the query only, and no path segment begins with a dot.
_PATH: Final = rb"[!\"$&-\-/-:<->@-\[\]-~]*"
_PLAIN_LINE: Final = re.compile(
    rb"(?!CONNECT )[A-Z]+ /" + _PATH + rb"(?:(?<!/)\." + _PATH + rb")*"
    rb"(?: HTTP/1\.1\r\n|\?[!\"$-~]* HTTP/1\.1\r\n)"
)  # fmt: skip

_LENGTH: Final = b"Content-Length: "
_LONGEST_LENGTH: Final = 18  # digits
_CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"

_EVERY: Final = SystemIdentities(allow_all=True)

#: Cache of checked fields of requests without a body: most entries, and longest key, B.
KNOWN_FIELDS: Final = 256
LONGEST_KNOWN: Final = 4096

# The proxy's last field if it keeps an audit log; the only one that differs between similar requests.
_AUDIT_ID: Final = b"Audit-Id: "
_AUDIT_FIELD: Final = re.compile(rb"\r\n(Audit-Id: [0-9a-f-]{36}\r\n)\r\n")
_AUDIT_SIZE: Final = 2 + len(_AUDIT_ID) + 36 + 4


_OVERRIDDEN: Final = (
    "the request has a credential, and the agent's own is a client certificate, which would take precedence: "
    "give the agent a token instead, to use --allow-member-tokens"
)


def refuse_member_tokens() -> str:
    """Return why requests must not carry a token of the member's own, if its owner does not allow it."""
    return (
        "the request has a credential; the agent forwards requests with its own credential only (tokens of "
        "this cluster's own accounts need an agent with --allow-member-tokens)"
    )


def allow_member_tokens() -> str:
    """Return an empty text: requests may carry a token of the member's own."""
    return ""


class Rewritten(NamedTuple):
    """A head to send to the API server.

    :ivar head: with the agent's credential.
    :ivar length: length of the following body, B, or `CHUNKED`.
    :ivar upgrade: the client requests an upgrade: relay raw bytes if, and only if, the answer is 101.
    """

    head: bytes
    length: int = 0
    upgrade: bool = False

    def __repr__(self) -> str:
        """Omit the credential."""
        return f"Rewritten(length={self.length}, upgrade={self.upgrade})"


class Refusal(NamedTuple):
    """Why a request is rejected; the agent answers 403 with :ivar text: and closes the channel."""

    text: str


@mypyc_attr(allow_interpreted_subclasses=True)
class HeadPolicy:
    """Checks the heads of requests for the API server and completes them.

    Most requests differ only in the request line and audit ID, so checked fields are cached.

    :param upstream: called for each request, so that a rotated token is used at once; see
        `tower.kube.apiserver.APIServer.upstream`.
    :param identities: rule for system identities, which users may impersonate only if the owner allows it.
    :param impersonate: False drops the users' identity: all requests have the agent's own rights.
    :param why_not: reason or cure in rejections because of *identities*.
    :param member_tokens: returns why requests must not carry a token of the member's own; empty: they may.
    """

    def __init__(
        self,
        upstream: Callable[[], Upstream],
        *,
        identities: SystemIdentities = NONE_ALLOWED,
        impersonate: bool = True,
        why_not: str = "to allow it, start the agent with --allow-system-identity NAME",
        member_tokens: Callable[[], str] = refuse_member_tokens,
    ) -> None:
        self._upstream = upstream
        self._last: Upstream | None = None
        self._identities = identities if impersonate else _EVERY
        self._impersonate = impersonate
        self._why_not = why_not
        self._member_tokens = member_tokens
        self._known: dict[bytes, bytes] = {}  # accepted fields -> fields as sent to `_last`
        self.refused = 0

    def rewrite(self, head: bytes) -> Rewritten | Refusal:
        """Return *head*, from the request line to the empty line, as it is sent to the API server.

        Only the canonical order is accepted: request line, `Content-Length` or `Transfer-Encoding`, one
        `Impersonate-User`, any `Impersonate-Group`, `-Uid` and `-Extra-…`, then other fields with one `Host`.
        """
        upstream = self._upstream()
        if upstream is not self._last:
            self._known.clear()
            self._last = upstream
        first = _PLAIN_LINE.match(head)
        audit_id = b""
        if first is not None and not upstream.prefix:
            end = first.end()
            line = head[:end]
        else:
            try:
                line = _checked_line(head, upstream.prefix)
            except RefusedHead as e:
                return self._refusal(str(e))
            end = len(line)
            line = line.replace(b" ", b" " + upstream.prefix, 1)
        if head[2 - _AUDIT_SIZE : 2 - _AUDIT_SIZE + len(_AUDIT_ID)] == _AUDIT_ID:
            last = _AUDIT_FIELD.fullmatch(head, len(head) - _AUDIT_SIZE)
            if last is not None:
                audit_id, head = last[1], head[: last.start(1)] + b"\r\n"
        fields = self._known.get(head[end:])
        if fields is not None:
            return Rewritten(b"%b%b%b" % (line, audit_id, fields) if audit_id else line + fields)
        try:
            framing, length, stop = _read_framing(head, end)
            fields, upgrade = self._checked(head[stop:])
        except RefusedHead as e:
            return self._refusal(str(e))
        return Rewritten(b"%b%b%b%b" % (line, audit_id, framing, fields), length, upgrade)

    def _checked(self, block: bytes) -> tuple[bytes, bool]:
        """Return the fields to send for *block*, and whether they request an upgrade.

        :raise RefusedHead: they are rejected.
        """
        fields = self._known.get(block)
        if fields is not None:
            return fields, False
        upstream = self._last
        assert upstream is not None
        refusal = _OVERRIDDEN if upstream.has_certificate else self._member_tokens()
        checked = check_fields(block, self._identities, self._why_not, refusal)
        identity = checked.identity if self._impersonate or checked.has_token else []
        fields = b"%b%b%b%b\r\n" % (
            b"\r\n".join([*identity, *checked.before, b""]),
            upstream.host_line,
            b"\r\n".join([*checked.after, b""]),
            b"" if checked.has_token else upstream.credential_line,
        )
        if not (checked.upgrade or checked.has_token) and len(block) <= LONGEST_KNOWN:
            if len(self._known) >= KNOWN_FIELDS:
                self._known.clear()
            self._known[block] = fields
        return fields, checked.upgrade

    def _refusal(self, text: str) -> Refusal:
        self.refused += 1
        return Refusal(text)


def _checked_line(head: bytes, prefix: bytes) -> bytes:
    """Return the request line of *head*.

    :param prefix: will be prepended to the path.
    :raise RefusedHead: it is rejected.
    """
    match = _LINE.match(head)
    if match is None:
        raise RefusedHead(FORM)
    if has_dot_segment(match[1]):
        raise RefusedHead("the request path has a dot segment")
    if prefix and leaves_prefix(match[1]):
        raise RefusedHead(
            "the request path has an empty segment or a backslash, so it may leave the path of the "
            "kubeconfig's server"
        )
    return match[0]


def _read_framing(head: bytes, start: int) -> tuple[bytes, int, int]:
    """Return the framing line at *start*, if any; the body's length; the position after the line.

    :raise RefusedHead: the length is invalid.
    """
    if head.startswith(_LENGTH, start):
        stop = head.find(b"\r\n", start) + 2
        digits = head[start + len(_LENGTH) : stop - 2]
        if not digits.isdigit() or len(digits) > _LONGEST_LENGTH:
            raise RefusedHead(FORM)
        return head[start:stop], int(digits), stop
    if head.startswith(_CHUNKED, start):
        stop = start + len(_CHUNKED)
        return _CHUNKED, CHUNKED, stop
    return b"", 0, start
