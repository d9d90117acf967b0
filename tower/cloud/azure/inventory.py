"""The machines of a resource group, inside and outside scale sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.interfaces import IReactorTime

from tower.cloud.azure.arm import AzureError, Resource, ResourceManager
from tower.cloud.azure.config import AzureConfig
from tower.cloud.azure.machines import (
    Machine,
    NetworkInterface,
    power_of,
    read_interface,
    read_machine,
    read_power,
    read_public,
    with_addresses,
)
from tower.cloud.errors import InstanceNotFound
from tower.cloud.http.fan_out import describe, fan_out, gather
from tower.reactor.cooperate import map_cooperatively

#: Versions of the APIs.
COMPUTE = "api-version=2024-07-01"
NETWORK = "api-version=2024-05-01"
SCALE_SET_NETWORK = "api-version=2018-10-01"

#: Maximum number of parallel requests for single machines.
PARALLEL = 8


def _uniform(scale_set: Resource) -> str:
    """Return the name of a scale set; empty for a flexible one."""
    flexible = (scale_set.get("properties") or {}).get("orchestrationMode") == "Flexible"
    return "" if flexible else str(scale_set.get("name"))


class Inventory:
    """Lists the machines, with a cache."""

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
        """List all machines with their addresses; raise `CloudError` if the list would be incomplete."""
        scale_sets = f"{self._group}/Microsoft.Compute/virtualMachineScaleSets"
        parts: dict[str, list[Machine]] = {}

        async def list_part(name: str) -> None:
            path = f"{scale_sets}/{quote(name, safe='')}"
            parts[name] = await (self._of_scale_set(path) if name else self._stand_alone())

        # Machines of flexible scale sets are listed as stand-alone machines.
        uniform = [name for name in await self._manager.list(scale_sets, COMPUTE, _uniform) if name]
        failed = await fan_out(["", *uniform], list_part, PARALLEL)
        if failed:
            raise failed[0].reason
        self._known = [machine for name in ("", *uniform) for machine in parts[name]]
        self._looked = self._clock.seconds()
        return self._known

    async def recent(self) -> Sequence[Machine]:
        """Return all machines, from the cache if it is fresh."""
        await self._looking.acquire()
        try:
            if self._clock.seconds() - self._looked >= self._cache:
                await self.look()
        finally:
            self._looking.release()
        return self._known

    async def find(self, is_wanted: Callable[[Machine], bool]) -> Machine:
        """Return a machine, from the cache if it is fresh and has it.

        :raise InstanceNotFound: there is none now.
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
        found_machines: Deferred[str] = Deferred()

        def read(resource: Resource) -> Machine:
            if not found_machines.called:
                found_machines.callback("some")
            return read_machine(resource)

        async def machines() -> list[Machine]:
            path = f"{self._group}/Microsoft.Compute/virtualMachines"
            try:
                return await self._manager.list(path, COMPUTE, read)
            finally:
                if not found_machines.called:
                    found_machines.callback("none")

        async def powers() -> dict[str, str] | None:
            return await self._all_powers() if await found_machines == "some" else {}

        found: list[Any] = await gather(
            machines(),
            powers(),
            self._manager.list(f"{network}/networkInterfaces", NETWORK, read_interface),
            self._manager.list(f"{network}/publicIPAddresses", NETWORK, read_public),
        )
        alone, known, interfaces, public = found
        if known is None:
            known = await self._each_power(alone)
        return await self._with_addresses(
            alone, interfaces, public, lambda machine: known.get(machine.key, "")
        )

    async def _of_scale_set(self, path: str) -> list[Machine]:
        found: list[Any] = await gather(
            self._manager.list(f"{path}/virtualMachines", f"{COMPUTE}&$expand=instanceView", read_machine),
            self._manager.list(f"{path}/networkInterfaces", SCALE_SET_NETWORK, read_interface),
            self._manager.list(f"{path}/publicipaddresses", SCALE_SET_NETWORK, read_public),
        )
        machines, interfaces, public = found
        return await self._with_addresses(machines, interfaces, public, lambda _: None)

    async def _with_addresses(
        self,
        machines: Sequence[Machine],
        interfaces: Iterable[tuple[str, NetworkInterface]],
        public: Iterable[tuple[str, str]],
        power: Callable[[Machine], str | None],
    ) -> list[Machine]:
        known, addresses = dict(interfaces), dict(public)
        return await map_cooperatively(
            self._clock, machines, lambda each: with_addresses(each, known, addresses, power(each))
        )

    async def _all_powers(self) -> dict[str, str] | None:
        """Return the power state of all machines of the subscription, by ID; None: not authorized."""
        path = f"{self._subscription}/providers/Microsoft.Compute/virtualMachines"
        try:
            return dict(await self._manager.list(path, f"{COMPUTE}&statusOnly=true", read_power))
        except AzureError as e:
            if e.status != 403:
                raise
            return None

    async def _each_power(self, machines: Sequence[Machine]) -> dict[str, str]:
        """Return the power state of *machines*, by ID, with a request for each."""
        now = self._clock.seconds()
        keys = {machine.key for machine in machines}
        self._powers = {
            key: known for key, known in self._powers.items() if key in keys and now - known[0] < self._cache
        }
        failed = await fan_out(
            [each for each in machines if each.key not in self._powers], self._request_power, PARALLEL
        )
        if failed:
            reasons = describe((each.item.id.rpartition("/")[2], each.reason) for each in failed)
            raise AzureError(f"the state of {len(failed)} machines is unknown: {reasons}", 403, "")
        return {key: power for key, (_, power) in self._powers.items()}

    async def _request_power(self, machine: Machine) -> None:
        power = ""
        try:
            view = await self._manager.get(f"{machine.id}/instanceView", COMPUTE)
            power = power_of({"instanceView": view})
        except AzureError as e:
            if e.status != 404:  # deleted
                raise
        self._powers[machine.key] = (self._clock.seconds(), power)
