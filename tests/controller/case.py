"""A controller of a host cluster in memory."""

from __future__ import annotations

import base64
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.controller.kit import HostKit
from tower.controller.controller import Controller
from tower.controller.host_access import HostAccess
from tower.controller.objects.service_objects import HostSettings
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import EVENTS

TOKEN = "0123456789abcdef" * 4


class ControllerTestCase(SynchronousTestCase):
    """A controller of a host cluster in memory."""

    settings = HostSettings()
    ports: range | None = range(6000, 6010)
    uses_tokens = True

    def setUp(self) -> None:
        """Start the controller."""
        self.kit = HostKit(self.mktemp(), self.ports)
        self.addCleanup(self.kit.stop)
        self.controller = self.started()

    def api(self) -> HostAPI:
        """Return the API server as the next controller sees it."""
        return self.kit.host

    def started(self) -> Controller:
        """Return a controller that has just started."""
        clock: Any = self.kit.clock
        controller = Controller(
            clock,
            HostAccess(self.api(), self.settings, self.kit.statuses),
            self.kit.records,
            self.kit.issuer,
            clock.seconds,
            self.kit.set_names,
            uses_tokens=self.uses_tokens,
        )
        controller.startService()
        self.addCleanup(controller.stopService)
        self.pump()
        return controller

    def pump(self, seconds: float = 0.0) -> None:
        """Let *seconds* pass, and a few iterations of the reactor."""
        self.kit.clock.advance(seconds)
        self.kit.clock.pump([0.01] * 40)

    def apply(self, name: str = "alpha", /, **spec: Any) -> None:
        """Apply a cluster and let the controller work."""
        self.kit.apply(name, **spec)
        self.pump()

    def kubeconfig(self, name: str = "alpha") -> bytes:
        """Return the kubeconfig in the Secret of a cluster."""
        return base64.b64decode(self.kit.secret(name)["data"]["kubeconfig"])

    def others(self, name: str = "alpha") -> list[str]:
        """Return the kubeconfigs of other programs in the Secret of a cluster, the oldest first."""
        data = self.kit.secret(name)["data"]
        return [data[key] for key in sorted(data) if key.startswith("other-kubeconfig-")]

    def token(self, name: str = "alpha") -> str:
        """Return the token in the Secret of a cluster."""
        return base64.b64decode(self.kit.secret(name)["data"]["token"]).decode()

    def status(self, kind: str, name: str = "alpha") -> tuple[str, str, str]:
        """Return status, reason and message of a condition; all are empty without one."""
        found = self.kit.condition(kind, name)
        return ("", "", "") if found is None else (found.status, found.reason, found.message)

    def events(self, kind: str = "Normal") -> list[str]:
        """Return the reasons of the host's events."""
        return sorted(each["reason"] for each in self.kit.host.objects(EVENTS) if each["type"] == kind)

    def messages(self, reason: str) -> list[str]:
        """Return the messages of the host's events with *reason*."""
        return sorted(each["message"] for each in self.kit.host.objects(EVENTS) if each["reason"] == reason)

    def steady(self, seconds: float = 3000.0) -> list[tuple[str, str, str]]:
        """Return the writes while *seconds* pass."""
        before = len(self.kit.host.writes)
        for _ in range(10):
            self.pump(seconds / 10)
        return self.kit.host.writes[before:]
