"""Runs a stand-in as a program: ``python -m tests.cloud.standins.program gce PORT FOLDER USER a=10.0.0.2 …``.

The keys of USER on machine *a* are written to ``FOLDER/a/authorized_keys``, as its guest would.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.web.server import Site

from tests.cloud.standins.aws import AWS
from tests.cloud.standins.aws import Machine as EC2Instance
from tests.cloud.standins.azure import Azure
from tests.cloud.standins.azure import Machine as VirtualMachine
from tests.cloud.standins.gce import GCE, Machine
from tests.cloud.standins.openstack import OpenStack, Server
from tests.cloud.standins.rest import RestResource
from tower.reactor.clock import TimeOfDay

LOOPBACK = "127.0.0.1"


def write(folder: Path, machine: str, lines: Iterable[str]) -> None:
    """Set the keys that *machine* accepts."""
    file = folder / machine / "authorized_keys"
    draft = file.with_suffix(".cloud")
    draft.write_text("".join(f"{line}\n" for line in lines))
    draft.chmod(0o644)
    draft.rename(file)


def gce(folder: Path, user: str, machines: dict[str, str], url: str) -> RestResource:
    """Return Compute Engine with these machines."""

    def give(told: str, key: str) -> None:
        for machine in cloud.machines:
            write(folder, machine.name, (key for name, key in cloud.keys(machine) if name == user))

    cloud = GCE(time.time, on_key=give)
    cloud.machines = [Machine(name, internal=address) for name, address in machines.items()]
    cloud.operation_time = 0.5
    return cloud.resource


def openstack(folder: Path, user: str, machines: dict[str, str], url: str) -> RestResource:
    """Return OpenStack with these machines."""

    def give(told: str, key: str) -> None:
        for server in cloud.servers:
            mine = (
                value for name, value in server.metadata.items() if name.startswith(f"tower-ssh-key:{user}:")
            )
            write(folder, server.name, mine)

    cloud = OpenStack(time.time, url, on_key=give)
    cloud.servers = [Server(name, [("private", address, "fixed")]) for name, address in machines.items()]
    return cloud.resource


def aws(folder: Path, user: str, machines: dict[str, str], url: str) -> RestResource:
    """Return EC2 with these machines; keys expire after a minute, as in AWS."""

    def show(told: str, key: str) -> None:
        for name, machine in zip(machines, cloud.machines, strict=True):
            write(folder, name, cloud.keys(machine.id, user))

    cloud = AWS(TimeOfDay(_reactor), on_key=show, on_key_gone=show)
    cloud.machines = [EC2Instance(f"i-{n:017x}", address) for n, address in enumerate(machines.values())]
    return cloud.resource


def azure(folder: Path, user: str, machines: dict[str, str], url: str) -> RestResource:
    """Return Azure with these machines."""

    def give(told: str, key: str) -> None:
        for machine in cloud.machines:
            write(folder, machine.name, machine.keys)

    cloud = Azure(TimeOfDay(_reactor), on_key=give)
    cloud.machines = [VirtualMachine(name, address) for name, address in machines.items()]
    cloud.work_time, cloud.patience = 0.5, "1"
    return cloud.resource


def main(kind: str, port: str, folder: str, user: str, *machines: str) -> None:
    """Serve until the process is stopped."""
    reactor: Any = _reactor
    make = {"aws": aws, "azure": azure, "gce": gce, "openstack": openstack}[kind]
    resource = make(
        Path(folder), user, dict(each.split("=", 1) for each in machines), f"http://{LOOPBACK}:{port}"
    )
    reactor.listenTCP(int(port), Site(resource), interface=LOOPBACK)
    reactor.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
