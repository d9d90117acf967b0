"""The agent's relay in memory: heads of requests, and the API server that they are for."""

from __future__ import annotations

from twisted.internet.task import Clock
from twisted.logger import Logger

from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy
from tower.member.apiserver_relay import RequestRelay, Rewrite
from tower.member.unfinished_heads import UnfinishedHeads
from tower.net.pipes import Pipe
from tower.reactor.log_batch import Summary

_API_SERVER = Upstream(b"", b"Host: 10.0.0.1:6443\r\n", b"Authorization: Bearer member-secret\r\n")


def api_server() -> Upstream:
    """Return the same `Upstream` each time."""
    return _API_SERVER


def relayed(
    channel: Pipe, upstream: Pipe, rewrite: Rewrite | None = None, unfinished: UnfinishedHeads | None = None
) -> RequestRelay:
    """Return the relay between *channel* and *upstream*, started; by default, with a `HeadPolicy`."""
    relay = RequestRelay(
        channel, upstream, rewrite or HeadPolicy(api_server).rewrite, Summary(Clock(), Logger()), unfinished
    )
    relay.start()
    return relay


def request(
    *fields: bytes, line: bytes = b"GET /api HTTP/1.1", framing: bytes = b"", body: bytes = b""
) -> bytes:
    """Return a request in canonical form."""
    lines = [b"Impersonate-User: jane\r\n", b"Host: tower\r\n", *(field + b"\r\n" for field in fields)]
    return line + b"\r\n" + framing + b"".join(lines) + b"\r\n" + body


def passed(
    *fields: bytes, line: bytes = b"GET /api HTTP/1.1", framing: bytes = b"", body: bytes = b""
) -> bytes:
    """Return that request as the agent sends it to the API server."""
    lines = [b"Impersonate-User: jane\r\n", _API_SERVER.host_line, *(field + b"\r\n" for field in fields)]
    return line + b"\r\n" + framing + b"".join(lines) + _API_SERVER.credential_line + b"\r\n" + body
