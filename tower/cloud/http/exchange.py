"""One HTTP request to a cloud and its response, with limits of time and size."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field, frozen
from OpenSSL.SSL import Error as SSLError
from service_identity.exceptions import VerificationError
from treq.client import HTTPClient
from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.python.failure import Failure
from twisted.web.http_headers import Headers
from twisted.web.iweb import IAgent, IBodyProducer, IResponse
from zope.interface import implementer

from tower import __version__
from tower.cloud.errors import AnswerTooLarge, CloudError, CloudUnreachable
from tower.cloud.http.answer import Answer, shorten
from tower.http.client_bodies import Body, BodyTooLarge, cause_of, read_body

USER_AGENT = f"kubesphere-tower/{__version__}"

#: Maximum length of a response's body, B.
BODY_LIMIT = 8 << 20

_URL = re.compile(r"https?://[!-~]+", re.IGNORECASE)

#: The URL that treq sees: it cannot parse all URLs of clouds.
_TREQ_URL = "https://cloud.invalid/"


@define
class CloudRequest:
    """A request before it is sent; signing may change it.

    :ivar url: ASCII, sent unchanged.
    :ivar headers: with lower-case names.
    """

    method: str
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False, factory=dict)
    body: bytes = field(repr=False, default=b"")

    @property
    def address(self) -> str:
        """The URL for errors and logs: without user and query."""
        return without_query(self.url)


@implementer(IAgent)
@frozen
class _SignedRequestAgent:
    """Sends one request exactly as it was signed, not as treq changed it.

    treq encodes URLs again (``[`` becomes ``%5B``, an IPv6 address is an error) and requests gzip, which it
    decodes without a limit; see `tests.cloud.http.test_exchange`.
    """

    agent: IAgent
    url: bytes
    headers: Headers

    def request(
        self,
        method: bytes,
        uri: bytes,
        headers: Headers | None = None,
        bodyProducer: IBodyProducer | None = None,
    ) -> Deferred[IResponse]:
        """See ``IAgent``."""
        sending: Deferred[IResponse] = self.agent.request(method, self.url, self.headers, bodyProducer)
        return sending.addCallback(_never_decoded)


def _never_decoded(response: IResponse) -> IResponse:
    response.headers.removeHeader(b"content-encoding")
    return response


async def send(reactor: IReactorTime, agent: IAgent, request: CloudRequest, timeout: float) -> Answer:
    """Send a request once; redirects are not followed, cookies are not kept.

    :param timeout: until the end of the response's body, s.
    :raise CloudUnreachable: there is no complete response within that time.
    :raise AnswerTooLarge: the response is longer than `BODY_LIMIT`.
    :raise CloudError: the URL is invalid.
    """
    address = request.address
    if not _is_valid(request.url):
        raise CloudError(f"{address} is not a valid URL")
    headers = Headers({b"user-agent": [USER_AGENT.encode()]})
    for name, value in request.headers.items():
        headers.setRawHeaders(name, [value])
    client = HTTPClient(_SignedRequestAgent(agent, request.url.encode("ascii"), headers))
    try:
        requesting = client.request(
            request.method,
            _TREQ_URL,
            data=Body(request.body) if request.body else None,
            allow_redirects=False,
            unbuffered=True,
            reactor=reactor,  # type: ignore[arg-type]
        )
        return await _cancellable(requesting.addCallback(_read, address)).addTimeout(timeout, reactor)
    except (CloudError, CancelledError):
        raise
    except BodyTooLarge:
        raise AnswerTooLarge(f"{address}: the response has more than {BODY_LIMIT} B") from None
    except defer.TimeoutError:
        raise CloudUnreachable(f"{request.method} {address}: no answer within {timeout:g} s") from None
    except Exception as e:  # noqa: BLE001 (agents wrap the causes of failed connections)
        raise CloudUnreachable(f"{request.method} {address}: {_describe(e)}") from None


def _cancellable(requesting: Deferred[Answer]) -> Deferred[Answer]:
    """Return the same result, but fail with `CancelledError` when cancelled, whatever the agent does then."""
    cancelled = False

    def cancel(_: Deferred[Answer]) -> None:
        nonlocal cancelled
        cancelled = True
        requesting.cancel()

    def ended(result: Answer | Failure) -> None:
        if not cancelled:
            done.callback(result)

    done: Deferred[Answer] = Deferred(cancel)
    requesting.addBoth(ended)
    return done


def _read(response: IResponse, address: str) -> Deferred[Answer]:
    reading = read_body(response, BODY_LIMIT)
    return reading.addCallback(lambda body: Answer(response.code, response.headers, body, address))


def _is_valid(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(_URL.fullmatch(url) and parts.hostname and parts.port != 0)
    except ValueError:
        return False


def without_query(url: str) -> str:
    """Return a URL for errors and logs: without user and query."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
    except ValueError:
        return "the URL"
    return shorten(f"{parts.scheme}://{host}{parts.path}")


def _describe(error: Exception) -> str:
    """Return the cause of a failed connection."""
    cause: Any = cause_of(error)
    if isinstance(cause, VerificationError):
        return "its certificate is for other names"
    if isinstance(cause, SSLError) and cause.args and isinstance(cause.args[0], list):
        return "TLS: " + ", ".join(str(reason[-1]) for reason in cause.args[0])
    return shorten(str(cause)) or type(cause).__name__
