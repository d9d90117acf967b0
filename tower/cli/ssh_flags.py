"""Clusters of type ssh on the command line: their flags, and what is sent for them."""

from __future__ import annotations

import argparse
import base64
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import frozen

from tower.cli.errors import CallFailed, CommandFailed
from tower.errors import ConfigurationError
from tower.escaping import escaped
from tower.kube.flatten import self_contained, warnings_of
from tower.kube.kubeconfig import load_kubeconfig

#: Where objects have what the flags say.
_PLACE = "spec.connection.ssh"

#: Flags that together say who lists the nodes; naming one of them forgets the others.
_SOURCES = ("nodes", "nodesFile", "nodesFromAPI", "cloudProvider", "cloudConfig")


@frozen
class _Flag:
    """One flag.

    :ivar field: what it is in ``spec.connection.ssh``.
    :ivar read: makes the value of the text that was given, which is not empty; raises `CommandFailed`.
    """

    name: str
    field: str
    metavar: str
    help: str
    read: Callable[[str], Any] = str

    @property
    def attribute(self) -> str:
        """Where argparse puts it."""
        return self.name.replace("-", "_")


def _list(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise CommandFailed(f"{text!r} names nothing")
    return parts


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise CommandFailed(f"{text!r} is not a port")
    return int(text)


def _path(text: str) -> str:
    """Return a path on the proxy's machine; one from here, with a dot before it, is made whole."""
    return os.path.abspath(text) if text.startswith(("./", "../")) else text


_FLAGS: Sequence[_Flag] = (
    _Flag("ssh-user", "user", "U", "who logs in on the nodes; needed"),
    _Flag(
        "ssh-keyfile",
        "keyFile",
        "F",
        "the private key; made by the proxy if there is none; needed",
        _path,
    ),
    _Flag("ssh-key-type", "keyType", "TYPE", "of a key that is made: ed25519 (the default) or rsa"),
    _Flag(
        "ssh-host-keys",
        "hostKeys",
        "MODE",
        "how nodes prove who they are: known-hosts (the default), accept-new (the first key counts) or "
        "insecure-ignore",
    ),
    _Flag(
        "ssh-known-hosts",
        "knownHosts",
        "F",
        "their host keys, as OpenSSH keeps them (default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts)",
        _path,
    ),
    _Flag(
        "nodes",
        "nodes",
        "H:P,...",
        "the nodes; where neither these nor a file nor a cloud provider are given, its API server lists them",
        _list,
    ),
    _Flag("nodes-file", "nodesFile", "F", "file with a node in each line", _path),
    _Flag("cloud-provider", "cloudProvider", "NAME", "cloud that lists the nodes and installs the key"),
    _Flag("cloud-config", "cloudConfig", "F", "file for the cloud provider", _path),
    _Flag(
        "node-address-types",
        "addressTypes",
        "T,...",
        "which of a listed node's addresses is dialled (default: ExternalIP,LegacyHostIP,InternalIP)",
        _list,
    ),
    _Flag("ssh-port", "sshPort", "N", "port of nodes that are given without one (default: 22)", _port),
    _Flag("kubelet-port", "kubeletPort", "N", "port of the kubelets; 0: none (default: 10250)", _port),
    _Flag(
        "kubelet-certificate-authority",
        "kubeletCertificateAuthority",
        "F",
        "CAs that verify the kubelets (default: the API server's)",
        _path,
    ),
)

_SWITCHES: Sequence[_Flag] = (
    _Flag(
        "nodes-from-api",
        "nodesFromAPI",
        "",
        "list the nodes with the cluster's API; --cloud-provider then only installs the key",
    ),
    _Flag(
        "insecure-skip-kubelet-tls-verify", "insecureSkipKubeletTLSVerify", "", "do not verify the kubelets"
    ),
    _Flag(
        "allow-system-identities",
        "allowSystemIdentities",
        "",
        "allow all system identities, system:masters included; insecure",
    ),
)

#: Flags that may be given again; an empty value takes away what was there.
_LISTS: Sequence[_Flag] = (
    _Flag(
        "allow-system-identity",
        "allowedSystemIdentities",
        "NAME",
        "system user or group that users may act as, such as system:monitoring; repeatable; replaces the "
        "names allowed before, and an empty NAME removes them",
    ),
)


#: What errors call what a flag says.
_FIELDS = {
    **{f"{_PLACE}.{flag.field}": f"--{flag.name}" for flag in (*_FLAGS, *_SWITCHES, *_LISTS)},
    f"{_PLACE}.targets": "--target",
    "spec.connection.kubeconfig": "--member-kubeconfig",
    "spec.connection.kubernetesAPIServerPort": "--port",
}
_FIELD = re.compile(r"spec\.connection\.(?:ssh\.)?[A-Za-z]+")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Have *command* take the flags of clusters of type ssh."""
    group = command.add_argument_group(
        "clusters of type ssh",
        "Files F are on the proxy's machine, below its --node-files directory (default: node-files in its "
        "state directory); relative names are relative to it.  K is read here and sent to the proxy.",
    )
    for flag in _FLAGS:
        group.add_argument(f"--{flag.name}", metavar=flag.metavar, help=flag.help)
    for flag in _SWITCHES:
        group.add_argument(f"--{flag.name}", action=argparse.BooleanOptionalAction, help=flag.help)
    for flag in _LISTS:
        group.add_argument(f"--{flag.name}", metavar=flag.metavar, action="append", help=flag.help)
    group.add_argument(
        "--target",
        metavar="NAME=HOST:PORT",
        action="append",
        help="an address, as the nodes see it, that streams may lead to; may be given again",
    )
    group.add_argument(
        "--member-kubeconfig",
        metavar="K",
        help="kubeconfig with the API server's address as nodes see it, and a credential for it; needed",
    )


def given_flags(options: argparse.Namespace) -> list[str]:
    """Return which of those flags were given."""
    names = [*(flag.name for flag in (*_FLAGS, *_SWITCHES, *_LISTS)), "target", "member-kubeconfig"]
    return [name for name in names if getattr(options, name.replace("-", "_")) is not None]


def connection(options: argparse.Namespace, *, is_new: bool = False) -> dict[str, Any]:
    """Return the fields of ``spec.connection`` that the flags say, for a merge patch: None takes one away.

    :param is_new: there is nothing yet that could be taken away.

    :raise CommandFailed: a flag or the kubeconfig makes no sense.
    """
    for name in given_flags(options):
        if is_new and getattr(options, name.replace("-", "_")) in ("", [""]):
            raise CommandFailed(f"--{name}: the value is empty: leave the flag out, or say what it is to be")
    ssh = _fields(options)
    if options.target is not None:
        ssh["targets"] = _targets(options.target)
    said: dict[str, Any] = {"ssh": ssh} if ssh else {}
    if options.member_kubeconfig is not None:
        said["kubeconfig"] = _kubeconfig(options.member_kubeconfig)
    return said


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of ``spec.connection.ssh`` that the flags say, but for the targets."""
    ssh: dict[str, Any] = {}
    for flag in _FLAGS:
        text = getattr(options, flag.attribute)
        if text is not None:
            try:
                ssh[flag.field] = flag.read(text) if text else None
            except CommandFailed as e:
                raise CommandFailed(f"--{flag.name}: {e}") from e
    for flag in _SWITCHES:
        if getattr(options, flag.attribute) is not None:
            ssh[flag.field] = getattr(options, flag.attribute)
    for flag in _LISTS:
        texts = getattr(options, flag.attribute)
        if texts is not None:
            ssh[flag.field] = [text for text in texts if text] or None
    return ssh


@contextmanager
def told_by_flag() -> Iterator[None]:
    """Have errors name flags in place of the fields that they stand for."""
    try:
        yield
    except CallFailed as e:
        text = _FIELD.sub(lambda field: _FIELDS.get(field[0], field[0]), str(e))
        if text == str(e):
            raise
        raise CommandFailed(re.sub(r"^--target\.", "--target ", text)) from e


def with_one_source(ssh: dict[str, Any]) -> dict[str, Any]:
    """Return *ssh* so that who listed the nodes before does no longer, if somebody else does now."""
    if ssh.get("nodesFromAPI"):  # goes together with a cloud provider
        return {**dict.fromkeys(_SOURCES[:2]), **ssh}
    if not any(ssh.get(name) for name in _SOURCES[:4]):
        return ssh
    return {**dict.fromkeys(_SOURCES), **ssh}


def _targets(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, address in map(_target, texts):
        if name in found:
            raise CommandFailed(f"--target: {name!r} is given twice: leave one out")
        found[name] = address
    return found


def _target(text: str) -> tuple[str, str | None]:
    name, equals, address = text.partition("=")
    if not equals or not name:
        raise CommandFailed(f"--target: {text!r} is not NAME=HOST:PORT")
    return name, address or None


def _kubeconfig(path: str) -> str:
    """Return the kubeconfig at *path* in base64, with what it names by file in it."""
    if not path:
        raise CommandFailed(
            "--member-kubeconfig: the file's name is empty; a cluster has to have a credential"
        )
    try:
        access = load_kubeconfig(path)
        data = self_contained(access)
    except ConfigurationError as e:
        raise CommandFailed(f"--member-kubeconfig: {e}") from e
    for text in warnings_of(access):
        print(f"tower: note: --member-kubeconfig: {escaped(text)}", file=sys.stderr)
    return base64.b64encode(data).decode("ascii")
