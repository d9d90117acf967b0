"""Flags of clusters of type ssh, and the API fields that they set."""

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

from tower.cli.client import CallFailed, CommandFailed, UsageFailed
from tower.errors import ConfigurationError
from tower.escaping import escaped
from tower.kube.flatten import self_contained, warnings_of
from tower.kube.kubeconfig import load_kubeconfig

#: API field that contains those of the flags.
_PLACE = "spec.connection.ssh"

#: Fields of the node list; setting one of them resets the others.
_SOURCES = ("nodes", "nodesFile", "nodesFromAPI", "cloudProvider", "cloudConfig")


@frozen
class _Flag:
    """One flag.

    :ivar field: its field in ``spec.connection.ssh``.
    :ivar read: returns the value of a text that is not empty; raises `UsageFailed`.
    """

    name: str
    field: str
    metavar: str
    help: str
    read: Callable[[str], Any] = str

    @property
    def attribute(self) -> str:
        """Attribute of argparse's result."""
        return self.name.replace("-", "_")


def _list(text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise UsageFailed(f"{text!r} is an empty list")
    return parts


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 5):
        raise UsageFailed(f"{text!r} is not a port")
    return int(text)


def _path(text: str) -> str:
    """Return a path on the proxy's machine; ``./`` and ``../`` are relative to the working directory."""
    return os.path.abspath(text) if text.startswith(("./", "../")) else text


_FLAGS: Sequence[_Flag] = (
    _Flag("ssh-user", "user", "USER", "user name on the nodes; required"),
    _Flag(
        "ssh-keyfile", "keyFile", "FILE", "private key file; created by the proxy if missing; required", _path
    ),
    _Flag(
        "ssh-key-type", "keyType", "TYPE", "type of a key that is created: ed25519 or rsa (default: ed25519)"
    ),
    _Flag(
        "ssh-host-keys",
        "hostKeys",
        "MODE",
        "verification of host keys: known-hosts, accept-new (learn the first key of each node) or "
        "insecure-ignore (default: known-hosts)",
    ),
    _Flag(
        "ssh-known-hosts",
        "knownHosts",
        "FILE",
        "OpenSSH known_hosts file (default: ~/.ssh/known_hosts and /etc/ssh/ssh_known_hosts)",
        _path,
    ),
    _Flag(
        "nodes",
        "nodes",
        "HOST:PORT,...",
        "nodes (default: from --nodes-file, --cloud-provider or the cluster's API)",
        _list,
    ),
    _Flag("nodes-file", "nodesFile", "FILE", "file with one node per line", _path),
    _Flag("cloud-provider", "cloudProvider", "NAME", "cloud that lists the nodes and installs the key"),
    _Flag("cloud-config", "cloudConfig", "FILE", "cloud provider configuration file", _path),
    _Flag(
        "node-address-types",
        "addressTypes",
        "T,...",
        "types of node addresses to connect to, in order of preference "
        "(default: ExternalIP,LegacyHostIP,InternalIP)",
        _list,
    ),
    _Flag("ssh-port", "sshPort", "N", "default SSH port of nodes (default: 22)", _port),
    _Flag(
        "kubelet-port",
        "kubeletPort",
        "N",
        "port of the kubelets; 0: no kubelet access (default: 10250)",
        _port,
    ),
    _Flag(
        "kubelet-certificate-authority",
        "kubeletCertificateAuthority",
        "FILE",
        "CA file for the kubelets' certificates (default: the API server's CA)",
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
        "insecure-skip-kubelet-tls-verify",
        "insecureSkipKubeletTLSVerify",
        "",
        "do not verify the kubelets' certificates; insecure",
    ),
    _Flag(
        "allow-system-identities",
        "allowSystemIdentities",
        "",
        "allow all system identities, system:masters included; insecure",
    ),
)

#: Repeatable flags; an empty value removes the current values.
_LISTS: Sequence[_Flag] = (
    _Flag(
        "allow-system-identity",
        "allowedSystemIdentities",
        "NAME",
        "system user or group that users may act as, such as system:monitoring; repeatable; replaces the "
        "current names, and an empty NAME removes them",
    ),
)


