"""What an EC2 instance can ask about itself: the instance metadata service, version 2.

Every question needs a session token, which is had by a PUT.  The answer to that travels as far as the
instance's *hop limit* lets it: with the usual 1 it does not reach a container that has a network of its own.
"""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IReactorTime

from tower.cloud.errors import CloudAnswerError, CloudError, CloudUnreachable
from tower.cloud.session import CloudSession
from tower.cloud.token import RefreshedToken

#: Where every instance finds the service.
ADDRESS = "http://169.254.169.254"
ADDRESS_V6 = "http://[fd00:ec2::254]"

#: How long a session token is asked to live, s: the longest that there is.
TOKEN_LIFE = 21600

#: Where there is no such service, nobody says so.
_PATIENCE: Any = {"timeout": 2.0, "attempts": 2}

_TOKEN = "X-aws-ec2-metadata-token"  # noqa: S105 (the name of a field)


class NoMetadata(CloudError):
    """There is no metadata service here: this machine is no EC2 instance, or may not ask."""


class Metadata:
    """The metadata service, as seen from here.

    :param address: without a slash at its end; empty: it is not to be asked.
    """

    def __init__(self, session: CloudSession, clock: IReactorTime, address: str = ADDRESS) -> None:
        self._session = session
        self._address = address
        self._token: RefreshedToken[str] = RefreshedToken(clock, self._fetch_token)

    async def get(self, path: str) -> str:
        """Return what stands below ``/latest/meta-data/`` at *path*; empty if there is nothing.

        :raise NoMetadata: nobody answers.
        :raise CloudError: no answer that makes sense.
        """
        for fresh in (False, True):
            token = await self._token.get()
            url = f"{self._address}/latest/meta-data/{path}"
            try:
                answer = await self._session.request("GET", url, headers={_TOKEN: token}, **_PATIENCE)
            except CloudAnswerError as e:
                if e.code == 404:
                    return ""
                # The token is another one's, or ended early, as happens when an instance slept.
                if e.code != 401 or fresh:
                    raise CloudError(f"metadata service, {path}: HTTP status {e.code}") from None
                self._token.forget()
            else:
                return answer.body.decode("utf-8", "replace").strip()
        raise AssertionError("unreachable")

    async def _fetch_token(self) -> tuple[str, float]:
        if not self._address:
            raise NoMetadata("AWS_EC2_METADATA_DISABLED says that the metadata service is not to be asked")
        url, headers = f"{self._address}/latest/api/token", {f"{_TOKEN}-ttl-seconds": str(TOKEN_LIFE)}
        try:
            answer = await self._session.request("PUT", url, headers=headers, **_PATIENCE)
        except CloudUnreachable as e:
            raise NoMetadata(
                f"no answer from the metadata service at {self._address}: this is no EC2 instance, "
                "or a container on one whose metadata hop limit is below 2"
            ) from e
        except CloudAnswerError as e:
            said = "is switched off" if e.code == 403 else f"gives no session token: HTTP status {e.code}"
            raise NoMetadata(f"the metadata service at {self._address} {said}") from None
        return answer.body.decode("ascii", "replace").strip(), float(TOKEN_LIFE)
