"""What Azure says of machines, and what Kubernetes makes of it."""

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
    :ivar name: what Kubernetes calls the node.
    :ivar size: ``Standard_D2s_v3`` and such.
    :ivar zone: within the location, ``1`` and such; empty where there is none.
    :ivar system: ``Linux`` or ``Windows``.
    :ivar power: ``running``, ``stopped``, ``deallocated``, …; empty: not known.
    :ivar interfaces: ids of its network interfaces, in lower case, the primary one first.
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
        """Its id as it can be compared: Azure does not keep the case of letters."""
        return self.id.lower()

    @property
    def provider_id(self) -> str:
        """As a node's ``spec.providerID`` has it."""
        return f"azure://{self.id}"

    @property
    def is_off(self) -> bool:
        """Whether it is, or will soon be, shut down."""
        return self.power in _OFF

    @property
    def in_zone(self) -> Zone:
        """Where it stands."""
        return zone_of(self.location, self.zone)

    @property
    def is_of_scale_set(self) -> bool:
        """Whether a scale set keeps it."""
        return "/virtualmachinescalesets/" in self.key

    def as_instance(self) -> Instance:
        """Return it in the words of all clouds."""
        return Instance(
            name=self.name,
            provider_id=self.provider_id,
            addresses=self.addresses,
            type=self.size,
            zone=self.in_zone,
            running=self.power == "running",
        )


def zone_of(location: str, zone: str) -> Zone:
    """Return a zone by its number within a location."""
    region = location.lower().replace(" ", "")
    return Zone(f"{region}-{zone}" if zone else "", region)


def path_of(provider_id: str, subscription: str) -> str:
    """Return the path of a machine by its provider id.

    :raise CloudError: it is none, or one of another subscription.
    """
    path = provider_id.removeprefix("azure://")
    found = _MACHINE.fullmatch(path)
    if not found:
        raise CloudError(f"provider id {provider_id!r}: must be azure:///subscriptions/…/virtualMachines/…")
    if found[1].lower() != subscription.lower():
        raise CloudError(f"provider id {provider_id!r}: is of another subscription")
    return path


def read_machine(said: Mapping[str, Any]) -> Machine:
    """Return the machine that a resource describes, still without addresses.

    :raise CloudError: it describes none.
    """
    properties = _part(said, "properties")
    profile = _part(properties, "osProfile")
    resource = _text(said, "id")
    if not _MACHINE.fullmatch(resource):
        raise CloudError("Azure describes a machine that has no id")
    name = _text(said, "name")
    if "/virtualmachinescalesets/" in resource.lower() or _part(properties, "virtualMachineScaleSet"):
        name = _text(profile, "computerName").lower() or name
    references = [
        (not _part(each, "properties").get("primary", False), _text(each, "id").lower())
        for each in _parts(_part(properties, "networkProfile"), "networkInterfaces")
    ]
    zones = said.get("zones")
    return Machine(
        id=resource,
        name=name,
        size=_text(_part(properties, "hardwareProfile"), "vmSize") or _text(_part(said, "sku"), "name"),
        location=_text(said, "location"),
        zone=str(zones[0]) if isinstance(zones, list) and zones else "",
        system=_text(_part(_part(properties, "storageProfile"), "osDisk"), "osType"),
        power=power_of(properties),
        interfaces=tuple(key for _, key in sorted(references, key=lambda each: each[0])),
    )


def power_of(properties: Mapping[str, Any]) -> str:
    """Return the state in a machine's instance view; empty if there is none."""
    for status in _parts(_part(properties, "instanceView"), "statuses"):
        kind, _, state = _text(status, "code").partition("/")
        if kind.lower() == "powerstate":
            return state.lower()
    return ""


@frozen
class Interface:
    """A network interface.

    :ivar addresses: each with the id, in lower case, of the public one that leads to it, or an empty text;
        the primary one first.
    :ivar suffix: of the names inside the network; empty if there are none.
    """

    addresses: tuple[tuple[str, str], ...]
    suffix: str


def read_interface(said: Mapping[str, Any]) -> tuple[str, Interface]:
    """Return the id, in lower case, of a network interface, and it."""
    properties = _part(said, "properties")
    addresses = []
    for configuration in sorted(_parts(properties, "ipConfigurations"), key=_is_secondary):
        inside = _part(configuration, "properties")
        public = _text(_part(inside, "publicIPAddress"), "id").lower()
        addresses.append((_text(inside, "privateIPAddress"), public))
    suffix = _text(_part(properties, "dnsSettings"), "internalDomainNameSuffix")
    return _text(said, "id").lower(), Interface(tuple(addresses), suffix)


def read_public(said: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id, in lower case, of a public address, and it; empty while it is none."""
    return _text(said, "id").lower(), _text(_part(said, "properties"), "ipAddress")


def read_power(said: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id, in lower case, of a machine, and its state."""
    return _text(said, "id").lower(), power_of(_part(said, "properties"))


def completed(
    machine: Machine, interfaces: Mapping[str, Interface], public: Mapping[str, str], power: str | None = None
) -> Machine:
    """Return a machine with the addresses that it has at its network interfaces.

    :param interfaces: by id.
    :param public: addresses by id.
    :param power: None: as the machine says itself.
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


def _text(said: Mapping[str, Any], key: str) -> str:
    value = said.get(key)
    return value if isinstance(value, str) else ""


def _part(said: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = said.get(key)
    return value if isinstance(value, Mapping) else {}


def _parts(said: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = said.get(key)
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
