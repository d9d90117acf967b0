"""The servers of an OpenStack project, as nodes, and SSH keys in their metadata.

Nova shows a server its own metadata through the metadata service.  A command of the server's sshd must read
the keys there; images do not do this by default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import TypeVar

from attrs import define, evolve
from twisted.logger import Logger

from tower.cloud.config.public_key import read_public_key
from tower.cloud.errors import CloudAnswerError, CloudError, InstanceNotFound, NotImplementedByCloud
from tower.cloud.http.fan_out import describe, fan_out
from tower.cloud.interfaces import EXTERNAL_IP, INTERNAL_IP, Instance, NodeAddress, Zone
from tower.cloud.openstack.config import OpenStackConfig
from tower.cloud.openstack.metadata import OwnServer
from tower.cloud.openstack.nova import Nova, Server, flavor_of
from tower.cloud.provider import CloudMachines
from tower.reactor.cooperate import map_cooperatively

#: States of servers that answer, now or soon.
UP = frozenset(("ACTIVE", "REBOOT", "HARD_REBOOT", "PASSWORD", "MIGRATING", "VERIFY_RESIZE"))
#: States of deleted servers.
GONE = frozenset(("DELETED", "SOFT_DELETED"))
SHUT_OFF = "SHUTOFF"

#: Maximum number of servers that are changed in parallel.
PARALLEL = 8

#: Names of metadata items with keys begin so.
PREFIX = "tower-ssh-key"
#: Maximum length of name and value of a metadata item, characters.
ITEM_LIMIT = 255

T = TypeVar("T")

_PROVIDER_ID = re.compile(r"openstack://([^/]*)/([^/]+)")
_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_USER = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}")
# Depending on its version, Nova reports "Maximum number of metadata items exceeds 128", or a quota.
_FULL = re.compile(r"number of metadata items|quota", re.IGNORECASE)
_SPECIAL = re.compile(r"[][\\.^$*+?(){}|]")


class Servers:
    """The servers that the configuration selects."""

    def __init__(self, nova: Nova, config: OpenStackConfig) -> None:
        self.nova = nova
        self._config = config

    async def all(self, read: Callable[[Server], T]) -> list[T]:
        """Return the results of *read* for all servers, sorted by name."""

        def read_if_selected(server: Server) -> tuple[str, str, T] | None:
            return (server["name"], server["id"], read(server)) if self._is_selected(server) else None

        prefix = self._config.node_prefix
        found = await self.nova.servers(f"^{_quoted(prefix)}" if prefix else "", read_if_selected)
        found.sort(key=itemgetter(0, 1))
        return [each for _, _, each in found]

    async def named(self, name: str) -> Server:
        """Return the server of a node.

        :raise InstanceNotFound: there is none.
        :raise CloudError: there are several.
        """
        if not 0 < len(name) <= ITEM_LIMIT:
            raise InstanceNotFound

        def read(server: Server) -> Server | None:
            return server if server["name"] == name and server.get("status") not in GONE else None

        found = await self.nova.servers(f"^{_quoted(name)}$", read)
        if len(found) > 1:
            raise CloudError(
                f"multiple results where only one expected: {len(found)} servers have the name {name}"
            )
        if not found:
            raise InstanceNotFound
        return found[0]

    async def identified(self, provider_id: str) -> Server:
        """Return the server ``openstack:///<id>`` or ``openstack://<region>/<id>``.

        :raise InstanceNotFound: there is none.
        :raise CloudError: it is in another region.
        """
        match = _PROVIDER_ID.fullmatch(provider_id)
        if match is None:
            raise CloudError(f"provider id {provider_id[:200]!r}: must be openstack:///<id>")
        if match[1] and match[1] != await self.nova.region():
            raise CloudError(f"{provider_id[:200]} is not in the region {await self.nova.region()}")
        server = await self.nova.server(match[2])
        if server.get("status") in GONE:
            raise InstanceNotFound
        return server

    def addresses(self, server: Server) -> tuple[NodeAddress, ...]:
        """Return the distinct addresses of a server, internal ones first."""
        found = sorted(self._addresses(server), key=lambda address: address.type != INTERNAL_IP)
        return tuple(dict.fromkeys(each for each in found if self._config.with_v6 or ":" not in each.address))

    def _addresses(self, server: Server) -> Iterator[NodeAddress]:
        for network, addresses in sorted((server.get("addresses") or {}).items()):
            for each in addresses or ():
                is_external = (
                    each.get("OS-EXT-IPS:type") == "floating" or network in self._config.public_networks
                )
                internal = self._config.internal_networks
                if not is_external and internal and network not in internal:
                    continue
                if address := each.get("addr"):
                    yield NodeAddress(EXTERNAL_IP if is_external else INTERNAL_IP, address)
        for key in ("accessIPv4", "accessIPv6"):
            if address := server.get(key):
                yield NodeAddress(EXTERNAL_IP, address)

    def _is_selected(self, server: Server) -> bool:
        metadata = server.get("metadata") or {}
        return (
            server["name"].startswith(self._config.node_prefix)
            and server.get("status") not in GONE
            and all(metadata.get(name) == value for name, value in self._config.node_metadata)
        )


@define(eq=False, repr=False, slots=False)
class OpenStackInstances(CloudMachines):
    """The servers of a project."""

    _log = Logger()

    _servers: Servers
    _own: OwnServer

    async def by_name(self, name: str) -> Instance:
        """See `CloudMachines`."""
        return await self._complete(await self._servers.named(name))

    async def by_provider_id(self, provider_id: str) -> Instance:
        """See `CloudMachines`."""
        return await self._complete(await self._servers.identified(provider_id))

    async def install_key(self, user: str, key: bytes) -> None:
        """Put the key into the metadata of every server, where the server itself must look for it.

        A server that is being built gets it at the next installation.

        :raise NotImplementedByCloud: the key is too long.
        """
        name, value = metadata_item(user, key)

        def read(server: Server) -> tuple[str, str, bool]:
            return server["name"], server["id"], (server.get("metadata") or {}).get(name) == value

        servers = await self._servers.all(read)
        missing = [(server, number) for server, number, has_key in servers if not has_key]
        busy = 0

        async def add(server: tuple[str, str]) -> None:
            nonlocal busy
            try:
                await self._servers.nova.add_metadata(server[1], {name: value})
            except CloudAnswerError as e:
                if e.code == 409:
                    busy += 1
                elif e.code in (403, 413) and _FULL.search(e.detail):
                    raise CloudError(f"its metadata is full: remove {PREFIX} items of old keys") from e
                elif e.code != 404:  # deleted since the listing
                    raise

        failed = await fan_out(missing, add, PARALLEL)
        if missing:
            self._log.info(
                "SSH key installed in the metadata of {done} of {all} servers, {busy} are not ready; "
                "their sshd must be configured to read it there",
                done=len(servers) - len(failed) - busy,
                all=len(servers),
                busy=busy,
            )
        if failed:
            names = describe((each.item[0], each.reason) for each in failed)
            raise CloudError(f"{len(failed)} of {len(servers)} servers did not get the key: {names}")

    async def current_node_name(self, hostname: str) -> str:
        """Return the name of Tower's own server, which may differ from its host name."""
        return await self._own.name()

    async def instance_shutdown_by_provider_id(self, provider_id: str) -> bool:
        """See `IInstances`."""
        return (await self._servers.identified(provider_id)).get("status") == SHUT_OFF

    async def list_instances(self) -> list[Instance]:
        """See `IInstances`."""
        nova = self._servers.nova
        region = await nova.region()
        found = await self._servers.all(lambda server: self._read(server, region))
        names = {number: await nova.flavor_name(number) for number in {number for _, number in found}}
        if names.keys() <= {""}:
            return [instance for instance, _ in found]
        return await map_cooperatively(
            nova.clock, found, lambda each: evolve(each[0], type=each[0].type or names[each[1]])
        )

    async def get_zone(self) -> Zone:
        """See `IZones`."""
        return Zone(await self._own.zone(), await self._servers.nova.region())

    async def _complete(self, server: Server) -> Instance:
        instance, number = self._read(server, await self._servers.nova.region())
        return evolve(instance, type=instance.type or await self._servers.nova.flavor_name(number))

    def _read(self, server: Server, region: str) -> tuple[Instance, str]:
        """Return an instance, and the ID of its flavor if the name of that is missing."""
        flavor, number = flavor_of(server)
        instance = Instance(
            name=server["name"],
            provider_id=f"openstack:///{server['id']}",
            addresses=self._servers.addresses(server),
            type=flavor,
            zone=Zone(server.get("OS-EXT-AZ:availability_zone") or "", region),
            running=server.get("status") in UP,
        )
        return instance, "" if flavor else number


def metadata_item(user: str, key: bytes) -> tuple[str, str]:
    """Return name and value of the metadata item for a user's key.

    The name is ``tower-ssh-key:<user>:<start of the key's digest>``, the value ``<type> <base64>``.

    :raise NotImplementedByCloud: the key is longer than a value may be.
    :raise CloudError: the key or the user's name is invalid.
    """
    if not _USER.fullmatch(user):
        raise CloudError(f"user {user!r}: a name has only letters, digits, '_', '.' and '-'")
    public = read_public_key(key, _TYPES)
    if len(public.line) > ITEM_LIMIT:
        raise NotImplementedByCloud(
            f"unimplemented: this {public.type} key has {len(public.line)} characters; a value of a server's "
            f"metadata has at most {ITEM_LIMIT}, and the user data of a running server cannot be changed: "
            "use an ed25519 or ecdsa key"
        )
    return f"{PREFIX}:{user}:{public.digest[:16]}", public.line


def _quoted(text: str) -> str:
    """Return a regular expression for *text* that all of Nova's databases understand."""
    return _SPECIAL.sub(r"\\\g<0>", text)
