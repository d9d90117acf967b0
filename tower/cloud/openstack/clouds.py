"""``clouds.yaml``, in which OpenStack's own tools keep logins, and ``secure.yaml`` for what is secret there.

The latter has the same form, and what it says counts: as openstacksdk does it, objects become one with all
that both have, anything else is replaced.  It is looked for beside the former, and then at the usual places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tower.cloud.config.sections import Section, Value
from tower.cloud.config.text import read_config
from tower.errors import ConfigurationError

#: Where it is looked for, and how the cloud in it is called, unless the configuration says otherwise.
FOLDERS = ("~/.config/openstack", "/etc/openstack")
NAME, SECURE = "clouds.yaml", "secure.yaml"
USUAL_CLOUD = "openstack"

# What a cloud says, and what our configuration calls it.
_LOGIN = {
    "auth_url": "auth-url",
    "username": "username",
    "user_id": "user-id",
    "password": "password",
    "project_name": "tenant-name",
    "tenant_name": "tenant-name",
    "project_id": "tenant-id",
    "tenant_id": "tenant-id",
    "trust_id": "trust-id",
    "domain_name": "domain-name",
    "domain_id": "domain-id",
    "default_domain": "domain-id",
    "user_domain_name": "user-domain-name",
    "user_domain_id": "user-domain-id",
    "project_domain_name": "tenant-domain-name",
    "project_domain_id": "tenant-domain-id",
    "application_credential_id": "application-credential-id",
    "application_credential_name": "application-credential-name",
    "application_credential_secret": "application-credential-secret",
}
_BESIDE = {
    "region_name": "region",
    "interface": "os-endpoint-type",
    "endpoint_type": "os-endpoint-type",
    "cacert": "ca-file",
}


def add_cloud(section: Section) -> None:
    """Add to a section what the cloud that it names says; what is there already counts.

    :raise ConfigurationError: there is no such cloud, or it cannot be read; never with what stands in it.
    """
    usual = [f"{folder}/{NAME}" for folder in FOLDERS]
    path = section.text("clouds-file") or _first_there(usual) or usual[0]
    name = section.text("cloud") or USUAL_CLOUD
    clouds = _read(path)
    beside = str(Path(path).with_name(SECURE))
    secure = section.text("secure-file") or _first_there(
        [beside, *(f"{folder}/{SECURE}" for folder in FOLDERS)]
    )
    if secure:
        clouds = _merged(clouds, _read(secure))
    cloud = clouds.get(name)
    if not isinstance(cloud, Mapping):
        raise ConfigurationError(f"{path}: there is no cloud {name}")
    if cloud.get("verify") is False:
        raise ConfigurationError(f"{path}: cloud {name}: verify is false: name the authority with cacert")
    auth = cloud.get("auth")
    for said, keys in ((auth if isinstance(auth, Mapping) else {}, _LOGIN), (cloud, _BESIDE)):
        for key, value in said.items():
            known = keys.get(str(key))
            if known is None or value is None:
                continue
            if not isinstance(value, str | int) or isinstance(value, bool):
                raise ConfigurationError(f"{path}: cloud {name}: {key} must be a text")
            section.values.setdefault(known, [Value(section.line, str(value))])


def _first_there(paths: Iterable[str]) -> str:
    """Return the first of these files that is there; empty if none is."""
    return next((each for each in paths if Path(each).expanduser().exists()), "")


def _merged(first: Mapping[Any, Any], second: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return what both say; the second counts."""
    made = dict(first)
    for key, value in second.items():
        known = made.get(key)
        both = isinstance(known, Mapping) and isinstance(value, Mapping)
        made[key] = _merged(known, value) if both else value  # type: ignore[arg-type]
    return made


def _read(path: str) -> Mapping[Any, Any]:
    """Return the clouds in a file."""
    try:
        text = read_config(Path(path).expanduser()).text
    except OSError as e:
        raise ConfigurationError(f"{path}: {e.strerror}") from None
    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise ConfigurationError(f"{path}: this is no YAML") from None
    clouds = said.get("clouds") if isinstance(said, Mapping) else None
    return clouds if isinstance(clouds, Mapping) else {}
