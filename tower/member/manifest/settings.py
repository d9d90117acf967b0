"""Values of an agent's manifest, and their checks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from attrs import field, frozen

from tower import __version__
from tower.errors import ConfigurationError, Invalid
from tower.kube.system_identities import NAME_LIMIT, is_system
from tower.member.targets import Targets
from tower.net.addresses import parse_address
from tower.tunnels.targets import Target, parse_target

#: Image with ``tower-agent``, of this version.
REPOSITORY = "kubesphere/tower"
IMAGE = f"{REPOSITORY}:{__version__}"

#: Default namespace of the agent.
NAMESPACE = "tower-system"

#: Default number of replicas, and the largest, which is a proxy's default limit of tunnels with one key.
REPLICAS, _REPLICAS_LIMIT = 2, 8

#: Longest name of an image.
_IMAGE_LIMIT = 512

#: Most users, and most groups, that a manifest may list.
_NAMES_LIMIT = 200

#: All keys of extra fields.
ALL_EXTRA = "*"

_FIELDS = frozenset(
    (
        *("image", "imagePullSecrets", "impersonateUsers", "impersonateGroups", "kubesphereService"),
        *("impersonateUid", "impersonateExtra"),
        *("namespace", "replicas", "targets"),
    )
)

# Registry, path, tag and digest of an image, without the exact rules of registries.
_IMAGE = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._:/@-]*")

_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")


@frozen
class AgentSettings:
    """Choices of the owner of a member cluster.

    :ivar users: that the agent may impersonate; empty: all.
    :ivar groups: likewise.
    :ivar targets: ``NAME=HOST:PORT`` of additional targets of streams.
    :ivar kubesphere_service: ``HOST:PORT`` of the KubeSphere API server; empty: no such target.
    :ivar namespace: of the agent; the default one is created, any other one must exist.
    :ivar pull_secrets: names of Secrets in that namespace for the image's registry.
    :ivar uid: whether the agent may impersonate UIDs.
    :ivar extra: extra keys that the agent may impersonate; `ALL_EXTRA`: all keys, and UIDs.
    :raise Invalid: a value cannot be used; with the cure.
    """

    image: str = IMAGE
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    kubesphere_service: str = ""
    namespace: str = NAMESPACE
    replicas: int = REPLICAS
    pull_secrets: tuple[str, ...] = ()
    uid: bool = False
    extra: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        """Check the values."""
        if not _IMAGE.fullmatch(self.image) or len(self.image) > _IMAGE_LIMIT:
            raise Invalid(f"image: {self.image!r} is not an image, such as {IMAGE}")
        _check_names("impersonateUsers", self.users)
        _check_names("impersonateGroups", self.groups)
        _check_keys(self.extra)
        _check_targets(self.targets, self.kubesphere_service)
        if not _LABEL.fullmatch(self.namespace):
            raise Invalid(
                f"namespace: {self.namespace!r}: must be 1 to 63 lowercase letters, digits and hyphens, "
                "without hyphens at the ends"
            )
        if not 1 <= self.replicas <= _REPLICAS_LIMIT:
            raise Invalid(f"replicas: {self.replicas}: must be from 1 to {_REPLICAS_LIMIT}")
        for name in self.pull_secrets:
            if not _SUBDOMAIN.fullmatch(name):
                raise Invalid(f"imagePullSecrets: {name!r} is not the name of a Secret")
        if len(self.pull_secrets) > _NAMES_LIMIT:
            raise Invalid(
                f"imagePullSecrets: {len(self.pull_secrets)} names: at most {_NAMES_LIMIT} are allowed"
            )
        if self.users and not self.groups:
            raise Invalid(
                "impersonateUsers: requires impersonateGroups: with the right to impersonate all groups, the "
                "restriction to some users has no effect"
            )

    @classmethod
    def parse(cls, value: object, path: str = "") -> AgentSettings:
        """Return the settings in a JSON object; errors begin with *path* and the field."""
        if not isinstance(value, dict):
            raise Invalid(f"{path.rstrip('.')}: must be an object, which may be empty")
        if unknown := sorted(set(value) - _FIELDS):
            raise Invalid(f"{path}{unknown[0]}: unknown; the fields are {', '.join(sorted(_FIELDS))}")
        for name in ("image", "kubesphereService", "namespace"):
            if not isinstance(value.get(name, ""), str):
                raise Invalid(f"{path}{name}: must be a string")
        replicas = value.get("replicas", REPLICAS)
        if not isinstance(replicas, int) or isinstance(replicas, bool):
            raise Invalid(f"{path}replicas: must be a whole number")
        uid = value.get("impersonateUid", False)
        if not isinstance(uid, bool):
            raise Invalid(f"{path}impersonateUid: must be true or false")
        try:
            return cls(
                value.get("image", IMAGE),
                _texts(value, "impersonateUsers"),
                _texts(value, "impersonateGroups"),
                _texts(value, "targets"),
                value.get("kubesphereService", ""),
                value.get("namespace", NAMESPACE),
                replicas,
                _texts(value, "imagePullSecrets"),
                uid,
                _texts(value, "impersonateExtra"),
            )
        except Invalid as e:
            raise Invalid(f"{path}{e}") from e

    def to_object(self) -> dict[str, Any]:
        """Return the JSON object; the reverse of `parse`."""
        return {
            "image": self.image,
            "impersonateUsers": list(self.users),
            "impersonateGroups": list(self.groups),
            "targets": list(self.targets),
            "kubesphereService": self.kubesphere_service,
            "namespace": self.namespace,
            "replicas": self.replicas,
            "imagePullSecrets": list(self.pull_secrets),
            "impersonateUid": self.uid,
            "impersonateExtra": list(self.extra),
        }


@frozen
class Joining:
    """The parameters with which the agent joins; see `tower.web.api.issuer.Invitation`.

    :ivar proxy_server: URL of the proxy, ``wss://…``.
    """

    cluster: str
    token: str = field(repr=False)
    proxy_server: str
    host_keys: Sequence[str]
    ca_hashes: Sequence[str]


def _texts(value: dict[str, Any], field_name: str) -> tuple[str, ...]:
    found = value.get(field_name, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise Invalid(f"{field_name}: must be a list of strings")
    return tuple(found)


def _check_targets(targets: Sequence[str], kubesphere: str) -> None:
    if len(targets) > _NAMES_LIMIT:
        raise Invalid(f"targets: {len(targets)} targets: at most {_NAMES_LIMIT} are allowed")
    field_name = "targets"
    try:
        found = [parse_target(text) for text in targets]
        field_name = "kubesphereService"
        if kubesphere:
            found.append(Target("kubesphere", *parse_address(kubesphere, 80)))
        Targets(found)
    except ConfigurationError as e:
        raise Invalid(f"{field_name}: {e}") from e


def _check_names(field_name: str, names: Sequence[str]) -> None:
    _check_printable(field_name, names)
    for name in names:
        if is_system(name):
            raise Invalid(
                f"{field_name}: {name!r} is a system identity, which the agent rejects: bind its role "
                "to your own user or group, and name that"
            )


def _check_keys(keys: Sequence[str]) -> None:
    _check_printable("impersonateExtra", keys)
    for key in keys:
        if key != key.lower():
            raise Invalid(
                f"impersonateExtra: {key!r}: must be lower case: the API server compares keys in lower case"
            )


def _check_printable(field_name: str, names: Sequence[str]) -> None:
    if len(names) > _NAMES_LIMIT:
        raise Invalid(f"{field_name}: {len(names)} names: at most {_NAMES_LIMIT} are allowed")
    for name in names:
        if not (0 < len(name) <= NAME_LIMIT and name.isprintable() and name == name.strip()):
            raise Invalid(
                f"{field_name}: {name!r}: must be 1 to {NAME_LIMIT} printable characters, without blanks at "
                "the ends"
            )
