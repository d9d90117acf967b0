"""SSH keys on Azure's machines, with the VMAccess extension.

A run takes a minute or more and appends the key again, so it is only run on machines where it has not run for
this user and key.  These are remembered here and in Azure, by the extension's ``forceUpdateTag``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from twisted.internet.defer import DeferredLock

from tower.cloud.azure.arm import AzureError, ResourceManager
from tower.cloud.azure.inventory import COMPUTE
from tower.cloud.azure.machines import Machine
from tower.cloud.config.public_key import PublicKey, read_public_key
from tower.cloud.errors import CloudError
from tower.cloud.http.fan_out import describe, fan_out

#: The extension, and its default name.
PUBLISHER = "Microsoft.OSTCExtensions"
TYPE = "VMAccessForLinux"
VERSION = "1.5"
NAME = "enablevmAccess"

#: Maximum number of machines that it runs on in parallel.
PARALLEL = 16

_TYPES = ("ssh-ed25519", "ssh-rsa")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")


class VMAccess:
    """Runs the extension on the machines that *look* returns."""

    def __init__(self, manager: ResourceManager, look: Callable[[], Awaitable[Sequence[Machine]]]) -> None:
        self._manager = manager
        self._look = look
        self._done: dict[str, str] = {}
        self._running = DeferredLock()

    async def install(self, user: str, key: bytes) -> None:
        """Install a key for a user on every running Linux machine.

        :raise CloudError: it failed on some machines; names them.
        """
        if not _USER.fullmatch(user):
            raise CloudError(f"user {user!r}: the name is not allowed on Azure's machines")
        ready = read_public_key(key, _TYPES)
        tag = _tag(user, ready)
        await self._running.acquire()
        try:
            machines = [each for each in await self._look() if each.system.lower() != "windows"]
            existing = {machine.key for machine in machines}
            self._done = {name: done for name, done in self._done.items() if name in existing}
            running = [machine for machine in machines if machine.power == "running"]
            if not running:
                raise CloudError("the resource group has no running Linux machine")
            waiting = [machine for machine in running if self._done.get(machine.key) != tag]
            failed = await fan_out(waiting, lambda machine: self._run(machine, user, ready, tag), PARALLEL)
        finally:
            self._running.release()
        if failed:
            who = describe((each.item.name, each.reason) for each in failed)
            raise CloudError(f"the key is not on {len(failed)} of {len(running)} machines: {who}")

    async def _run(self, machine: Machine, user: str, key: PublicKey, tag: str) -> None:
        path = f"{machine.id}/extensions"
        name, last, is_done = await self._installed(path)
        before, _, number = last.rpartition("-")
        if before != tag or not is_done:
            # After a failure, Azure does not run it again with the same tag.
            attempt = int(number) + 1 if before == tag and number.isdecimal() else 1
            properties: dict[str, Any] = {
                "publisher": PUBLISHER,
                "type": TYPE,
                "typeHandlerVersion": VERSION,
                "autoUpgradeMinorVersion": True,
                "forceUpdateTag": f"{tag}-{attempt}",
                "settings": {},
                "protectedSettings": {"username": user, "ssh_key": key.line},
            }
            resource: dict[str, Any] = {"properties": properties}
            if not machine.is_of_scale_set:
                resource["location"] = machine.location
            await self._manager.put(f"{path}/{name}", COMPUTE, resource)
        self._done[machine.key] = tag

    async def _installed(self, path: str) -> tuple[str, str, bool]:
        """Return the extension's name on a machine, the tag of its last run, and whether that succeeded.

        A machine can have only one extension of a type.
        """
        try:
            extensions = await self._manager.get(path, COMPUTE)
        except AzureError as e:
            if e.status != 404:
                raise
            return NAME, "", False
        for each in extensions.get("value") or ():
            properties = each.get("properties") or {}
            kind = f"{properties.get('publisher')}/{properties.get('type')}"
            if kind.lower() == f"{PUBLISHER}/{TYPE}".lower():
                is_done = str(properties.get("provisioningState")).lower() == "succeeded"
                name = str(each.get("name") or NAME)
                if re.fullmatch(r"[\w.-]{1,80}", name):
                    return name, str(properties.get("forceUpdateTag") or ""), is_done
        return NAME, "", False


def _tag(user: str, key: PublicKey) -> str:
    return "tower-" + hashlib.sha256(f"{user}\0{key.line}".encode()).hexdigest()[:32]
