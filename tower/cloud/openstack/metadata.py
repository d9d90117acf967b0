"""What OpenStack tells the server that we are on: by its metadata service, or by its configuration drive."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tower.cloud.errors import CloudError
from tower.cloud.openstack.config import CONFIG_DRIVE, OpenStackConfig
from tower.cloud.session import CloudSession

PATH = "openstack/latest/meta_data.json"
_FILE_LIMIT = 1 << 20  # B


class Here:
    """Looks in the places of the configuration, in their order."""

    def __init__(self, session: CloudSession, config: OpenStackConfig) -> None:
        self._session = session
        self._config = config

    async def name(self) -> str:
        """Return our server's name."""
        return str((await self._find())["name"])

    async def zone(self) -> str:
        """Return our server's availability zone."""
        return str((await self._find()).get("availability_zone") or "")

    async def _find(self) -> dict[str, Any]:
        reasons = []
        for place in self._config.search_order:
            try:
                said = self._on_drive() if place == CONFIG_DRIVE else await self._from_service()
                if isinstance(said, dict) and "name" in said:
                    return said
                reasons.append(f"{place}: no server's metadata")
            except (CloudError, OSError, ValueError) as e:
                reasons.append(f"{place}: {e.strerror if isinstance(e, OSError) else e}")
        raise CloudError(f"the server that this runs on is not known: {'; '.join(reasons)}")

    def _on_drive(self) -> Any:
        if not self._config.config_drive:
            raise CloudError("config-drive does not say where it is mounted")
        with (Path(self._config.config_drive) / PATH).open("rb") as file:
            return json.loads(file.read(_FILE_LIMIT))

    async def _from_service(self) -> Any:
        url = f"{self._config.metadata_url}/{PATH}"
        timeout = self._config.metadata_timeout
        return (await self._session.request("GET", url, timeout=timeout, attempts=2)).json()
