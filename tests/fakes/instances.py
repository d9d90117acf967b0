"""Instances of a cloud, and their addresses."""

from __future__ import annotations

from typing import Any

from attrs import define, field, frozen
from zope.interface import implementer

from tower.cloud.interfaces import ISSHKeyLease


@frozen
class FakeAddress:
    """One address."""

    type: str
    address: str


@frozen
class FakeInstance:
    """One instance."""

    name: str
    addresses: tuple[FakeAddress, ...] = ()
    running: bool = True
    ssh_port: int = 0


@implementer(ISSHKeyLease)
@define
class FakeInstances:
    """All instances.

    :ivar calls: user and key of each installation of a key, with the host if it is for one dial.
    """

    found: list[FakeInstance] = field(factory=list)
    calls: list[Any] = field(factory=list)

    async def list_instances(self) -> list[FakeInstance]:
        """Return them."""
        return self.found

    async def add_ssh_key_to_all_instances(self, user: str, key: bytes) -> None:
        """Record the call."""
        self.calls.append(("key", user, key))

    async def prepare_dial(self, user: str, key: bytes, host: str) -> None:
        """Record the call."""
        self.calls.append(("lease", user, key, host))
