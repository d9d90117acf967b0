"""EC2's instances, and how Kubernetes names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from attrs import frozen

from tower.cloud.aws.xml import text_of
from tower.cloud.errors import CloudError
from tower.cloud.interfaces import (
    EXTERNAL_DNS,
    EXTERNAL_IP,
    HOSTNAME,
    INTERNAL_DNS,
    INTERNAL_IP,
    Instance,
    NodeAddress,
    Zone,
)

#: IDs of instances.
INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,30}")

#: Names of regions.
REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]+)+?-[0-9]+")

#: States of instances that are shut down or shutting down.
_OFF = frozenset(("stopping", "stopped", "shutting-down", "terminated"))

_NOTHING = Element("nothing")


@frozen
class EC2Instance:
    """One instance.

    :ivar id: ``i-`` and hexadecimal digits.
    :ivar state: ``pending``, ``running``, ``shutting-down``, ``terminated``, ``stopping`` or ``stopped``.
    :ivar private_dns: private DNS name, the node's name in Kubernetes.
    :ivar zone: availability zone.
    :ivar platform: ``windows``, or empty.
    """

    id: str
    state: str
    private_dns: str
    type: str
    zone: str
    addresses: tuple[NodeAddress, ...]
    platform: str = ""

    @property
    def is_off(self) -> bool:
        """Whether it is shut down or shutting down."""
        return self.state in _OFF

    def as_instance(self) -> Instance:
        """Return it as `Instance`."""
        return Instance(
            name=self.private_dns or self.id,
            provider_id=f"aws:///{self.zone}/{self.id}",
            addresses=self.addresses,
            type=self.type,
            zone=Zone(self.zone, region_of(self.zone)),
            running=self.state == "running",
        )

    @property
    def names(self) -> set[str]:
        """Its ID, DNS names and addresses, IPv6 without brackets."""
        return {self.id, *(address.address for address in self.addresses)}


def region_of(zone: str) -> str:
    """Return the region of an availability, local or wavelength zone; empty: not a zone.

    ``us-east-1a`` is in us-east-1, ``us-west-2-lax-1a`` in us-west-2.
    """
    found = REGION.match(zone)
    return found[0] if found else ""


def instance_id_of(provider_id: str) -> str:
    """Return the ID in ``aws:///ZONE/ID``, ``aws:///ID`` or ``ID``; raise `CloudError` if it is invalid."""
    zone, _, name = provider_id.removeprefix("aws://").strip("/").rpartition("/")
    if not INSTANCE_ID.fullmatch(name) or "/" in zone:
        raise CloudError(f"provider id {provider_id!r}: must be aws:///ZONE/i-…")
    return name


def instance_items(root: Element) -> Iterator[Element]:
    """Yield the elements of instances in a response to DescribeInstances."""
    for reservation in root.iterfind("reservationSet/item"):
        yield from reservation.iterfind("instancesSet/item")


def read_instance(item: Element) -> EC2Instance:
    """Return the instance of an element of `instance_items`."""
    parts = {each.tag: each for each in item}
    private_dns = _text(parts, "privateDnsName")
    return EC2Instance(
        id=_text(parts, "instanceId"),
        state=text_of(parts.get("instanceState", _NOTHING), "name"),
        private_dns=private_dns,
        type=_text(parts, "instanceType"),
        zone=text_of(parts.get("placement", _NOTHING), "availabilityZone"),
        addresses=tuple(_addresses(parts, private_dns)),
        platform=_text(parts, "platform"),
    )


def _text(parts: Mapping[str, Element], name: str) -> str:
    return (parts.get(name, _NOTHING).text or "").strip()


def _addresses(parts: Mapping[str, Element], private_dns: str) -> list[NodeAddress]:
    # A dictionary: the addresses of the instance are repeated in its first network interface.
    found: dict[tuple[str, str], None] = {(INTERNAL_IP, _text(parts, "privateIpAddress")): None}
    interfaces = sorted(parts.get("networkInterfaceSet", _NOTHING), key=_device_index)
    private = [each for interface in interfaces for each in _items(interface, "privateIpAddressesSet")]
    for each in private:
        found[INTERNAL_IP, text_of(each, "privateIpAddress")] = None
    for interface in interfaces:
        for each in _items(interface, "ipv6AddressesSet"):
            found[INTERNAL_IP, text_of(each, "ipv6Address")] = None
    found[EXTERNAL_IP, _text(parts, "ipAddress")] = None
    for each in private:
        found[EXTERNAL_IP, text_of(each, "association/publicIp")] = None
    found[INTERNAL_DNS, private_dns] = None
    found[HOSTNAME, private_dns] = None
    found[EXTERNAL_DNS, _text(parts, "dnsName")] = None
    return [NodeAddress(kind, address) for kind, address in found if address]


def _items(element: Element, name: str) -> Element:
    found = element.find(name)
    return _NOTHING if found is None else found


def _device_index(interface: Element) -> int:
    text = text_of(interface, "attachment/deviceIndex")
    return int(text) if text.isdecimal() else 0
