"""Configuration of the provider openstack."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from attrs import field, frozen

from tower.cloud.config.sections import Section, Sections, read_url
from tower.cloud.config.text import ConfigText
from tower.cloud.gcfg import parse
from tower.errors import ConfigurationError

METADATA_URL = "http://169.254.169.254"

CONFIG_DRIVE = "configDrive"
METADATA_SERVICE = "metadataService"

#: Accepted sections and keys; those for load balancers, volumes and routes are ignored.
KNOWN: dict[str, Collection[str]] = {
    "Global": (
        *("auth-url", "username", "user-id", "password", "tenant-id", "tenant-name", "trust-id", "domain-id"),
        *("domain-name", "tenant-domain-id", "tenant-domain-name", "user-domain-id", "user-domain-name"),
        *("application-credential-id", "application-credential-name", "application-credential-secret"),
        *("region", "ca-file", "os-endpoint-type", "tls-insecure", "use-clouds", "clouds-file", "cloud"),
        *("node-prefix", "node-metadata"),
    ),
    "Metadata": ["search-order", "request-timeout", "metadata-url", "config-drive"],
    "Networking": ["public-network-name", "internal-network-name", "ipv6-support-disabled"],
    "LoadBalancer": (
        *("lb-version", "use-octavia", "subnet-id", "floating-network-id", "lb-method", "lb-provider"),
        *("create-monitor", "monitor-delay", "monitor-timeout", "monitor-max-retries"),
        *("manage-security-groups", "node-security-group"),
    ),
    "BlockStorage": ["bs-version", "trust-device-path", "ignore-volume-az"],
    "Route": ["router-id"],
}

_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)?")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, None: 1.0}

_CLOUDS_YAML = re.compile(r"^clouds:", re.MULTILINE)
_REPLACEMENT = (
    "put the values that 'openstack --os-cloud NAME configuration show --unmask' prints into [Global]; "
    "docs/cloud-providers.md has a command that converts them"
)


@frozen
class Reference:
    """ID or name of an object of Keystone's; false without either."""

    id: str = ""
    name: str = ""

    def __bool__(self) -> bool:
        return bool(self.id or self.name)

    def render(self) -> dict[str, str]:
        """Return the object for Keystone's API."""
        return {"id": self.id} if self.id else {"name": self.name}


@frozen
class OpenStackConfig:
    """One configuration.

    :ivar auth_url: Keystone's API, version 3.
    :ivar user_domain: domain of the user's name.
    :ivar credential: application credential, instead of a password.
    :ivar project: project of the login; an application credential has its own.
    :ivar project_domain: domain of the project's name.
    :ivar trust: ID of a trust, instead of a project.
    :ivar region: empty: the only one.
    :ivar interface: kind of endpoints: ``public``, ``internal`` or ``admin``.
    :ivar ca_file: CAs for HTTPS, PEM; empty: the system's.
    :ivar node_prefix: prefix of the servers' names.
    :ivar node_metadata: required metadata of servers.
    :ivar public_networks: networks with external addresses.
    :ivar internal_networks: networks with internal addresses; empty: all others.
    :ivar with_v6: use IPv6 addresses.
    :ivar search_order: sources of data about Tower's own server.
    :ivar metadata_url: the metadata service.
    :ivar metadata_timeout: timeout of its requests, s.
    :ivar config_drive: mount point of the configuration drive; empty: none.
    """

    auth_url: str
    user: Reference = Reference()
    user_domain: Reference = Reference()
    password: str = field(default="", repr=False)
    credential: Reference = Reference()
    credential_secret: str = field(default="", repr=False)
    project: Reference = Reference()
    project_domain: Reference = Reference()
    trust: str = ""
    region: str = ""
    interface: str = "public"
    ca_file: str = ""
    node_prefix: str = ""
    node_metadata: tuple[tuple[str, str], ...] = ()
    public_networks: frozenset[str] = frozenset({"public"})
    internal_networks: frozenset[str] = frozenset()
    with_v6: bool = True
    search_order: tuple[str, ...] = (CONFIG_DRIVE, METADATA_SERVICE)
    metadata_url: str = METADATA_URL
    metadata_timeout: float = 5.0
    config_drive: str = ""


