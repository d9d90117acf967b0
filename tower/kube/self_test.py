"""Self-test of the head policy, run at the start of both programs.

The policy depends on the Python interpreter: with ``re`` of Python 3.11.0 to 3.11.4, an earlier version
accepted heads that it should have rejected (CPython issues 100061 and 106052).
"""

from __future__ import annotations

import platform
from collections.abc import Callable

from tower.errors import ConfigurationError
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy, Refusal

_PLAIN = Upstream(b"", b"Host: api\r\n", b"Authorization: Bearer x\r\n")
_PREFIXED = Upstream(b"/k8s/c-1", b"Host: api\r\n", b"Authorization: Bearer x\r\n")

_GET = b"GET /api/v1/pods HTTP/1.1\r\n"
_JANE = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\n"
_HOST = b"Host: x\r\n"
_SENT = _JANE + b"Host: api\r\n"
_END = b"Authorization: Bearer x\r\n\r\n"

#: Accepted heads, without the empty line, and the heads to send for them.
_GOOD = (
    (_PLAIN, _GET + _JANE + _HOST + b"Accept: */*\r\n", _GET + _SENT + b"Accept: */*\r\n"),
    (
        _PLAIN,
        _GET + b"Content-Length: 2\r\n" + _JANE + b"Impersonate-Group: system:authenticated\r\n" + _HOST,
        _GET + b"Content-Length: 2\r\n" + _SENT,
    ),
    (
        _PREFIXED,
        _GET + _JANE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" + _HOST,
        b"GET /k8s/c-1/api/v1/pods HTTP/1.1\r\n" + _JANE
        + b"Connection: Upgrade\r\nUpgrade: websocket\r\nHost: api\r\n",
    ),
)  # fmt: skip

#: Rejected heads, without the empty line.
_BAD = (
    (_PLAIN, _GET + _HOST),
    (_PLAIN, _GET + b"Impersonate-User: \r\n" + _HOST),
    (_PLAIN, _GET + _JANE + b"Impersonate-User: root\r\n" + _HOST),
    (_PLAIN, _GET + _JANE + _HOST + b"impersonate-user: root\r\n"),
    (_PLAIN, _GET + _JANE + b"Impersonate-Group: system:masters\r\n" + _HOST),
    (_PLAIN, _GET + b"Impersonate-User: system:admin\r\n" + _HOST),
    (_PLAIN, _GET + _JANE + _HOST + b"X-Remote-User: root\r\n"),
    (_PLAIN, _GET + _JANE + _HOST + b"Authorization: Bearer y\r\n"),
    (_PLAIN, _GET + b"Authorization: Bearer y\r\n" + _HOST),
    (_PLAIN, _GET + b"Authorization: Bearer y\r\n" + _JANE + _HOST),
    (_PLAIN, _GET + b"Content-Length: 1\r\nContent-Length: 2\r\n" + _JANE + _HOST),
    (_PLAIN, _GET + _JANE + _HOST + b"Transfer-Encoding: chunked\r\n"),
    (_PLAIN, _GET + _JANE + _HOST + b"A: b\n"),
    (_PLAIN, b"GET /api/%2e%2e/pods HTTP/1.1\r\n" + _JANE + _HOST),
    (_PREFIXED, b"GET //api HTTP/1.1\r\n" + _JANE + _HOST),
)


def check_head_policy(make: Callable[[Callable[[], Upstream]], HeadPolicy] = HeadPolicy) -> None:
    """Check some heads, each with a new policy, and twice, as a policy caches accepted fields.

    :raise ConfigurationError: a head was accepted, rejected or rewritten wrongly.
    """
    for server, head, sent in _GOOD:
        _expect(make, server, head, sent + _END)
    for server, head in _BAD:
        _expect(make, server, head, None)


def _expect(
    make: Callable[[Callable[[], Upstream]], HeadPolicy], server: Upstream, head: bytes, sent: bytes | None
) -> None:
    policy = make(lambda: server)
    for _ in range(2):
        answer = policy.rewrite(head + b"\r\n")
        if (None if isinstance(answer, Refusal) else answer.head) != sent:
            problem = "was not rejected" if sent is None else "was not rewritten correctly"
            raise ConfigurationError(
                f"the self-test of the request policy failed on Python {platform.python_version()}: "
                f"{head!r} {problem}; run Tower on another build of Python"
            )
