"""Data about Tower's own OpenStack server, from the metadata service or the configuration drive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tower.cloud.errors import CloudError
from tower.cloud.openstack.config import CONFIG_DRIVE, OpenStackConfig
from tower.cloud.session import CloudSession

PATH = "openstack/latest/meta_data.json"
_FILE_LIMIT = 1 << 20  # B


class OwnServer:
    """The server that Tower runs on, from the sources of the configuration, in order."""

    def __init__(self, session: CloudSession, config: OpenStackConfig) -> None:
        self._session = session
        self._config = config

    async def name(self) -> str:
        """Return its name."""
        return str((await self._find())["name"])

    async def zone(self) -> str:
        """Return its availability zone."""
        return str((await self._find()).get("availability_zone") or "")

    async def _find(self) -> dict[str, Any]:
        reasons = []
        for source in self._config.search_order:
            try:
                fields = self._from_drive() if source == CONFIG_DRIVE else await self._from_service()
                if isinstance(fields, dict) and "name" in fields:
                    return fields
                reasons.append(f"{source}: not a server's metadata")
            except (CloudError, OSError, ValueError) as e:
                reasons.append(f"{source}: {e.strerror if isinstance(e, OSError) else e}")
        raise CloudError(f"Tower's own server is unknown: {'; '.join(reasons)}")

    def _from_drive(self) -> Any:
        if not self._config.config_drive:
            raise CloudError("config-drive, the mount point, is not set")
        with (Path(self._config.config_drive) / PATH).open("rb") as file:
            return json.loads(file.read(_FILE_LIMIT))

    async def _from_service(self) -> Any:
        url = f"{self._config.metadata_url}/{PATH}"
        timeout = self._config.metadata_timeout
        return (await self._session.request("GET", url, timeout=timeout, attempts=2)).json()
