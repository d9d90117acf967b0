"""Configuration of the provider gce."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from attrs import field, frozen

from tower.cloud.config.sections import Section, read_url
from tower.cloud.config.text import ConfigText
from tower.cloud.gcfg import parse

#: Defaults.
API_ENDPOINT = "https://compute.googleapis.com/compute/v1/"
METADATA_HOST = "metadata.google.internal"

#: The metadata items with SSH keys: the current one and the older one.
NEW_ITEM = "ssh-keys"
OLD_ITEM = "sshKeys"

PROJECT_SCOPE = "project"
INSTANCE_SCOPE = "instance"

_ITEMS = {
    "both": (NEW_ITEM, OLD_ITEM),
    NEW_ITEM: (NEW_ITEM,),
    OLD_ITEM: (OLD_ITEM,),
}
_SCOPES = (PROJECT_SCOPE, INSTANCE_SCOPE)

#: Accepted keys; those for load balancers, routes and firewalls are ignored.
KEYS = (
    *("token-url", "token-body", "project-id", "network-project-id", "network-name", "subnetwork-name"),
    *("secondary-range-name", "node-tags", "node-instance-prefix", "regional", "multizone", "api-endpoint"),
    *("container-api-endpoint", "local-zone", "alpha-features", "credentials-file", "metadata-host"),
    *("key-scope", "metadata-key"),
)


@frozen
class GCEConfig:
    """One configuration.

    :ivar project: empty: that of the credentials, or of Tower's machine.
    :ivar api: URL of the API, with a trailing slash.
    :ivar zone: empty: all zones.
    :ivar many_zones: all zones of the region of *zone*.
    :ivar prefix: prefix of the instances' names.
    :ivar tags: instances have at least one of them; empty: any instance.
    :ivar network: network whose addresses are used, if the instance is in it; empty: any.
    :ivar token_url: the operator's token service; empty: none.
    :ivar token_body: body of requests to it.
    :ivar credentials_file: empty: tokens of the metadata service.
    :ivar metadata_host: ``host`` or ``host:port`` of the metadata service.
    :ivar key_items: the metadata items for new keys.
    :ivar key_scope: `PROJECT_SCOPE` or `INSTANCE_SCOPE`.
    """

    project: str = ""
    api: str = API_ENDPOINT
    zone: str = ""
    many_zones: bool = False
    prefix: str = ""
    tags: frozenset[str] = frozenset()
    network: str = ""
    token_url: str = field(default="", repr=False)
    token_body: str = field(default="", repr=False)
    credentials_file: str = ""
    metadata_host: str = METADATA_HOST
    key_items: tuple[str, ...] = _ITEMS["both"]
    key_scope: str = PROJECT_SCOPE

    @property
    def region(self) -> str:
        """The region of `zone`."""
        return self.zone.rpartition("-")[0]


def parse_gce_config(config: ConfigText | None, environment: Mapping[str, str] = os.environ) -> GCEConfig:
    """Read a configuration; the metadata service of Tower's machine has the defaults.

    :param environment: has defaults in ``GCE_METADATA_HOST`` and ``GOOGLE_APPLICATION_CREDENTIALS``.
    :raise CloudConfigError: with file and line.
    """
    sections = parse(config or ConfigText("", ""))
    sections.warn_about_unknown({"global": KEYS})
    section = sections.section("global")
    token_url = section.text("token-url")
    zone = _name(section, "local-zone")
    many_zones = section.flag("multizone")
    if many_zones and "-" not in zone.strip("-"):
        zone = ""
    return GCEConfig(
        project=_name(section, "project-id"),
        api=read_url(section, "api-endpoint", API_ENDPOINT) + "/",
        zone=zone,
        many_zones=many_zones,
        prefix=_name(section, "node-instance-prefix"),
        tags=frozenset(section.texts("node-tags")),
        network=section.text("network-name").rpartition("/")[2],
        token_url="" if token_url in ("", "nil") else read_url(section, "token-url", "", query=True),
        token_body=section.text("token-body"),
        credentials_file=section.text("credentials-file")
        or environment.get("GOOGLE_APPLICATION_CREDENTIALS", ""),
        metadata_host=section.text("metadata-host") or environment.get("GCE_METADATA_HOST") or METADATA_HOST,
        key_items=_ITEMS[_choice(section, "metadata-key", tuple(_ITEMS))],
        key_scope=_choice(section, "key-scope", _SCOPES),
    )


def _name(section: Section, key: str) -> str:
    text = section.text(key)
    if not re.fullmatch(r"[A-Za-z0-9.:_-]*", text):
        raise section.wrong(key, f"{key} has a character that is not allowed in Google's names")
    return text


def _choice(section: Section, key: str, choices: tuple[str, ...]) -> str:
    text = section.text(key) or choices[0]
    if text not in choices:
        raise section.wrong(key, f"{key} must be one of {', '.join(choices)}")
    return text
