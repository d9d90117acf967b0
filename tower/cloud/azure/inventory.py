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
from tower.cloud.fanout import describe, fan_out

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
        machines, interfaces, public = await self._stand_alone()
        scale_sets = f"{self._group}/Microsoft.Compute/virtualMachineScaleSets"
        for scale_set in await self._manager.list(scale_sets, COMPUTE):
            # The machines of a flexible one are among those of their own.
            if scale_set.get("properties", {}).get("orchestrationMode") != "Flexible":
                more, its_interfaces, its_public = await self._of_scale_set(
                    f"{scale_sets}/{quote(str(scale_set.get('name')), safe='')}"
                )
                machines += more
                interfaces |= its_interfaces
                public |= its_public
        self._known = [with_addresses(machine, interfaces, public) for machine in machines]
        self._looked = self._clock.seconds()
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

    async def _stand_alone(self) -> tuple[list[Machine], dict[str, Any], dict[str, str]]:
        resources = await self._manager.list(f"{self._group}/Microsoft.Compute/virtualMachines", COMPUTE)
        powers = await self._all_powers(resources) if resources else {}
        machines = [read_machine(each, powers.get(str(each.get("id")).lower(), "")) for each in resources]
        interfaces = await self._manager.list(f"{self._group}/Microsoft.Network/networkInterfaces", NETWORK)
        public = await self._manager.list(f"{self._group}/Microsoft.Network/publicIPAddresses", NETWORK)
        return machines, _by_id(interfaces), _addresses(public)

    async def _of_scale_set(self, path: str) -> tuple[list[Machine], dict[str, Any], dict[str, str]]:
        machines = await self._manager.list(f"{path}/virtualMachines", f"{COMPUTE}&$expand=instanceView")
        interfaces = await self._manager.list(f"{path}/networkInterfaces", SCALE_SET_NETWORK)
        public = await self._manager.list(f"{path}/publicipaddresses", SCALE_SET_NETWORK)
        return [read_machine(each) for each in machines], _by_id(interfaces), _addresses(public)

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


def _by_id(resources: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {str(each.get("id")).lower(): each for each in resources}


def _addresses(resources: Sequence[dict[str, Any]]) -> dict[str, str]:
    return {
        key: str(each.get("properties", {}).get("ipAddress") or "") for key, each in _by_id(resources).items()
    }
