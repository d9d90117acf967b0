"""The metadata service of the Compute Engine instance that we are on."""

from __future__ import annotations

import json
from typing import Any

from tower.cloud.errors import CloudError
from tower.cloud.session import CloudSession

FLAVOR = "Metadata-Flavor"
#: It is on this machine, or not at all.
PATIENCE: Any = {"timeout": 5.0, "attempts": 3}


class MetadataService:
    """Asks it.

    :param host: ``host`` or ``host:port``.
    """

    def __init__(self, session: CloudSession, host: str) -> None:
        self._session = session
        self._host = host

    async def text(self, path: str) -> str:
        """Return what it says at *path*, below ``/computeMetadata/v1/``.

        :raise CloudError: it cannot be reached, or what answers is something else.
        """
        url = f"http://{self._host}/computeMetadata/v1/{path}"
        answer = await self._session.request("GET", url, headers=[(FLAVOR, "Google")], **PATIENCE)
        if answer.header(FLAVOR) != "Google":
            raise CloudError(f"what answers at {self._host} is not Google's metadata service")
        return answer.body.decode("utf-8", "replace").strip()

    async def project(self) -> str:
        """Return the id of our project."""
        return await self.text("project/project-id")

    async def zone(self) -> str:
        """Return the name of our zone."""
        return (await self.text("instance/zone")).rpartition("/")[2]

    async def token(self) -> tuple[str, float]:
        """Return an access token of our default service account, and how long it lasts, s."""
        try:
            said: Any = json.loads(await self.text("instance/service-accounts/default/token"))
            return str(said["access_token"]), float(said["expires_in"])
        except (ValueError, KeyError, TypeError):
            raise CloudError("the metadata service gave no token that can be read") from None
