"""What EC2 says of instances, and what Kubernetes makes of it."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element

from attrs import frozen

from tower.cloud.aws.xml import text_of
from tower.cloud.errors import CloudError
from tower.cloud.interfaces import Instance, NodeAddress, Zone

#: How EC2 names instances.
INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,30}")

#: How regions are called.
REGION = re.compile(r"[a-z]{2,8}(?:-[a-z]+)+?-[0-9]+")

#: An instance in one of these states is there, but off.
_OFF = frozenset(("stopping", "stopped", "shutting-down", "terminated"))


@frozen
class EC2Instance:
    """One instance.

    :ivar id: ``i-`` and hexadecimal digits.
    :ivar state: ``pending``, ``running``, ``shutting-down``, ``terminated``, ``stopping`` or ``stopped``.
    :ivar private_dns: as EC2 named it; what Kubernetes calls the node.
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
    def name(self) -> str:
        """What Kubernetes calls the node; its id where EC2 gave it no name."""
        return self.private_dns or self.id

    @property
    def provider_id(self) -> str:
        """As a node's ``spec.providerID`` has it."""
        return f"aws:///{self.zone}/{self.id}"

    @property
    def is_off(self) -> bool:
        """Whether it is, or will soon be, shut down."""
        return self.state in _OFF

    def as_instance(self) -> Instance:
        """Return it in the words of all clouds."""
        return Instance(
            name=self.name,
            provider_id=self.provider_id,
            addresses=self.addresses,
            type=self.type,
            zone=Zone(self.zone, region_of(self.zone)),
            running=self.state == "running",
        )

    def is_called(self, host: str) -> bool:
        """Tell whether *host* is one of its names or addresses, IPv6 without brackets."""
        return host == self.id or any(host == address.address for address in self.addresses)


def region_of(zone: str) -> str:
    """Return the region of an availability, local or wavelength zone; empty if *zone* is none.

    ``us-east-1a`` is in us-east-1, ``us-west-2-lax-1a`` in us-west-2.
    """
    found = REGION.match(zone)
    return found[0] if found else ""


def instance_id_of(provider_id: str) -> str:
    """Return the instance's id in ``aws:///ZONE/ID``, ``aws:///ID`` or a bare ``ID``.

    :raise CloudError: if it is none of these.
    """
    zone, _, name = provider_id.removeprefix("aws://").strip("/").rpartition("/")
    if not INSTANCE_ID.fullmatch(name) or "/" in zone:
        raise CloudError(f"provider id {provider_id!r}: must be aws:///ZONE/i-…")
    return name


def read_instances(root: Element) -> tuple[list[EC2Instance], str]:
    """Return the instances in an answer to DescribeInstances, and its next page's token, empty for none."""
    found = [_read(item) for item in root.iterfind("reservationSet/item/instancesSet/item")]
    return found, text_of(root, "nextToken")


def _read(item: Element) -> EC2Instance:
    return EC2Instance(
        id=text_of(item, "instanceId"),
        state=text_of(item, "instanceState/name"),
        private_dns=text_of(item, "privateDnsName"),
        type=text_of(item, "instanceType"),
        zone=text_of(item, "placement/availabilityZone"),
        addresses=tuple(_addresses(item)),
        platform=text_of(item, "platform"),
    )


def _addresses(item: Element) -> list[NodeAddress]:
    # A dictionary, since what the instance has is said once more of its first network interface.
    found: dict[NodeAddress, None] = {}
    interfaces = sorted(item.iterfind("networkInterfaceSet/item"), key=_device_index)

    def add(kind: str, *addresses: str) -> None:
        found.update((NodeAddress(kind, address), None) for address in addresses if address)

    add("InternalIP", text_of(item, "privateIpAddress"))
    for interface in interfaces:
        for private in interface.iterfind("privateIpAddressesSet/item"):
            add("InternalIP", text_of(private, "privateIpAddress"))
    for interface in interfaces:
        for address in interface.iterfind("ipv6AddressesSet/item"):
            add("InternalIP", text_of(address, "ipv6Address"))
    add("ExternalIP", text_of(item, "ipAddress"))
    for interface in interfaces:
        for private in interface.iterfind("privateIpAddressesSet/item"):
            add("ExternalIP", text_of(private, "association/publicIp"))
    private_dns = text_of(item, "privateDnsName")
    add("InternalDNS", private_dns)
    add("Hostname", private_dns)
    add("ExternalDNS", text_of(item, "dnsName"))
    return list(found)


def _device_index(interface: Element) -> int:
    text = text_of(interface, "attachment/deviceIndex")
    return int(text) if text.isdecimal() else 0
