"""Signed requests to AWS's services, and what their errors mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol
from urllib.parse import quote, urlencode
from xml.etree.ElementTree import Element

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.cloud.aws.signing import AWSCredentials, Scope, sign
from tower.cloud.aws.xml import BadXML, error_of, parse_xml
from tower.cloud.errors import AnswerTooLarge, CloudAnswerError, CloudError
from tower.cloud.http.answer import Answer, shorten
from tower.cloud.session import CloudRequest, CloudSession

#: Most attempts for one request: AWS slows down whoever does the same for many instances.
ATTEMPTS = 8

# "Come more slowly", which some services say with status 400.
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

# The credentials are no longer good, as may be when they were changed before their time.
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

#: AWS takes a signature that is so much off, s.
SKEW = 300.0

# Their messages quote all that was signed.
_QUOTING = frozenset(("IncompleteSignature", "InvalidSignatureException", "SignatureDoesNotMatch"))


class AWSError(CloudError):
    """AWS refused.

    :ivar code: its word for the reason, such as ``UnauthorizedOperation``; empty if it said none.
    """

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.code = code


class ICredentials(Protocol):
    """Credentials that are good at the time they are asked for."""

    async def get(self) -> AWSCredentials:
        """Return them.

        :raise CloudError: there are none.
        """

    def forget(self, refused: AWSCredentials) -> None:
        """Have others fetched the next time, unless it was done since."""


@frozen
class Endpoint:
    """Where a service is, and what requests to it are signed for."""

    url: str
    scope: Scope


class AWSAPI:
    """One service, spoken to with credentials that are looked after elsewhere.

    :param time_of_day: its ``seconds()`` count from the epoch.
    """

    def __init__(
        self,
        session: CloudSession,
        time_of_day: IReactorTime,
        endpoint: Endpoint,
        credentials: ICredentials,
    ) -> None:
        self._session = session
        self._time_of_day = time_of_day
        self._endpoint = endpoint
        self._credentials = credentials

    async def query(self, version: str, action: str, parameters: Mapping[str, str]) -> Element:
        """Ask a service that takes forms and answers in XML; return the answer's root.

        :raise AWSError: the service refused.
        :raise CloudError: no answer, or none that makes sense.
        """
        return parse_xml(await self.query_text(version, action, parameters))

    async def query_text(self, version: str, action: str, parameters: Mapping[str, str]) -> bytes:
        """Ask such a service; return what should be XML.

        :raise AWSError: the service refused.
        :raise CloudError: no answer.
        """
        form = {"Action": action, "Version": version, **parameters}
        body = urlencode(form, quote_via=quote).encode()
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        return (await self._ask(action, headers, body)).body

    async def json(self, target: str, parameters: Mapping[str, object]) -> Any:
        """Ask a service that speaks JSON 1.1.

        :param target: the service's prefix, a dot, the action.
        :raise AWSError: the service refused.
        :raise CloudError: no answer, or none that makes sense.
        """
        headers = {"content-type": "application/x-amz-json-1.1", "x-amz-target": target}
        return (await self._ask(target.rpartition(".")[2], headers, json.dumps(parameters).encode())).json()

    async def _ask(self, action: str, headers: Mapping[str, str], body: bytes) -> Answer:
        url = self._endpoint.url
        used: list[AWSCredentials] = []
        ahead = 0.0

        async def add_signature(request: CloudRequest) -> None:
            used.append(await self._credentials.get())
            now = self._time_of_day.seconds()
            scope = self._endpoint.scope
            signed = sign(used[-1], scope, now, request.method, request.url, headers.items(), request.body)
            request.headers.update((name.lower(), value) for name, value in signed)

        def is_passing(answer: Answer) -> bool:
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
                    again=is_passing,
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
            side = "ahead of" if ahead > 0 else "behind"
            message = f"this machine's clock is {abs(ahead) / 60:.0f} min {side} AWS's, which takes 5: set it"
        elif code in _QUOTING:
            message = "is the secret key right?"
        # What the service says it says again in the detail, from which the request's secrets were taken.
        elif not message or message not in error.detail:
            message = ""
        said = ": ".join(filter(None, (code, message))) or error.detail or f"HTTP status {error.code}"
        return AWSError(f"{self._endpoint.scope.service} {action}: {shorten(said)}", code)


def read_error(body: bytes) -> tuple[str, str]:
    """Return code and message of an error, in XML or JSON; empty ones if it is neither."""
    if body.lstrip().startswith(b"<"):
        try:
            return error_of(parse_xml(body))
        except (BadXML, AnswerTooLarge):
            return "", ""
    try:
        said = json.loads(body)
        # The type may have its namespace before it, and a hint where to read more behind it.
        code = str(said["__type"]).rpartition("#")[2].partition(":")[0]
        return code, str(said.get("message") or said.get("Message") or "")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "", ""


def _is_throttled(answer: Answer) -> bool:
    return read_error(answer.body)[0] in _THROTTLED
