"""Signed requests to AWS's services, and their errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element

from attrs import define, frozen
from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.signing import AWSCredentials, Scope, sign
from tower.cloud.aws.xml import BadXML, error_of, parse_xml
from tower.cloud.errors import AnswerTooLarge, CloudAnswerError, CloudError
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.session import CloudRequest, CloudSession
from tower.durations import describe_offset

#: Maximum number of attempts for one request: AWS throttles repeated calls for many instances.
ATTEMPTS = 8

# Codes of throttling, which some services send with status 400.
_THROTTLED = frozenset(
    (
        "EC2ThrottledException",
        "PriorRequestNotComplete",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    )
)

# Codes for credentials that are no longer valid.
_STALE = frozenset(
    (
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "RequestExpired",
        "UnrecognizedClientException",
    )
)

#: Maximum clock skew that AWS accepts, s.
SKEW = 300.0

# Codes whose messages quote the signed request.
_QUOTING = frozenset(("IncompleteSignature", "InvalidSignatureException", "SignatureDoesNotMatch"))


class AWSError(CloudError):
    """AWS rejected a request; *code* is its error code, such as ``UnauthorizedOperation``, or empty."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class ICredentials(Protocol):
    """A source of valid credentials."""

    async def get(self) -> AWSCredentials:
        """Return valid credentials; raise `CloudError` if there are none."""

    def forget(self, refused: AWSCredentials) -> None:
        """Fetch others the next time, unless these were replaced already."""


@frozen
class Endpoint:
    """URL of a service, and the scope of its signatures."""

    url: str
    scope: Scope


@define(eq=False, repr=False)
class AWSAPI:
    """One service; *time_of_day* counts ``seconds()`` from the epoch."""

    _session: CloudSession
    _time_of_day: IReactorTime
    _endpoint: Endpoint
    _credentials: ICredentials

    async def query(self, version: str, action: str, parameters: Mapping[str, str]) -> Element:
        """Call an action of a Query API (form in, XML out); return the response's root element.

        :raise AWSError: AWS rejects the request.
        :raise CloudError: there is no valid response.
        """
        return parse_xml(await self.query_text(version, action, parameters))

    async def query_text(self, version: str, action: str, parameters: Mapping[str, str]) -> bytes:
        """Call an action of a Query API; return the response's body.

        :raise AWSError: AWS rejects the request.
        :raise CloudError: there is no response.
        """
        form = {"Action": action, "Version": version, **parameters}
        body = urlencode(form, quote_via=quote).encode()
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        return (await self._send(action, headers, body)).body

    async def json(self, target: str, parameters: Mapping[str, object]) -> Any:
        """Call an action of a JSON 1.1 API; return the response's value.

        :param target: the service's prefix, a dot, the action.
        :raise AWSError: AWS rejects the request.
        :raise CloudError: there is no valid response.
        """
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
        return (await self._send(target.rpartition(".")[2], headers, json.dumps(parameters).encode())).json()

    async def _send(self, action: str, headers: Mapping[str, str], body: bytes) -> Answer:
        url = self._endpoint.url
        used: list[AWSCredentials] = []
        ahead = 0.0

        async def add_signature(request: CloudRequest) -> None:
            used.append(await self._credentials.get())
            now = self._time_of_day.seconds()
            scope = self._endpoint.scope
            signed = sign(used[-1], scope, now, request.method, request.url, headers.items(), request.body)
            request.headers.update((name.lower(), value) for name, value in signed)

        def is_temporary(answer: Answer) -> bool:
            nonlocal ahead
            ahead = 0.0 if answer.date is None else self._time_of_day.seconds() - answer.date
            return _is_throttled(answer)

        for once_more in (True, False):
            try:
                return await self._session.request(
                    "POST",
                    url,
                    headers=headers,
                    body=body,
                    sign=add_signature,
                    again=is_temporary,
                    attempts=ATTEMPTS,
                )
            except CloudAnswerError as e:
                error = self._read(action, e, ahead)
            if error.code not in _STALE or not once_more:
                break
            self._credentials.forget(used[-1])
        raise error

    def _read(self, action: str, error: CloudAnswerError, ahead: float) -> AWSError:
        code, message = read_error(error.body)
        if abs(ahead) > SKEW:
            offset = describe_offset(ahead)
            message = f"this machine's clock is {offset} AWS, and at most 5m are allowed: set it"
        elif code in _QUOTING:
            message = "check the secret key"
        # The detail has the same message without the request's secrets.
        elif not message or message not in error.detail:
            message = ""
        reason = ": ".join(filter(None, (code, message))) or error.detail or f"HTTP status {error.code}"
        return AWSError(f"{self._endpoint.scope.service} {action}: {shorten(reason)}", code)


def read_error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error in XML or JSON; both may be empty."""
    if body.lstrip().startswith(b"<"):
        try:
            return error_of(parse_xml(body))
        except (BadXML, AnswerTooLarge):
            return "", ""
    try:
        fields = json.loads(body)
        # The type may have a namespace before it, and a URL after it.
        code = str(fields["__type"]).rpartition("#")[2].partition(":")[0]
        return code, str(fields.get("message") or fields.get("Message") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


def _is_throttled(answer: Answer) -> bool:
    return read_error(answer.body)[0] in _THROTTLED
