"""What the owner of a member cluster allows: which targets, and which requests to its API server.

The agent runs in the member's hands, so it is the place that says no, whatever the proxy asks for.  It
fails closed: a request that is not plainly somebody else's is never sent with the agent's own rights.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple, Protocol

from attrs import frozen

from tower.http.paths import has_dot_segment, leaves_prefix
from tower.kube.head_fields import FORM, RefusedHead, check_fields
from tower.kube.system_identities import NONE_ALLOWED, SystemIdentities

#: `Rewritten.length` of a body in chunks: its end is found by following its framing.
CHUNKED = -1


_LINE = re.compile(rb"(?!CONNECT )[A-Z]+ (/[!\"$-~]*) HTTP/1\.1\r\n")
# The same for most: "%", "\\" and ";" are in the query alone, and no segment of the path begins with a dot.
_PATH = rb"[!\"$&-\-/-:<->@-\[\]-~]*"
_PLAIN_LINE = re.compile(
    rb"(?!CONNECT )[A-Z]+ /" + _PATH + rb"(?:(?<!/)\." + _PATH + rb")*"
    rb"(?: HTTP/1\.1\r\n|\?[!\"$-~]* HTTP/1\.1\r\n)"
)  # fmt: skip

_LENGTH = b"Content-Length: "
_LONGEST_LENGTH = 18  # digits
_CHUNKED = b"Transfer-Encoding: chunked\r\n"

_EVERY = SystemIdentities(allow_all=True)

#: Fields of requests without a body that are known to be good: how many, and of what length at the most, B.
KNOWN_FIELDS = 256
LONGEST_KNOWN = 4096

# The proxy's last field, if it keeps an audit log; another one each time, and nothing else is.
_AUDIT_ID = b"Audit-Id: "
_TOLD = re.compile(rb"\r\n(Audit-Id: [0-9a-f-]{36}\r\n)\r\n")
_TOLD_SIZE = 2 + len(_AUDIT_ID) + 36 + 4


class Rewritten(NamedTuple):
    """A head to send to the API server.

    :ivar head: the bytes to send, the agent's credential in them.
    :ivar length: length of the body that follows, B, or `CHUNKED`.
    :ivar upgrade: the client asks for an upgrade: go raw if, and only if, the answer is 101.
    """

    head: bytes
    length: int = 0
    upgrade: bool = False

    def __repr__(self) -> str:
        """Leave the credential out."""
        return f"Rewritten(length={self.length}, upgrade={self.upgrade})"


@frozen
class Refusal:
    """Why a request is not sent on; the agent answers 403 with :ivar text: and closes the channel."""

    text: str


class Upstream(Protocol):
    """What a head needs to know of the API server; never changed, but replaced by another."""

    @property
    def prefix(self) -> bytes:
        """The path in front of every request's, without a slash at its end; mostly empty."""

    @property
    def host_line(self) -> bytes:
        """The `Host` field of the API server, its line end included."""

    @property
    def credential_line(self) -> bytes:
        """The `Authorization` field, its line end included; empty with a client certificate."""


class HeadPolicy:
    """Checks the head of each request for the API server and adds what it needs to be sent.

    Requests mostly differ in their first line and in their audit ID alone, so what became of the other fields
    is kept for the next ones.

    :param upstream: asked anew for each request, so that a rotated token counts at once; see
        `tower.kube.apiserver.APIServer.upstream`.
    :param identities: the cluster's own users and groups, as which only those act whom its owner lets.
    :param impersonate: False drops the users' identity: all act with the agent's own rights.
    :param why_not: the reason, or the cure, behind a refusal because of *identities*.
    """

    def __init__(
        self,
        upstream: Callable[[], Upstream],
        *,
        identities: SystemIdentities = NONE_ALLOWED,
        impersonate: bool = True,
        why_not: str = "to allow it, start the agent with --allow-system-identity NAME",
    ) -> None:
        self._upstream = upstream
        self._last: Upstream | None = None
        self._identities = identities if impersonate else _EVERY
        self._impersonate = impersonate
        self._why_not = why_not
        self._known: dict[
            bytes, bytes
        ] = {}  # fields that are good, and what is sent in their place to `_last`
        self.refused = 0

    def rewrite(self, head: bytes) -> Rewritten | Refusal:
        """Return *head*, from the request line to the empty line, as it goes to the API server.

        Accepted is one canonical order only: request line, `Content-Length` or `Transfer-Encoding`, one
        `Impersonate-User`, any `Impersonate-Group`, `-Uid` and `-Extra-…`, then the rest with one `Host`.
        """
        upstream = self._upstream()
        if upstream is not self._last:
            self._known.clear()
            self._last = upstream
        first = _PLAIN_LINE.match(head)
        told = b""
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
        if head[2 - _TOLD_SIZE : 2 - _TOLD_SIZE + len(_AUDIT_ID)] == _AUDIT_ID:
            last = _TOLD.fullmatch(head, len(head) - _TOLD_SIZE)
            if last is not None:
                told, head = last[1], head[: last.start(1)] + b"\r\n"
        fields = self._known.get(head[end:])
        if fields is not None:
            return Rewritten(b"%b%b%b" % (line, told, fields) if told else line + fields)
        try:
            framing, length, stop = _read_framing(head, end)
            fields, upgrade = self._checked(head[stop:])
        except RefusedHead as e:
            return self._refusal(str(e))
        return Rewritten(b"%b%b%b%b" % (line, told, framing, fields), length, upgrade)

    def _checked(self, block: bytes) -> tuple[bytes, bool]:
        """Return what is sent in place of the fields *block*, and whether they ask for an upgrade.

        :raise RefusedHead: they are not sent on.
        """
        fields = self._known.get(block)
        if fields is not None:
            return fields, False
        checked = check_fields(block, self._identities, self._why_not)
        upstream = self._last
        assert upstream is not None
        identity = checked.identity if self._impersonate else []
        fields = b"%b%b%b%b\r\n" % (
            b"\r\n".join([*identity, *checked.before, b""]),
            upstream.host_line,
            b"\r\n".join([*checked.after, b""]),
            upstream.credential_line,
        )
        if not checked.upgrade and len(block) <= LONGEST_KNOWN:
            if len(self._known) >= KNOWN_FIELDS:
                self._known.clear()
            self._known[block] = fields
        return fields, checked.upgrade

    def _refusal(self, text: str) -> Refusal:
        self.refused += 1
        return Refusal(text)


def _checked_line(head: bytes, prefix: bytes) -> bytes:
    """Return the request line of *head*.

    :param prefix: what goes in front of the path.
    :raise RefusedHead: it is not sent on.
    """
    match = _LINE.match(head)
    if match is None:
        raise RefusedHead(FORM)
    if has_dot_segment(match[1]):
        raise RefusedHead("the path of the request has a dot segment")
    if prefix and leaves_prefix(match[1]):
        raise RefusedHead(
            "the path of the request has an empty segment or a backslash, which may lead out of the path "
            "of the server in the kubeconfig"
        )
    return match[0]


def _read_framing(head: bytes, start: int) -> tuple[bytes, int, int]:
    """Return the line at *start* that says how long the body is, if it does; the length; where it ends.

    :raise RefusedHead: it is no length.
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
