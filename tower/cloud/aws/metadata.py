"""EC2's instance metadata service, version 2.

Requests need a session token from a PUT.  The response to the PUT does not travel farther than the instance's
*hop limit*: with the default 1 it does not reach a container with its own network.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken

#: URLs of the service on every instance.
ADDRESS = "http://169.254.169.254"
ADDRESS_V6 = "http://[fd00:ec2::254]"

#: Requested lifetime of session tokens, s: the maximum.
TOKEN_LIFE = 21600

#: Short: without such a service there is no response.
_PATIENCE: Any = {"timeout": 2.0, "attempts": 2}

_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 (the name of a field)


class NoMetadata(CloudError):
    """There is no metadata service: this machine is not an EC2 instance, or is not allowed to use it."""


class Metadata:
    """The metadata service; *address* is its URL, without a trailing slash, empty: it is disabled."""

    def __init__(self, session: CloudSession, clock: IReactorTime, address: str = ADDRESS) -> None:
        self._session = session
        self._address = address
        self._token: RefreshedToken[str] = RefreshedToken(clock, self._fetch_token)

    async def get(self, path: str) -> str:
        """Return the value at *path* below ``/latest/meta-data/``; empty: there is none.

        :raise NoMetadata: there is no response.
        :raise CloudError: the response is an error.
        """
        for fresh in (False, True):
            token = await self._token.get()
            url = f"{self._address}/latest/meta-data/{path}"
            try:
                answer = await self._session.request("GET", url, headers={_TOKEN: token}, **_PATIENCE)
            except CloudAnswerError as e:
                if e.code == 404:
                    return ""
                # The token is of another instance, or expired early, as after hibernation.
                if e.code != 401 or fresh:
                    raise CloudError(f"metadata service, {path}: HTTP status {e.code}") from None
                self._token.forget()
            else:
                return answer.text().strip()
        raise AssertionError("unreachable")

    async def _fetch_token(self) -> tuple[str, float]:
        if not self._address:
            raise NoMetadata("the metadata service is disabled by AWS_EC2_METADATA_DISABLED")
        url, headers = f"{self._address}/latest/api/token", {f"{_TOKEN}-ttl-seconds": str(TOKEN_LIFE)}
        try:
            answer = await self._session.request("PUT", url, headers=headers, **_PATIENCE)
        except CloudUnreachable as e:
            raise NoMetadata(
                f"no answer from the metadata service at {self._address}: this machine is not an EC2 "
                "instance, or this is a container on one with a metadata hop limit below 2"
            ) from e
        except CloudAnswerError as e:
            reason = "is turned off" if e.code == 403 else f"issues no session token: HTTP status {e.code}"
            raise NoMetadata(f"the metadata service at {self._address} {reason}") from None
        return answer.body.decode("ascii", "replace").strip(), float(TOKEN_LIFE)
