"""Requests of browsers' pages from other origins (CORS): ``--cors-allowed-origins``, as kube-apiserver's."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar

from attrs import frozen
from twisted.internet.defer import Deferred

from tower.http.requests import Fields
from tower.web.gateway.http_channel import HTTPChannel
from tower.web.gateway.proxy_client import ProxyClient
from tower.web.gateway.relay import ProxyClientFactory
from tower.web.gateway.request import Request
from tower.web.outcome import NOT_CACHED, Outcome, Response

#: Longest origin that is compared, B: patterns may be slow.
LONGEST = 300

#: The beginning of an origin, up to its host, and the end after its host: patterns match what is between.
_BEFORE = rb"(?:(?=[^/]*//)[^/]*/{0,2})?"
_AFTER = rb"(?=(?::[0-9]*)?\Z|(?<=:)[0-9]*\Z)"
_FLAGS = re.compile(rb"\(\?[a-zA-Z]+\)")

_LINES = (
    b"Access-Control-Allow-Origin: %b\r\n"
    b"Access-Control-Allow-Methods: POST, GET, OPTIONS, PUT, DELETE, PATCH\r\n"
    b"Access-Control-Allow-Headers: Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, "
    b"Authorization, X-Requested-With, If-Modified-Since\r\n"
    b"Access-Control-Expose-Headers: Date\r\n"
    b"Access-Control-Allow-Credentials: true\r\n"
)
_OF_MEMBER = re.compile(rb"(?im)^access-control-[^\r\n]*\r\n")
_PREFLIGHT = Response(204, b"", (NOT_CACHED,))


def origin_pattern(text: bytes) -> re.Pattern[bytes]:
    """Return a pattern of the origins in which the regular expression *text* matches the whole host.

    Other hosts do not match if only one alternative has an anchor, or if it is optional (CVE-2022-1996).

    :raise re.error: it is not a regular expression.
    """
    flags = re.compile(text).flags
    return re.compile(b"%b(?:%b)%b" % (_BEFORE, _FLAGS.sub(b"", text, 1), _AFTER), flags)


@frozen
class CrossOrigin:
    """The allowed origins.

    :param patterns: those of `origin_pattern`.
    """

    patterns: Sequence[re.Pattern[bytes]]

    def lines(self, origin: bytes | None) -> bytes:
        """Return the header lines of answers to requests from *origin*; empty: it is not allowed."""
        if not origin or len(origin) > LONGEST or not any(each.match(origin) for each in self.patterns):
            return b""
        return _LINES % origin

    @property
    def protocol(self) -> type[HTTPChannel]:
        """The receiver of connections whose answers have these lines."""

        def make(
            channel: HTTPChannel,
            method: bytes,
            target: bytes,
            minor: int,
            fields: Fields,
            head: bytes,
            early: bytes,
        ) -> Request:
            lines = self.lines(fields.get(b"origin"))
            kind = CrossOriginRequest if lines else Request
            request = kind(channel, method, target, minor, fields, head, early)
            if isinstance(request, CrossOriginRequest):
                request.origin_lines = lines
            return request

        class CrossOriginChannel(HTTPChannel):
            """Makes requests that know their origin."""

            requestFactory: ClassVar[Callable[..., Request]] = staticmethod(make)

        return CrossOriginChannel

    def router(
        self, router: Callable[[Request], Outcome | Deferred[Outcome]]
    ) -> Callable[[Request], Outcome | Deferred[Outcome]]:
        """Return *router*, behind an answer to browsers' questions before a request (``OPTIONS``)."""

        def route(request: Request) -> Outcome | Deferred[Outcome]:
            if request.method == b"OPTIONS" and isinstance(request, CrossOriginRequest):
                return _PREFLIGHT
            return router(request)

        return route


class CrossOriginClient(ProxyClient):
    """Adds the lines to a member's answer, and removes such lines of the member."""

    __slots__ = ()

    def handleResponseHead(self, status: int, head: bytes) -> bytes:
        """See `ProxyClient.handleResponseHead`."""
        request = self.request
        lines = request.origin_lines if isinstance(request, CrossOriginRequest) else b""
        return b"%b%b\r\n" % (_OF_MEMBER.sub(b"", head[:-2]), lines)


class CrossOriginFactory(ProxyClientFactory):
    """Relays requests from an allowed origin."""

    __slots__ = ()

    protocol: ClassVar[type[ProxyClient]] = CrossOriginClient


class CrossOriginRequest(Request):
    """A request from an allowed origin.

    :ivar origin_lines: header lines of its answer.
    """

    __slots__ = ("origin_lines",)

    proxyClientFactoryClass: ClassVar[type[ProxyClientFactory]] = CrossOriginFactory

    origin_lines: bytes

    @property
    def common_lines(self) -> bytes:
        """See `Request.common_lines`."""
        return super().common_lines + self.origin_lines