def parse_openstack_config(config: ConfigText | None) -> OpenStackConfig:
    """Read a configuration; raise `ConfigurationError` if it is missing or invalid."""
    if config is None:
        raise ConfigurationError(
            "OpenStack needs --cloud-config with [Global] auth-url and a login; OS_CLOUD and clouds.yaml are "
            f"not read: {_REPLACEMENT}"
        )
    if _CLOUDS_YAML.search(config.text):
        raise ConfigurationError(f"{config.path}: clouds.yaml is not supported: {_REPLACEMENT}")
    sections = parse(config)
    sections.warn_about_unknown(KNOWN)
    section = sections.section("Global")
    if section.flag("use-clouds"):
        raise section.wrong("use-clouds", f"use-clouds (clouds.yaml) is not supported: {_REPLACEMENT}")
    if section.flag("tls-insecure"):
        raise section.wrong("tls-insecure", "tls-insecure is not supported: set ca-file to the cloud's CA")
    domain = _reference(section, "domain-id", "domain-name")
    read = OpenStackConfig(
        auth_url=_auth_url(section),
        user=_reference(section, "user-id", "username"),
        user_domain=_reference(section, "user-domain-id", "user-domain-name") or domain,
        password=section.text("password"),
        credential=_reference(section, "application-credential-id", "application-credential-name"),
        credential_secret=section.text("application-credential-secret"),
        project=_reference(section, "tenant-id", "tenant-name"),
        project_domain=_reference(section, "tenant-domain-id", "tenant-domain-name") or domain,
        trust=section.text("trust-id"),
        region=section.text("region"),
        interface=_interface(section),
        ca_file=section.text("ca-file"),
        node_prefix=section.text("node-prefix"),
        node_metadata=tuple(_pair(section, text) for text in section.texts("node-metadata")),
        **_networks_and_metadata(sections),
    )
    _check_login(section, read)
    return read


def _networks_and_metadata(sections: Sections) -> dict[str, Any]:
    metadata, networking = sections.section("Metadata"), sections.section("Networking")
    order = metadata.text("search-order") or f"{CONFIG_DRIVE},{METADATA_SERVICE}"
    sources = tuple(each.strip() for each in order.split(",") if each.strip())
    if not sources or not {CONFIG_DRIVE, METADATA_SERVICE}.issuperset(sources):
        raise metadata.wrong(
            "search-order", f"search-order must have only {CONFIG_DRIVE} and {METADATA_SERVICE}"
        )
    return {
        "search_order": sources,
        "metadata_url": read_url(metadata, "metadata-url", METADATA_URL, is_secret=False),
        "metadata_timeout": _duration(metadata, "request-timeout") or 5.0,
        "config_drive": metadata.text("config-drive"),
        "public_networks": frozenset(networking.texts("public-network-name") or ["public"]),
        "internal_networks": frozenset(networking.texts("internal-network-name")),
        "with_v6": not networking.flag("ipv6-support-disabled"),
    }


def _check_login(section: Section, config: OpenStackConfig) -> None:
    if config.credential:
        if not config.credential_secret:
            key = "application-credential-secret"
            raise section.wrong(key, f"{key} is missing")
        if not config.credential.id and not config.user:
            key = "application-credential-name"
            raise section.wrong(key, f"{key} needs username or user-id; or set application-credential-id")
    elif not config.user or not config.password:
        raise section.wrong(
            "username",
            "a login is missing: set username and password, or application-credential-id and -secret",
        )
    elif not config.project and not config.trust:
        raise section.wrong("tenant-id", "tenant-id or tenant-name is missing: the project of the servers")
    if config.user and not config.user.id and not (config.credential.id or config.user_domain):
        raise section.wrong("username", "username needs domain-name or domain-id")
    by_name = config.project and not config.project.id and not config.credential
    if by_name and not config.trust and not config.project_domain:
        raise section.wrong("tenant-name", "tenant-name needs domain-name or domain-id")


def _reference(section: Section, id_key: str, name_key: str) -> Reference:
    return Reference(section.text(id_key), section.text(name_key))


def _auth_url(section: Section) -> str:
    url = read_url(section, "auth-url", section.required("auth-url"))
    if re.search(r"/v2\.0$", url):
        raise section.wrong("auth-url", "auth-url is for Keystone's version 2.0: remove /v2.0")
    return url if url.endswith("/v3") else f"{url}/v3"


def _interface(section: Section) -> str:
    text = section.text("os-endpoint-type") or "public"
    name = text.removesuffix("URL")
    if name not in ("public", "internal", "admin"):
        raise section.wrong("os-endpoint-type", "os-endpoint-type must be one of public, internal, admin")
    return name


def _pair(section: Section, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise section.wrong(
            "node-metadata", "node-metadata needs a name and a value: node-metadata = name=value"
        )
    return name.strip(), value.strip()


def _duration(section: Section, key: str) -> float:
    text = section.text(key) or "0"
    match = _DURATION.fullmatch(text)
    if match is None:
        raise section.wrong(key, f"{key} must be a duration like 5s")
    return float(match[1]) * _UNITS[match[2]]
