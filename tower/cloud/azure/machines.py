"""Azure's machines and their addresses, and how Kubernetes names them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from attrs import evolve, frozen

from tower.cloud.errors import CloudError
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    HOSTNAME,
    INTERNAL_DNS,
    INTERNAL_IP,
    Instance,
    NodeAddress,
    Zone,
)

_NAME = r"(?!\.{1,2}(?:/|\Z))[\w.()-]{1,120}"
_MACHINE = re.compile(
    rf"/subscriptions/([\w-]{{1,64}})/resourceGroups/{_NAME}/providers/Microsoft\.Compute/"
    rf"(?:virtualMachineScaleSets/{_NAME}/)?virtualMachines/{_NAME}",
    re.IGNORECASE,
)
_OFF = frozenset(("stopping", "stopped", "deallocating", "deallocated"))


@frozen
class Machine:
    """One machine, of a scale set or not.

    :ivar id: of the resource.
    :ivar name: of the node.
    :ivar size: such as ``Standard_D2s_v3``.
    :ivar zone: within the location, such as ``1``; empty: none.
    :ivar system: ``Linux`` or ``Windows``.
    :ivar power: ``running``, ``stopped``, ``deallocated``, …; empty: unknown.
    :ivar interfaces: IDs of its network interfaces, in lower case, the primary one first.
    """

    id: str
    name: str
    size: str
    location: str
    zone: str
    system: str
    power: str
    interfaces: tuple[str, ...]
    addresses: tuple[NodeAddress, ...] = ()

    @property
    def key(self) -> str:
        """Its ID in lower case: Azure does not preserve case."""
        return self.id.lower()

    @property
    def is_off(self) -> bool:
        """Whether it is shut down or shutting down."""
        return self.power in _OFF

    @property
    def is_of_scale_set(self) -> bool:
        """Whether it belongs to a scale set."""
        return "/virtualmachinescalesets/" in self.key

    def as_instance(self) -> Instance:
        """Return it as `Instance`."""
        return Instance(
            name=self.name,
            provider_id=f"azure://{self.id}",
            addresses=self.addresses,
            type=self.size,
            zone=zone_of(self.location, self.zone),
            running=self.power == "running",
        )


def zone_of(location: str, zone: str) -> Zone:
    """Return the zone with a number within a location."""
    region = location.lower().replace(" ", "")
    return Zone(f"{region}-{zone}" if zone else "", region)


def path_of(provider_id: str, subscription: str) -> str:
    """Return the path of a machine; raise `CloudError` for an invalid ID or another subscription."""
    path = provider_id.removeprefix("azure://")
    found = _MACHINE.fullmatch(path)
    if not found:
        raise CloudError(f"provider id {provider_id!r}: must be azure:///subscriptions/…/virtualMachines/…")
    if found[1].lower() != subscription.lower():
        raise CloudError(f"provider id {provider_id!r}: belongs to another subscription")
    return path


def read_machine(fields: Mapping[str, Any]) -> Machine:
    """Return the machine of a resource, without addresses; raise `CloudError` if that has no valid ID."""
    properties = _part(fields, "properties")
    profile = _part(properties, "osProfile")
    resource = _text(fields, "id")
    if not _MACHINE.fullmatch(resource):
        raise CloudError("the response has a machine without a valid id")
    name = _text(fields, "name")
    if "/virtualmachinescalesets/" in resource.lower() or _part(properties, "virtualMachineScaleSet"):
        name = _text(profile, "computerName").lower() or name
    references = [
        (not _part(each, "properties").get("primary", False), _text(each, "id").lower())
        for each in _parts(_part(properties, "networkProfile"), "networkInterfaces")
    ]
    zones = fields.get("zones")
    return Machine(
        id=resource,
        name=name,
        size=_text(_part(properties, "hardwareProfile"), "vmSize") or _text(_part(fields, "sku"), "name"),
        location=_text(fields, "location"),
        zone=str(zones[0]) if isinstance(zones, list) and zones else "",
        system=_text(_part(_part(properties, "storageProfile"), "osDisk"), "osType"),
        power=power_of(properties),
        interfaces=tuple(key for _, key in sorted(references, key=lambda each: each[0])),
    )


def power_of(properties: Mapping[str, Any]) -> str:
    """Return the power state in a machine's instance view; empty: unknown."""
    for status in _parts(_part(properties, "instanceView"), "statuses"):
        kind, _, state = _text(status, "code").partition("/")
        if kind.lower() == "powerstate":
            return state.lower()
    return ""


@frozen
class NetworkInterface:
    """A network interface.

    :ivar addresses: private addresses, the primary one first, each with the ID of its public address in lower
        case, or an empty string.
    :ivar suffix: of internal DNS names; empty: none.
    """

    addresses: tuple[tuple[str, str], ...]
    suffix: str


def read_interface(fields: Mapping[str, Any]) -> tuple[str, NetworkInterface]:
    """Return a network interface's ID in lower case, and the interface."""
    properties = _part(fields, "properties")
    addresses = []
    for configuration in sorted(_parts(properties, "ipConfigurations"), key=_is_secondary):
        inside = _part(configuration, "properties")
        public = _text(_part(inside, "publicIPAddress"), "id").lower()
        addresses.append((_text(inside, "privateIPAddress"), public))
    suffix = _text(_part(properties, "dnsSettings"), "internalDomainNameSuffix")
    return _text(fields, "id").lower(), NetworkInterface(tuple(addresses), suffix)


def read_public(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return a public address's ID in lower case, and the address; empty: not assigned."""
    return _text(fields, "id").lower(), _text(_part(fields, "properties"), "ipAddress")


def read_power(fields: Mapping[str, Any]) -> tuple[str, str]:
    """Return a machine's ID in lower case, and its power state."""
    return _text(fields, "id").lower(), power_of(_part(fields, "properties"))


def with_addresses(
    machine: Machine,
    interfaces: Mapping[str, NetworkInterface],
    public: Mapping[str, str],
    power: str | None = None,
) -> Machine:
    """Return a machine with the addresses of its network interfaces.

    :param interfaces: by ID.
    :param public: public addresses by ID.
    :param power: power state; None: unchanged.
    """
    found: dict[tuple[str, str], None] = {}
    for key in machine.interfaces:
        interface = interfaces.get(key)
        if interface is None:
            continue
        for inside, outside in interface.addresses:
            found[INTERNAL_IP, inside] = None
            found[EXTERNAL_IP, public.get(outside, "")] = None
        found[INTERNAL_DNS, f"{machine.name}.{interface.suffix}" if interface.suffix else ""] = None
    found[HOSTNAME, machine.name] = None
    return evolve(
        machine,
        addresses=tuple(NodeAddress(kind, address) for kind, address in found if address),
        power=machine.power if power is None else power,
    )


def _is_secondary(configuration: Mapping[str, Any]) -> bool:
    return not _part(configuration, "properties").get("primary", False)


def _text(fields: Mapping[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""


def _part(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    return value if isinstance(value, Mapping) else {}


def _parts(fields: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = fields.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
