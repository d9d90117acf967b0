"""Conversion of `SSHSpec` to a cluster's object and record, and its validation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from tower.cloud.registry import cloud_providers
from tower.clusters.node import Node, is_node_host, parse_node
from tower.clusters.ssh_spec import HostKeyMode, KeyType, SSHSpec
from tower.errors import ConfigurationError, Invalid
from tower.kube.system_identities import ALLOWED_LIMIT, check_allowed
from tower.tunnels.targets import KUBERNETES, parse_target

#: Path of the spec in the object.
SPEC_PATH = "spec.connection.ssh"

#: Options of the fields, for errors.
OPTIONS = {
    f"{SPEC_PATH}.user": "ssh-user",
    f"{SPEC_PATH}.keyFile": "ssh-keyfile",
    f"{SPEC_PATH}.keyType": "ssh-key-type",
    f"{SPEC_PATH}.hostKeys": "ssh-host-keys",
    f"{SPEC_PATH}.knownHosts": "ssh-known-hosts",
    f"{SPEC_PATH}.nodes": "nodes",
    f"{SPEC_PATH}.nodesFile": "nodes-file",
    f"{SPEC_PATH}.nodesFromAPI": "nodes-from-api",
    f"{SPEC_PATH}.cloudProvider": "cloud-provider",
    f"{SPEC_PATH}.cloudConfig": "cloud-config",
    f"{SPEC_PATH}.sshPort": "ssh-port",
    f"{SPEC_PATH}.kubeletPort": "kubelet-port",
    f"{SPEC_PATH}.kubeletCertificateAuthority": "kubelet-certificate-authority",
    f"{SPEC_PATH}.insecureSkipKubeletTLSVerify": "insecure-skip-kubelet-tls-verify",
    "spec.connection.kubeconfig": "member-kubeconfig",
}

#: Longest user name, B; upstream truncates longer ones.
USER_LIMIT = 32

#: Most nodes and most targets in a spec.
NODE_LIMIT = 5000
TARGET_LIMIT = 1000

#: Longest path and longest name in it, B, as in Linux.
_PATH_LIMIT = 4095
_NAME_LIMIT = 255

#: Longest part of a path in an error, characters.
_SHOWN = 60

#: Kubernetes' types of node addresses.
_ADDRESS_TYPES = ("Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "LegacyHostIP")

#: The error for malformed nodes.
_NODE = "must be HOST, HOST:PORT or [IPV6]:PORT, the port from 1 to 65535"

#: The target for kubelets.
_KUBELET = "kubelet"


class _FieldType(NamedTuple):
    """A JSON type of fields.

    :ivar convert: returns the spec's value for a JSON value.
    """

    matches: Callable[[object], bool]
    convert: Callable[[Any], Any]
    description: str


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


_TEXT = _FieldType(lambda value: isinstance(value, str), str, "a string")
_NUMBER = _FieldType(_is_number, int, "a number")
_FLAG = _FieldType(lambda value: isinstance(value, bool), bool, "true or false")
_TEXTS = _FieldType(_is_texts, tuple, "a list of strings")
_MAPPING = _FieldType(_is_mapping, dict, "an object of strings")

#: Name and type of each attribute in the object.
_FIELDS: Mapping[str, tuple[str, _FieldType]] = {
    "user": ("user", _TEXT),
    "key_file": ("keyFile", _TEXT),
    "key_type": ("keyType", _TEXT),
    "host_keys": ("hostKeys", _TEXT),
    "known_hosts": ("knownHosts", _TEXT),
    "nodes": ("nodes", _TEXTS),
    "nodes_file": ("nodesFile", _TEXT),
    "cloud_provider": ("cloudProvider", _TEXT),
    "cloud_config": ("cloudConfig", _TEXT),
    "address_types": ("addressTypes", _TEXTS),
    "ssh_port": ("sshPort", _NUMBER),
    "kubelet_port": ("kubeletPort", _NUMBER),
    "kubelet_authority": ("kubeletCertificateAuthority", _TEXT),
    "kubelet_insecure": ("insecureSkipKubeletTLSVerify", _FLAG),
    "targets": ("targets", _MAPPING),
    "allow_system": ("allowSystemIdentities", _FLAG),
    "allowed_identities": ("allowedSystemIdentities", _TEXTS),
    "nodes_from_api": ("nodesFromAPI", _FLAG),
}

#: Name of each attribute in the object.
NAMES = {attribute: name for attribute, (name, _) in _FIELDS.items()}

#: Attributes that are paths on the proxy's machine; `tower.nodes.record_files.NodeFiles` restricts them.
PATHS = ("key_file", "known_hosts", "nodes_file", "cloud_config", "kubelet_authority")

#: Mutually exclusive lists of nodes; a cloud provider is another one, unless ``nodes_from_api`` is set.
_SOURCES = ("nodes", "nodes_file", "nodes_from_api")


def to_object(spec: SSHSpec) -> dict[str, Any]:
    """Return *spec* as part of the object, without empty and false fields."""
    shown = ((name, _plain(getattr(spec, attribute))) for attribute, name in NAMES.items())
    return {name: value for name, value in shown if value is not False and value not in ("", [], {})}


def to_record(spec: SSHSpec) -> dict[str, Any]:
    """Return *spec* as part of the record, with the current defaults."""
    return {attribute: _plain(getattr(spec, attribute)) for attribute in NAMES}


def from_record(value: Mapping[str, Any]) -> SSHSpec:
    """Return the spec that `to_record` wrote, also in an earlier version with fewer fields."""
    parts: dict[str, Any] = {
        key: tuple(part) if isinstance(part, list) else part for key, part in value.items()
    }
    return SSHSpec(**parts)


def read_spec(value: Mapping[str, Any]) -> SSHSpec:
    """Return the spec in a client's object; unknown fields are ignored.

    :raise Invalid: a field has the wrong type; `check_spec` checks the values.
    """
    given: dict[str, Any] = {"user": "", "key_file": ""}
    for attribute, (name, kind) in _FIELDS.items():
        part = value.get(name)
        if part is None:
            continue
        if not kind.matches(part):
            raise invalid_field(name, part, f"must be {kind.description}")
        given[attribute] = kind.convert(part)
    return SSHSpec(**given)


def check_spec(spec: SSHSpec, providers: Callable[[], Collection[str]] = cloud_providers) -> SSHSpec:
    """Return *spec* if it is valid.

    :param providers: returns the names of the available cloud providers.
    :raise Invalid: with the field, its value and the cure.
    """
    _check_login(spec)
    for attribute in PATHS:
        _check_path(NAMES[attribute], getattr(spec, attribute))
    for name, port, least in (("sshPort", spec.ssh_port, 1), ("kubeletPort", spec.kubelet_port, 0)):
        if not least <= port <= 65535:
            raise invalid_field(name, port, f"must be a port, from {least} to 65535")
    _check_addresses(spec)
    _check_source(spec, providers)
    nodes_of(spec)
    if spec.kubelet_authority and spec.kubelet_insecure:
        raise invalid_field(
            "kubeletCertificateAuthority",
            spec.kubelet_authority,
            f"is ignored with {SPEC_PATH}.insecureSkipKubeletTLSVerify: omit one of them",
        )
    _check_targets(spec.targets)
    _check_identities(spec.allowed_identities)
    return spec


def nodes_of(spec: SSHSpec) -> list[Node]:
    """Return the nodes in *spec*.

    :raise Invalid: a node is malformed or duplicate.
    """
    if len(spec.nodes) > NODE_LIMIT:
        raise Invalid(f"{SPEC_PATH}.nodes: {len(spec.nodes)} nodes: at most {NODE_LIMIT} are allowed")
    found: dict[str, Node] = {}
    for number, text in enumerate(spec.nodes):
        name = f"nodes[{number}]"
        if "@" in text:
            raise invalid_field(name, text, f"must be HOST or HOST:PORT: the login name is {SPEC_PATH}.user")
        try:
            node = parse_node(text, spec.ssh_port)
        except ConfigurationError:
            raise invalid_field(name, text, _NODE) from None
        if not (text.isprintable() and is_node_host(node.host)):
            raise invalid_field(name, text, _NODE)
        key = node.address.lower()
        if key in found:
            raise invalid_field(name, text, f"is listed twice, as {found[key].address}: remove one")
        found[key] = node
    return list(found.values())


def invalid_field(name: str, value: object, cure: str) -> Invalid:
    """Return the error for one field."""
    return Invalid(f"{SPEC_PATH}.{name}: {value!r}: {cure}")


def _check_login(spec: SSHSpec) -> None:
    if not spec.user:
        raise Invalid(f"{SPEC_PATH}.user: required: the login name on the nodes, such as 'tower'")
    if not spec.user.isprintable() or len(spec.user.encode()) > USER_LIMIT:
        raise invalid_field("user", spec.user, f"must be 1 to {USER_LIMIT} bytes without control characters")
    if not spec.key_file:
        raise Invalid(f"{SPEC_PATH}.keyFile: required: the private key file, which is created if missing")
    if spec.key_type not in get_args(KeyType):
        raise invalid_field("keyType", spec.key_type, f"must be {' or '.join(get_args(KeyType))}")
    modes = get_args(HostKeyMode)
    if spec.host_keys not in modes:
        raise invalid_field("hostKeys", spec.host_keys, f"must be {', '.join(modes[:-1])} or {modes[-1]}")
    if spec.known_hosts and spec.host_keys == "insecure-ignore":
        raise invalid_field(
            "knownHosts",
            spec.known_hosts,
            f"is ignored with {SPEC_PATH}.hostKeys insecure-ignore: omit one of them",
        )


def _check_path(name: str, path: str) -> None:
    if not path.isprintable():
        raise invalid_field(name, path[:_PATH_LIMIT], "must be a path without control characters")
    longest = max(len(part.encode()) for part in path.split("/"))
    if longest > _NAME_LIMIT or len(path.encode()) > _PATH_LIMIT:
        raise invalid_field(
            name,
            f"{path[:_SHOWN]}…",
            f"is too long: at most {_PATH_LIMIT} B, and {_NAME_LIMIT} B between slashes",
        )
    if path.startswith("~"):
        raise invalid_field(name, path, "must be a path without ~, which is not expanded")
    if path.endswith("/"):
        raise invalid_field(name, path, "must be a file, not a directory")


def _check_addresses(spec: SSHSpec) -> None:
    types = spec.address_types
    if not types:
        raise invalid_field("addressTypes", [], f"must name at least one of {', '.join(_ADDRESS_TYPES)}")
    for number, kind in enumerate(types):
        if kind not in _ADDRESS_TYPES:
            raise invalid_field(
                f"addressTypes[{number}]", kind, f"must be one of {', '.join(_ADDRESS_TYPES)}"
            )
        if kind in types[:number]:
            raise invalid_field(f"addressTypes[{number}]", kind, "is listed twice: remove one")


def _check_source(spec: SSHSpec, providers: Callable[[], Collection[str]]) -> None:
    given = [NAMES[attribute] for attribute in _SOURCES if getattr(spec, attribute)]
    if spec.cloud_provider and not spec.nodes_from_api:
        given.append(NAMES["cloud_provider"])
    if len(given) > 1:
        raise Invalid(
            f"{SPEC_PATH}.{given[1]}: {SPEC_PATH}.{given[0]} lists the nodes already: omit one of them"
        )
    if spec.cloud_config and not spec.cloud_provider:
        raise invalid_field(
            "cloudConfig",
            spec.cloud_config,
            f"requires {SPEC_PATH}.cloudProvider: set it, or omit this field",
        )
    if spec.cloud_provider and spec.cloud_provider not in (known := sorted(providers())):
        raise invalid_field(
            "cloudProvider", spec.cloud_provider, f"must be one of {', '.join(known) or 'none'}"
        )


def _check_targets(targets: Mapping[str, str]) -> None:
    if len(targets) > TARGET_LIMIT:
        raise Invalid(f"{SPEC_PATH}.targets: {len(targets)} targets: at most {TARGET_LIMIT} are allowed")
    for name, address in targets.items():
        if name in (KUBERNETES, _KUBELET):
            raise invalid_field(
                f"targets.{name}", address, f"{name!r} is a reserved target: choose another name"
            )
        if not _is_target(name, address):
            raise invalid_field(
                f"targets.{name}",
                address,
                "must be HOST:PORT, with a name of lower-case letters, digits, '-' and '.'",
            )


def _check_identities(names: Sequence[str]) -> None:
    field = NAMES["allowed_identities"]
    if len(names) > ALLOWED_LIMIT:
        raise Invalid(f"{SPEC_PATH}.{field}: {len(names)} names: at most {ALLOWED_LIMIT} are allowed")
    for number, name in enumerate(names):
        try:
            check_allowed(name)
        except Invalid as e:
            raise Invalid(f"{SPEC_PATH}.{field}[{number}]: {e}") from None
        if name in names[:number]:
            raise invalid_field(f"{field}[{number}]", name, "is listed twice: remove one")


def _is_target(name: str, address: str) -> bool:
    try:
        return address.isprintable() and parse_target(f"{name}={address}").name == name
    except ConfigurationError:
        return False


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value