#: Flags by the fields that errors of the API name.
_FIELDS = {
    **{f"{_PLACE}.{flag.field}": f"--{flag.name}" for flag in (*_FLAGS, *_SWITCHES, *_LISTS)},
    f"{_PLACE}.targets": "--target",
    "spec.connection.kubeconfig": "--member-kubeconfig",
    "spec.connection.kubernetesAPIServerPort": "--port",
}
_FIELD = re.compile(r"spec\.connection\.(?:ssh\.)?[A-Za-z]+")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add the flags of clusters of type ssh to *command*."""
    group = command.add_argument_group(
        "clusters of type ssh",
        "FILE is on the proxy's machine, below its --node-files directory (default: node-files in its state "
        "directory); relative names are relative to that directory.  KUBECONFIG is read on this machine and "
        "sent to the proxy.",
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
        help="address that users may open streams to, as the nodes reach it; repeatable",
    )
    group.add_argument(
        "--member-kubeconfig",
        metavar="KUBECONFIG",
        help="kubeconfig with a credential and the API server's address, as the nodes reach it; required",
    )


def given_flags(options: argparse.Namespace) -> list[str]:
    """Return the names of the given flags."""
    names = [*(flag.name for flag in (*_FLAGS, *_SWITCHES, *_LISTS)), "target", "member-kubeconfig"]
    return [name for name in names if getattr(options, name.replace("-", "_")) is not None]


def connection(options: argparse.Namespace, *, is_new: bool = False) -> dict[str, Any]:
    """Return the fields of ``spec.connection`` that the flags set, as a merge patch: None removes one.

    :param is_new: of a new cluster, where no field can be removed.
    :raise UsageFailed: a flag or the kubeconfig is not valid.
    """
    for name in given_flags(options):
        if is_new and getattr(options, name.replace("-", "_")) in ("", [""]):
            raise UsageFailed(f"--{name}: the value is empty: give one, or omit the option")
    ssh = _fields(options)
    if options.target is not None:
        ssh["targets"] = _targets(options.target)
    fields: dict[str, Any] = {"ssh": ssh} if ssh else {}
    if options.member_kubeconfig is not None:
        fields["kubeconfig"] = _kubeconfig(options.member_kubeconfig)
    return fields


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of ``spec.connection.ssh`` that the flags set, except the targets."""
    ssh: dict[str, Any] = {}
    for flag in _FLAGS:
        text = getattr(options, flag.attribute)
        if text is not None:
            try:
                ssh[flag.field] = flag.read(text) if text else None
            except UsageFailed as e:
                raise UsageFailed(f"--{flag.name}: {e}") from e
    for flag in _SWITCHES:
        if getattr(options, flag.attribute) is not None:
            ssh[flag.field] = getattr(options, flag.attribute)
    for flag in _LISTS:
        texts = getattr(options, flag.attribute)
        if texts is not None:
            ssh[flag.field] = [text for text in texts if text] or None
    return ssh


@contextmanager
def errors_by_flag() -> Iterator[None]:
    """Replace the names of fields in errors of the API by those of flags."""
    try:
        yield
    except CallFailed as e:
        text = _FIELD.sub(lambda field: _FIELDS.get(field[0], field[0]), str(e))
        if text == str(e):
            raise
        raise CallFailed(e.code, e.reason, re.sub(r"^--target\.", "--target ", text), e.kind) from e


def with_one_source(ssh: dict[str, Any]) -> dict[str, Any]:
    """Return *ssh* with the other fields of the node list reset, if it sets one of them."""
    if ssh.get("nodesFromAPI"):  # a cloud provider may stay
        return {**dict.fromkeys(_SOURCES[:2]), **ssh}
    if not any(ssh.get(name) for name in _SOURCES[:4]):
        return ssh
    return {**dict.fromkeys(_SOURCES), **ssh}


def _targets(texts: Sequence[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name, address in map(_target, texts):
        if name in found:
            raise UsageFailed(f"--target: {name!r} is given twice: omit one of them")
        found[name] = address
    return found


def _target(text: str) -> tuple[str, str | None]:
    name, equals, address = text.partition("=")
    if not equals or not name:
        raise UsageFailed(f"--target: {text!r} is not NAME=HOST:PORT")
    return name, address or None


def _kubeconfig(path: str) -> str:
    """Return the kubeconfig at *path* in base64, with the contents of the files that it names."""
    if not path:
        raise UsageFailed(
            "--member-kubeconfig: the value is empty, but a cluster requires a credential: give a file"
        )
    try:
        access = load_kubeconfig(path)
        data = self_contained(access)
    except ConfigurationError as e:
        raise CommandFailed(f"--member-kubeconfig: {e}") from e
    for text in warnings_of(access):
        print(f"tower: note: --member-kubeconfig: {escaped(text)}", file=sys.stderr)
    return base64.b64encode(data).decode("ascii")
