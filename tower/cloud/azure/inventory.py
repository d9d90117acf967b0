"""All machines of a resource group: those of their own, and those of scale sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.cloud.azure.arm import AzureError, ResourceManager
from tower.cloud.azure.config import AzureConfig
from tower.cloud.azure.machines import Machine, power_of, read_machine, with_addresses
from tower.cloud.errors import InstanceNotFound
from tower.cloud.fanout import describe, fan_out, together

#: Versions of the APIs.
COMPUTE = "api-version=2024-07-01"
NETWORK = "api-version=2024-05-01"
SCALE_SET_NETWORK = "api-version=2018-10-01"

#: Most questions about single machines at a time.
PARALLEL = 8


class Inventory:
    """Looks at the machines, and remembers them for a while."""

    def __init__(self, manager: ResourceManager, clock: IReactorTime, config: AzureConfig) -> None:
        self._manager = manager
        self._clock = clock
        self._subscription = f"/subscriptions/{config.subscription}"
        self._group = f"{self._subscription}/resourceGroups/{config.group}/providers"
        self._cache = config.cache
        self._known: Sequence[Machine] = ()
        self._looked = float("-inf")
        self._looking = DeferredLock()
        self._powers: dict[str, tuple[float, str]] = {}

    async def look(self) -> Sequence[Machine]:
        """Return all machines as they are now, with their addresses.

        :raise CloudError: not everything could be seen.
        """
        scale_sets = f"{self._group}/Microsoft.Compute/virtualMachineScaleSets"
        parts: dict[str, list[Machine]] = {}

        async def look_into(name: str) -> None:
            path = f"{scale_sets}/{quote(name, safe='')}"
            parts[name] = await (self._of_scale_set(path) if name else self._stand_alone())

        # The machines of a flexible one are among those of their own.
        uniform = [
            str(each.get("name"))
            for each in await self._manager.list(scale_sets, COMPUTE)
            if each.get("properties", {}).get("orchestrationMode") != "Flexible"
        ]
        failed = await fan_out(["", *uniform], look_into, PARALLEL)
        if failed:
            raise failed[0].reason
        self._known = [machine for name in ("", *uniform) for machine in parts[name]]
        self._looked = self._clock.seconds()
        return self._known

    async def recent(self) -> Sequence[Machine]:
        """Return all machines as they are, or were a short while ago."""
        await self._looking.acquire()
        try:
            if self._clock.seconds() - self._looked >= self._cache:
                await self.look()
        finally:
            self._looking.release()
        return self._known

    async def find(self, is_wanted: Callable[[Machine], bool]) -> Machine:
        """Return a machine, as it is or was a short while ago.

        :raise InstanceNotFound: there is none, right now.
        """
        await self._looking.acquire()
        try:
            fresh = self._clock.seconds() - self._looked >= self._cache
            if fresh:
                await self.look()
            found = next(filter(is_wanted, self._known), None)
            if found is None and not fresh:
                found = next(filter(is_wanted, await self.look()), None)
        finally:
            self._looking.release()
        if found is None:
            raise InstanceNotFound
        return found

    async def _stand_alone(self) -> list[Machine]:
        network = f"{self._group}/Microsoft.Network"
        resources, interfaces, public = await together(
            self._manager.list(f"{self._group}/Microsoft.Compute/virtualMachines", COMPUTE),
            self._manager.list(f"{network}/networkInterfaces", NETWORK),
            self._manager.list(f"{network}/publicIPAddresses", NETWORK),
        )
        powers = await self._all_powers(resources) if resources else {}
        machines = [read_machine(each, powers.get(str(each.get("id")).lower(), "")) for each in resources]
        return _with_addresses(machines, interfaces, public)

    async def _of_scale_set(self, path: str) -> list[Machine]:
        resources, interfaces, public = await together(
            self._manager.list(f"{path}/virtualMachines", f"{COMPUTE}&$expand=instanceView"),
            self._manager.list(f"{path}/networkInterfaces", SCALE_SET_NETWORK),
            self._manager.list(f"{path}/publicipaddresses", SCALE_SET_NETWORK),
        )
        return _with_addresses([read_machine(each) for each in resources], interfaces, public)

    async def _all_powers(self, resources: Sequence[dict[str, Any]]) -> dict[str, str]:
        # One list for the whole subscription; where that is not for us, one question for each machine.
        path = f"{self._subscription}/providers/Microsoft.Compute/virtualMachines"
        try:
            said = await self._manager.list(path, f"{COMPUTE}&statusOnly=true")
        except AzureError as e:
            if e.status != 403:
                raise
        else:
            return {str(each.get("id")).lower(): power_of(each.get("properties", {})) for each in said}
        now = self._clock.seconds()
        there = [str(each.get("id")) for each in resources]
        keys = {path.lower() for path in there}
        self._powers = {
            key: known for key, known in self._powers.items() if key in keys and now - known[0] < self._cache
        }
        failed = await fan_out(
            [path for path in there if path.lower() not in self._powers], self._ask_power, PARALLEL
        )
        if failed:
            reasons = describe((each.item.rpartition("/")[2], each.reason) for each in failed)
            raise AzureError(f"the state of {len(failed)} machines is not known: {reasons}", 403, "")
        return {key: power for key, (_, power) in self._powers.items()}

    async def _ask_power(self, path: str) -> None:
        power = ""
        try:
            said = await self._manager.get(f"{path}/instanceView", COMPUTE)
            power = power_of({"instanceView": said})
        except AzureError as e:
            if e.status != 404:  # It was deleted meanwhile.
                raise
        self._powers[path.lower()] = (self._clock.seconds(), power)


def _with_addresses(
    machines: Sequence[Machine], interfaces: Sequence[dict[str, Any]], public: Sequence[dict[str, Any]]
) -> list[Machine]:
    """Return machines with the addresses that two lists of resources say."""
    known = _by_id(interfaces)
    addresses = {
        key: str(each.get("properties", {}).get("ipAddress") or "") for key, each in _by_id(public).items()
    }
    return [with_addresses(machine, known, addresses) for machine in machines]


def _by_id(resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {str(each.get("id")).lower(): each for each in resources}
