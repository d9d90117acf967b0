"""Logins of Compute Engine that come from a file of credentials."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cloud.asking import asking
from tests.cloud.gce.kit import GCETestCase
from tests.cloud.standins.gce import PROJECT
from tower.cloud.config.text import ConfigText
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.federation import load_account
from tower.cloud.gce.provider import GCECloud


class LoginFileTestCase(GCETestCase):
    """A cloud whose provider is told of such a file."""

    def write_login(self, said: dict[str, Any], path: Path | None = None) -> str:
        """Write the file; a None is left out."""
        path = path or Path(self.mktemp())
        path.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))
        return str(path)

    def cloud_of(self, path: str) -> GCECloud:
        """Return a provider with this login."""
        text = (
            f"[global]\napi-endpoint = http://gce.test/compute/v1/\nproject-id = {PROJECT}\n"
            f"credentials-file = {path}\n"
        )
        config = parse_gce_config(ConfigText("gce.conf", text), {})
        ask = asking(self.gce.resource, self.clock)
        cloud = GCECloud(config, load_account(path), ask=ask, now=self.clock.seconds)
        cloud.initialize(self.clock)
        self.addCleanup(cloud.stop)
        return cloud
