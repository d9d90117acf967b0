"""One request to a cloud, and what came of it.

It asks an `IAgent` itself: `treq.client.HTTPClient` encodes URLs anew behind a signature, follows redirects,
asks for compression, knows no IPv6 addresses and no time for a body.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field
from OpenSSL.SSL import Error as SSLError
from service_identity.exceptions import VerificationError
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.defer import TimeoutError as TimedOut
from twisted.internet.interfaces import IConsumer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss
from twisted.web.http_headers import Headers
from twisted.web.iweb import UNKNOWN_LENGTH, IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from tower import __version__
from tower.cloud.errors import AnswerTooLarge, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, shorten

#: What we call ourselves.
USER_AGENT = f"kubesphere-tower/{__version__}"

#: Longest body of an answer, B.
BODY_LIMIT = 8 << 20

_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)


@define
class CloudRequest:
    """What is about to be sent; whoever signs may change it.

    :ivar url: ASCII, as it is sent.
    :ivar headers: names in lower case.
    """

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False, factory=dict)
    body: bytes = field(repr=False, default=b"")

    @property
    def address(self) -> str:
        """The URL as it may be shown: no user, no query."""
        return without_query(self.url)


async def send(reactor: Any, agent: IAgent, request: CloudRequest, timeout: float) -> Answer:
    """Make a request, once.

    :param timeout: up to the end of the answer's body, s.
    :raise CloudUnreachable: no whole answer came in that time.
    :raise AnswerTooLarge: the answer is longer than `BODY_LIMIT`.
    :raise CloudError: the URL is none.
    """
    address = request.address
    if not _can_be_asked(request.url):
        raise CloudError(f"{address} is not a URL that can be asked")
    headers = Headers({b"user-agent": [USER_AGENT.encode()]})
    for name, value in request.headers.items():
        headers.setRawHeaders(name, [value])
    producer = _Bytes(request.body) if request.body else None
    try:
        asking = agent.request(request.method.encode("ascii"), request.url.encode("ascii"), headers, producer)
        return await _unwrapped(asking.addCallback(_read, address)).addTimeout(timeout, reactor)
    except (CloudError, CancelledError):
        raise
    except TimedOut:
        raise CloudUnreachable(f"{request.method} {address}: no answer within {timeout:g} s") from None
    except Exception as e:  # noqa: BLE001 (agents wrap whatever went wrong with a connection)
        raise CloudUnreachable(f"{request.method} {address}: {_why(e)}") from None


def _unwrapped(asking: Deferred[Answer]) -> Deferred[Answer]:
    """Return the same, but a cancellation stays one, whatever an agent makes of it."""
    cancelled = False

    def cancel(_: Deferred[Answer]) -> None:
        nonlocal cancelled
        cancelled = True
        asking.cancel()

    def ended(result: Answer | Failure) -> None:
        if not cancelled:
            whole.callback(result)

    whole: Deferred[Answer] = Deferred(cancel)
    asking.addBoth(ended)
    return whole


def _read(response: IResponse, address: str) -> Deferred[Answer]:
    body = _Body(address)
    if response.length is not UNKNOWN_LENGTH and response.length > BODY_LIMIT:
        body.refuse()
    response.deliverBody(body)
    return body.whole.addCallback(lambda data: Answer(response.code, response.headers, data, address))


class _Body(Protocol):
    """Collects the body of an answer, up to `BODY_LIMIT`; cancelling `whole` closes the connection."""

    def __init__(self, address: str) -> None:
        self.whole: Deferred[bytes] = Deferred(lambda _: self._close())
        self._address = address
        self._parts: list[bytes] = []
        self._length = 0

    def dataReceived(self, data: bytes) -> None:
        if self.whole.called:
            return
        self._parts.append(data)
        self._length += len(data)
        if self._length > BODY_LIMIT:
            self.refuse()

    def connectionMade(self) -> None:
        if self.whole.called:
            self._close()

    def refuse(self) -> None:
        self._parts.clear()
        self._close()
        self.whole.errback(AnswerTooLarge(f"{self._address} answers with more than {BODY_LIMIT} B"))

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        if self.whole.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.whole.callback(b"".join(self._parts))
        else:
            self.whole.errback(reason)

    def _close(self) -> None:
        if self.transport is not None:
            self.transport.loseConnection()


@implementer(IBodyProducer)
class _Bytes:
    """A request's body, written at once."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.length = len(body)

    def startProducing(self, consumer: IConsumer) -> Deferred[None]:
        consumer.write(self._body)
        return succeed(None)

    def pauseProducing(self) -> None:
        """All is written."""

    def resumeProducing(self) -> None:
        """All is written."""

    def stopProducing(self) -> None:
        """All is written."""


def _can_be_asked(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(_URL.fullmatch(url) and parts.hostname and parts.port != 0)
    except ValueError:
        return False


def without_query(url: str) -> str:
    """Return what may be shown of a URL: no user, no query."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "a URL"
    return shorten(f"{parts.scheme}://{host}{parts.path}")


def _why(error: Exception) -> str:
    """Return why a connection failed, from within whatever an agent has wrapped it in."""
    cause: Any = error
    while reasons := getattr(cause, "reasons", None):
        cause = reasons[0].value if isinstance(reasons[0], Failure) else reasons[0]
    if isinstance(cause, VerificationError):
        return "its certificate is for other names"
    if isinstance(cause, SSLError) and cause.args and isinstance(cause.args[0], list):
        return "TLS: " + ", ".join(str(reason[-1]) for reason in cause.args[0])
    return shorten(str(cause)) or type(cause).__name__
