"""The servers of an OpenStack project, and their zones, as nodes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeVar

from attrs import evolve
from twisted.logger import Logger
from zope.interface import implementer

from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound
from tower.cloud.http.fan_out import describe, fan_out
from tower.cloud.interfaces import (
    EXTERNAL_IP,
    INTERNAL_IP,
    IInstances,
    Instance,
    IZones,
    NodeAddress,
    Zone,
)
from tower.cloud.openstack.config import OpenStackConfig
from tower.cloud.openstack.keys import ITEM_LIMIT, PREFIX, metadata_item
from tower.cloud.openstack.metadata import Here
from tower.cloud.openstack.nova import Nova, Server, flavor_of
from tower.reactor.cooperate import map_cooperatively

#: States in which a server can be expected to answer, now or soon.
UP = frozenset(("ACTIVE", "REBOOT", "HARD_REBOOT", "PASSWORD", "MIGRATING", "VERIFY_RESIZE"))
#: States of a server that is only there until it is forgotten.
GONE = frozenset(("DELETED", "SOFT_DELETED"))
SHUT_OFF = "SHUTOFF"

#: Most servers that are changed at one time.
AT_ONCE = 8

T = TypeVar("T")

_PROVIDER_ID = re.compile(r"openstack://([^/]*)/([^/]+)")
# Nova says "Maximum number of metadata items exceeds 128", or something of a quota, by its version.
_FULL = re.compile(r"number of metadata items|quota", re.IGNORECASE)
_SPECIAL = re.compile(r"[][\\.^$*+?(){}|]")


class Servers:
    """Finds the servers that the configuration means."""

    def __init__(self, nova: Nova, config: OpenStackConfig) -> None:
        self.nova = nova
        self._config = config

    async def all(self, read: Callable[[Server], T]) -> list[T]:
        """Return what *read* makes of all of them, by name."""

        def read_if_meant(server: Server) -> tuple[str, str, T] | None:
            return (server["name"], server["id"], read(server)) if self._is_meant(server) else None

        prefix = self._config.node_prefix
        found = await self.nova.servers(f"^{_quoted(prefix)}" if prefix else "", read_if_meant)
        found.sort(key=itemgetter(0, 1))
        return [each for _, _, each in found]

    async def named(self, name: str) -> Server:
        """Return the one of a node.

        :raise InstanceNotFound: there is none.
        :raise CloudError: there are several.
        """
        if not 0 < len(name) <= ITEM_LIMIT:
            raise InstanceNotFound

        def is_it(server: Server) -> Server | None:
            return server if server["name"] == name and server.get("status") not in GONE else None

        found = await self.nova.servers(f"^{_quoted(name)}$", is_it)
        if len(found) > 1:
            raise CloudError(
                f"multiple results where only one expected: {len(found)} servers are called {name}"
            )
        if not found:
            raise InstanceNotFound
        return found[0]

    async def identified(self, provider_id: str) -> Server:
        """Return the one that ``openstack:///<id>``, perhaps with a region, means.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it is of another region, of which we know nothing.
        """
        match = _PROVIDER_ID.fullmatch(provider_id)
        if match is None:
            raise CloudError(f"no provider id of the form openstack:///<id>: {provider_id[:200]!r}")
        if match[1] and match[1] != await self.nova.region():
            raise CloudError(f"{provider_id[:200]} is of another region than {await self.nova.region()}")
        server = await self.nova.server(match[2])
        if server.get("status") in GONE:
            raise InstanceNotFound
        return server

    def addresses(self, server: Server) -> tuple[NodeAddress, ...]:
        """Return the addresses of one, each once: those inside first."""
        found = sorted(self._addresses(server), key=lambda address: address.type != INTERNAL_IP)
        return tuple(dict.fromkeys(each for each in found if self._config.with_v6 or ":" not in each.address))

    async def zone(self, server: Server) -> Zone:
        """Return the zone of one."""
        return Zone(server.get("OS-EXT-AZ:availability_zone") or "", await self.nova.region())

    def _addresses(self, server: Server) -> Iterator[NodeAddress]:
        for network, addresses in sorted((server.get("addresses") or {}).items()):
            for each in addresses or ():
                outside = each.get("OS-EXT-IPS:type") == "floating" or network in self._config.public_networks
                inside = self._config.internal_networks
                if not outside and inside and network not in inside:
                    continue
                if address := each.get("addr"):
                    yield NodeAddress(EXTERNAL_IP if outside else INTERNAL_IP, address)
        for key in ("accessIPv4", "accessIPv6"):
            if address := server.get(key):
                yield NodeAddress(EXTERNAL_IP, address)

    def _is_meant(self, server: Server) -> bool:
        metadata = server.get("metadata") or {}
        return (
            server["name"].startswith(self._config.node_prefix)
            and server.get("status") not in GONE
            and all(metadata.get(name) == value for name, value in self._config.node_metadata)
        )


@implementer(IInstances)
class OpenStackInstances:
    """See `IInstances`."""

    _log = Logger()

    def __init__(self, servers: Servers, here: Here) -> None:
        self._servers = servers
        self._here = here

    async def node_addresses(self, name: str) -> tuple[NodeAddress, ...]:
        """See `IInstances`."""
        return self._servers.addresses(await self._servers.named(name))

    async def node_addresses_by_provider_id(self, provider_id: str) -> tuple[NodeAddress, ...]:
        """See `IInstances`."""
        return self._servers.addresses(await self._servers.identified(provider_id))

    async def instance_id(self, name: str) -> str:
        """Return ``/<id>``: provider ids have an empty place for an endpoint before it."""
        return f"/{(await self._servers.named(name))['id']}"

    async def instance_type(self, name: str) -> str:
        """See `IInstances`."""
        return await self._servers.nova.flavor(await self._servers.named(name))

    async def instance_type_by_provider_id(self, provider_id: str) -> str:
        """See `IInstances`."""
        return await self._servers.nova.flavor(await self._servers.identified(provider_id))

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """Put *key* among the metadata of every server; each has to look there for it, see `openstackkeys`.

        A server that is being built takes none yet: it gets it the next time.

        :raise NotImplementedByCloud: the key is too long for that.
        """
        name, value = metadata_item(user, key)

        def see(server: Server) -> tuple[str, str, bool]:
            return server["name"], server["id"], (server.get("metadata") or {}).get(name) == value

        servers = await self._servers.all(see)
        missing = [(who, number) for who, number, has_it in servers if not has_it]
        busy = 0

        async def add(server: tuple[str, str]) -> None:
            nonlocal busy
            try:
                await self._servers.nova.add_metadata(server[1], {name: value})
            except CloudAnswerError as e:
                if e.code == 409:
                    busy += 1
                elif e.code in (403, 413) and _FULL.search(e.detail):
                    raise CloudError(f"its metadata are full: remove {PREFIX} items of old keys") from e
                elif e.code != 404:  # gone since the list was made
                    raise

        failed = await fan_out(missing, add, AT_ONCE)
        if missing:
            self._log.info(
                "the SSH key is among the metadata of {done} of {all} servers, {busy} are not ready for it; "
                "a server's sshd reads it there if it was set up for that",
                done=len(servers) - len(failed) - busy,
                all=len(servers),
                busy=busy,
            )
        if failed:
            names = describe((each.item[0], each.reason) for each in failed)
            raise CloudError(f"{len(failed)} of {len(servers)} servers did not get the key: {names}")

    async def current_node_name(self, hostname: str) -> str:
        """Return the name of the server that we are on; its host name may be another one."""
        return await self._here.name()

    async def instance_exists_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        try:
            await self._servers.identified(provider_id)
        except InstanceNotFound:
            return False
        return True

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self._servers.identified(provider_id)).get("status") == SHUT_OFF

    async def list_instances(self) -> list[Instance]:
        """See `IInstances`."""
        region = await self._servers.nova.region()

        def read(said: Server) -> tuple[Instance, str]:
            flavor, number = flavor_of(said)
            instance = Instance(
                name=said["name"],
                provider_id=f"openstack:///{said['id']}",
                addresses=self._servers.addresses(said),
                type=flavor,
                zone=Zone(said.get("OS-EXT-AZ:availability_zone") or "", region),
                running=said.get("status") in UP,
            )
            return instance, "" if flavor else number

        nova = self._servers.nova
        found = await self._servers.all(read)
        names = {number: await nova.flavor_name(number) for number in {number for _, number in found}}
        if names.keys() <= {""}:
            return [instance for instance, _ in found]
        return await map_cooperatively(
            nova.clock, found, lambda each: evolve(each[0], type=each[0].type or names[each[1]])
        )


@implementer(IZones)
class OpenStackZones:
    """See `IZones`."""

    def __init__(self, servers: Servers, here: Here) -> None:
        self._servers = servers
        self._here = here

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        return Zone(await self._here.zone(), await self._servers.nova.region())

    async def get_zone_by_provider_id(self, provider_id: str) -> Zone:
        """See `IZones`."""
        return await self._servers.zone(await self._servers.identified(provider_id))

    async def get_zone_by_node_name(self, name: str) -> Zone:
        """See `IZones`."""
        return await self._servers.zone(await self._servers.named(name))


def _quoted(text: str) -> str:
    """Return a regular expression for *text*, as all databases below Nova read it."""
    return _SPECIAL.sub(r"\\\g<0>", text)
