"""Instances of a cloud, and their addresses."""

from __future__ import annotations

from attrs import frozen


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
