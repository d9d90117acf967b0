"""The metadata service of the Compute Engine instance that Tower runs on."""

from __future__ import annotations

import json
from typing import Any

from tower.cloud.errors import CloudError, CloudUnreachable
from tower.cloud.session import CloudSession

FLAVOR = "Metadata-Flavor"
#: Short: the service is on the same machine, or does not exist.
PATIENCE: Any = {"timeout": 5.0, "attempts": 3}


class MetadataService:
    """The service at *host*, ``host`` or ``host:port``."""

    def __init__(self, session: CloudSession, host: str) -> None:
        self._session = session
        self._host = host

    async def text(self, path: str) -> str:
        """Return the value at *path*, below ``/computeMetadata/v1/``.

        :raise CloudUnreachable: there is no metadata service.
        :raise CloudError: another server answered.
        """
        url = f"http://{self._host}/computeMetadata/v1/{path}"
        try:
            answer = await self._session.request("GET", url, headers=[(FLAVOR, "Google")], **PATIENCE)
        except CloudUnreachable as e:
            raise CloudUnreachable(
                f"{e}: outside Google Cloud, set project-id, and credentials-file to a service account's key"
            ) from None
        if answer.header(FLAVOR) != "Google":
            raise CloudError(f"the server at {self._host} is not Google's metadata service")
        return answer.text().strip()

    async def project(self) -> str:
        """Return the ID of this machine's project."""
        return await self.text("project/project-id")

    async def zone(self) -> str:
        """Return the name of this machine's zone."""
        return (await self.text("instance/zone")).rpartition("/")[2]

    async def token(self) -> tuple[str, float]:
        """Return an access token of this machine's default service account, and its lifetime, s."""
        try:
            fields: Any = json.loads(await self.text("instance/service-accounts/default/token"))
            return str(fields["access_token"]), float(fields["expires_in"])
        except (ValueError, KeyError, TypeError):
            raise CloudError("the metadata service sent no valid token") from None
