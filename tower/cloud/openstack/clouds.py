"""``clouds.yaml``, in which OpenStack's own tools keep logins."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tower.cloud.configtext import read_config
from tower.cloud.sections import Section, Value
from tower.errors import ConfigurationError

#: Where it is looked for, and how the cloud in it is called, unless the configuration says otherwise.
USUAL = ("~/.config/openstack/clouds.yaml", "/etc/openstack/clouds.yaml")
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
    path = section.text("clouds-file") or next(
        (each for each in USUAL if Path(each).expanduser().exists()), USUAL[0]
    )
    name = section.text("cloud") or USUAL_CLOUD
    cloud = _read(path, name)
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


def _read(path: str, name: str) -> Mapping[str, Any]:
    try:
        text = read_config(Path(path).expanduser()).text
    except OSError as e:
        raise ConfigurationError(f"{path}: {e.strerror}") from None
    try:
        said = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise ConfigurationError(f"{path}: this is no YAML") from None
    clouds = said.get("clouds") if isinstance(said, Mapping) else None
    found = clouds.get(name) if isinstance(clouds, Mapping) else None
    if not isinstance(found, Mapping):
        raise ConfigurationError(f"{path}: there is no cloud {name}")
    return found
