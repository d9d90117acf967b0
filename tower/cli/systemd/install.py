"""`tower install-systemd`: install, update or remove the service of a program."""

from __future__ import annotations

import argparse
import os
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

import tower
from tower.cli.client import CommandFailed, UsageFailed
from tower.cli.systemd.machine import ServiceHost
from tower.cli.systemd.service_files import ServiceFile, ServiceFiles

#: Directories that the units hide from the programs.
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")  # noqa: S108 (nothing is written there)

_CURE = "install Tower in /opt/tower, with a Python that all users may run: python3 -m venv /opt/tower"


def install_systemd(options: argparse.Namespace) -> str:
    """Do what the command line requests; return the text to print."""
    machine = ServiceHost(Path(options.root or "/").absolute())
    service = ServiceFiles(options.program, _executable(f"tower-{options.program}", machine))
    if options.low_ports and options.program != "proxy":
        raise UsageFailed("--low-ports is for the proxy: an agent listens on ports above 1023 only")
    if options.uninstall:
        if options.enable or options.low_ports:
            raise UsageFailed("--uninstall removes the service: omit --enable and --low-ports")
        return uninstall(service, machine, dry_run=options.dry_run)
    if options.dry_run:
        return "\n".join(_preview(service, machine, options))
    return install(service, machine, low_ports=options.low_ports, enable=options.enable)


def install(
    service: ServiceFiles, machine: ServiceHost, *, low_ports: bool = False, enable: bool = False
) -> str:
    """Write the files, create the user, and make systemd read the unit; a second call changes nothing.

    :param enable: also start the service, now and at each boot.
    """
    machine.check()
    if not machine.is_image:
        check_reachable(service.executable, Path(sys.executable).resolve(), Path(tower.__file__).parent)
    files = _files(service, low_ports=low_ports)
    for file in files:
        machine.check_owner(file)
    is_new = not machine.exists(service.settings)
    lines = [machine.write(file) for file in files]
    for command in _commands(service, machine, enable=enable, is_new=is_new):
        machine.run(command)
        lines.append(f"ran {' '.join(command)}")
    return "\n".join([*lines, *_next_steps(service, machine, enable=enable, is_new=is_new)])


def uninstall(service: ServiceFiles, machine: ServiceHost, *, dry_run: bool = False) -> str:
    """Stop the service and remove its files; settings, state directory and user stay."""
    files = [service.service, *_optional(service), service.account]
    before: list[Sequence[str]] = [("systemctl", "disable", "--now", f"{service.unit}.service")]
    after: list[Sequence[str]] = [("systemctl", "daemon-reload")]
    if machine.is_image:
        before, after = [(*_systemctl(machine), "disable", f"{service.unit}.service")], []
    if not machine.exists(service.service):
        return f"{machine.at(service.service)} does not exist: there is no service to remove"
    if dry_run:
        steps = [f"run {' '.join(command)}" for command in before]
        steps += [f"remove {machine.at(file)}" for file in files if machine.exists(file)]
        steps += [f"run {' '.join(command)}" for command in after]
        return "\n".join(f"would {step}" for step in steps)
    machine.check()
    for file in files:
        machine.check_owner(file)
    for command in before:
        machine.run(command)
    lines = [line for file in files if (line := machine.remove(file)) is not None]
    for command in after:
        machine.run(command)
    kept = f"{machine.at(service.settings)}, {service.state} and the user {service.user}"
    return "\n".join([*lines, f"kept {kept}: remove them if you need them no longer"])


def check_reachable(*paths: Path) -> None:
    """Reject programs that the service's user cannot run.

    :raise CommandFailed: with the path, the reason and the cure.
    """
    for path in paths:
        hidden = next((each for each in _HIDDEN if path.is_relative_to(each)), None)
        if hidden is not None:
            raise CommandFailed(f"{path} is below {hidden}, which the service cannot read: {_CURE}")
        for each in (path, *path.parents):
            if each.exists() and not each.stat().st_mode & 0o001:
                raise CommandFailed(f"{each} is not accessible to the service's user: {_CURE}")


def _executable(name: str, machine: ServiceHost) -> Path:
    """Return the path of a program of this installation, as it is on the machine."""
    beside = Path(sys.argv[0]).resolve().parent
    for directory in (Path(sysconfig.get_path("scripts")), beside):
        path = directory / name
        if path.is_file() and os.access(path, os.X_OK):
            return Path("/") / path.relative_to(machine.root) if path.is_relative_to(machine.root) else path
    raise CommandFailed(f"{name} is not installed next to this command, in {beside}: run 'pip install' again")


def _files(service: ServiceFiles, *, low_ports: bool) -> list[ServiceFile]:
    return [service.settings, service.account, service.service, *([service.low_ports] if low_ports else [])]


def _optional(service: ServiceFiles) -> list[ServiceFile]:
    return [service.low_ports] if service.program == "proxy" else []


def _systemctl(machine: ServiceHost) -> tuple[str, ...]:
    return ("systemctl", f"--root={machine.root}") if machine.is_image else ("systemctl",)


def _commands(
    service: ServiceFiles, machine: ServiceHost, *, enable: bool, is_new: bool
) -> Iterator[Sequence[str]]:
    """Yield the commands after the files were written."""
    if not machine.is_image:
        yield "systemd-sysusers", str(service.account.path)
        yield "systemctl", "daemon-reload"
    if enable:
        now = () if machine.is_image or _lacks_settings(service, is_new=is_new) else ("--now",)
        yield *_systemctl(machine), "enable", *now, f"{service.unit}.service"


def _lacks_settings(service: ServiceFiles, *, is_new: bool) -> bool:
    """Return whether a start would fail: an agent has no defaults for its cluster and its proxy."""
    return is_new and service.program == "agent"


def _next_steps(service: ServiceFiles, machine: ServiceHost, *, enable: bool, is_new: bool) -> Iterator[str]:
    if machine.is_image:
        return
    unit = service.unit
    if not is_new:
        yield f"next: if {unit} runs, restart it to apply replaced files: systemctl restart {unit}"
        return
    option = "TOWER_PUBLISH_SERVICE_ADDRESS" if service.program == "proxy" else "the options"
    verb = "enable --now"
    if enable:
        verb = "start" if _lacks_settings(service, is_new=is_new) else "restart"
    yield f"next: set {option} in {service.settings.path}, then run: systemctl {verb} {unit}"


def _preview(service: ServiceFiles, machine: ServiceHost, options: argparse.Namespace) -> Iterator[str]:
    """Yield the files and the commands of an installation."""
    is_new = not machine.exists(service.settings)
    for file in _files(service, low_ports=options.low_ports):
        if file.kept and not is_new:
            yield f"would keep {machine.at(file)}\n"
        else:
            yield f"would write {machine.at(file)} (mode {file.mode:04o}):\n\n{file.content}"
    for command in _commands(service, machine, enable=options.enable, is_new=is_new):
        yield f"would run {' '.join(command)}"
