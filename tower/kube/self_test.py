"""Self-test of the request check on this Python, run at the start of both programs.

Who acts as whom in a cluster depends on the interpreter as well: with ``re`` of Python 3.11.0 to 3.11.4 an
earlier check passed heads that it should not (CPython issues 100061 and 106052).
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from attrs import frozen

from tower.errors import ConfigurationError
from tower.kube.head_policy import HeadPolicy, Refusal, Upstream


@frozen
class _Server:
    """An API server that is nowhere."""

    prefix: bytes = b""
    host_line: bytes = b"Host: api\r\n"
    credential_line: bytes = b"Authorization: Bearer x\r\n"


_BEHIND = _Server(prefix=b"/k8s/c-1")

_GET = b"GET /api/v1/pods HTTP/1.1\r\n"
_JANE = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\n"
_HOST = b"Host: x\r\n"
_SENT = _JANE + b"Host: api\r\n"
_END = b"Authorization: Bearer x\r\n\r\n"

#: Heads without the empty line, and as what they go on.
_GOOD = (
    (_Server(), _GET + _JANE + _HOST + b"Accept: */*\r\n", _GET + _SENT + b"Accept: */*\r\n"),
    (
        _Server(),
        _GET + b"Content-Length: 2\r\n" + _JANE + b"Impersonate-Group: system:authenticated\r\n" + _HOST,
        _GET + b"Content-Length: 2\r\n" + _SENT,
    ),
    (
        _BEHIND,
        _GET + _JANE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + _HOST,
        b"GET /k8s/c-1/api/v1/pods HTTP/1.1\r\n" + _JANE
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nHost: api\r\n",
    ),
)  # fmt: skip

#: Heads without the empty line that go nowhere.
_BAD = (
    (_Server(), _GET + _HOST),
    (_Server(), _GET + b"Impersonate-User: \r\n" + _HOST),
    (_Server(), _GET + _JANE + b"Impersonate-User: root\r\n" + _HOST),
    (_Server(), _GET + _JANE + _HOST + b"impersonate-user: root\r\n"),
    (_Server(), _GET + _JANE + b"Impersonate-Group: system:masters\r\n" + _HOST),
    (_Server(), _GET + b"Impersonate-User: system:admin\r\n" + _HOST),
    (_Server(), _GET + _JANE + _HOST + b"X-Remote-User: root\r\n"),
    (_Server(), _GET + _JANE + _HOST + b"Authorization: Bearer y\r\n"),
    (_Server(), _GET + b"Content-Length: 1\r\nContent-Length: 2\r\n" + _JANE + _HOST),
    (_Server(), _GET + _JANE + _HOST + b"Transfer-Encoding: chunked\r\n"),
    (_Server(), _GET + _JANE + _HOST + b"A: b\n"),
    (_Server(), b"GET /api/%2e%2e/pods HTTP/1.1\r\n" + _JANE + _HOST),
    (_BEHIND, b"GET //api HTTP/1.1\r\n" + _JANE + _HOST),
)


def check_head_policy(make: Callable[[Callable[[], Upstream]], HeadPolicy] = HeadPolicy) -> None:
    """Show some heads, each to a policy of its own, and twice, since a policy keeps what was good.

    :param make: returns a policy.
    :raise ConfigurationError: what became of one is not what should.
    """
    for server, head, sent in _GOOD:
        _expect(make, server, head, sent + _END)
    for server, head in _BAD:
        _expect(make, server, head, None)


def _expect(
    make: Callable[[Callable[[], Upstream]], HeadPolicy], server: _Server, head: bytes, sent: bytes | None
) -> None:
    policy = make(lambda: server)
    for _ in range(2):
        answer = policy.rewrite(head + b"\r\n")
        if (None if isinstance(answer, Refusal) else answer.head) != sent:
            fate = "is not refused" if sent is None else "is not forwarded as it should be"
            raise ConfigurationError(
                f"the check of requests does not work on Python {platform.python_version()}: "
                f"{head!r} {fate}; run Tower on another build of Python"
            )
