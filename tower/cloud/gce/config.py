"""What the configuration of the provider gce says."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from attrs import field, frozen

from tower.cloud.config.gcfg import parse
from tower.cloud.config.sections import Section
from tower.cloud.config.text import ConfigText
from tower.cloud.config.urls import read_url
from tower.cloud.gce.user import usual_file

#: Where Compute Engine's API is unless the configuration says otherwise.
API_ENDPOINT = "https://compute.googleapis.com/compute/v1/"
METADATA_HOST = "metadata.google.internal"

#: The metadata items that hold SSH keys: the one of now, and the one before it.
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

#: Keys of the configuration; those that only load balancers, routes and firewalls need are not used.
KEYS = (
    "token-url",
    "token-body",
    "project-id",
    "network-project-id",
    "network-name",
    "subnetwork-name",
    "secondary-range-name",
    "node-tags",
    "node-instance-prefix",
    "regional",
    "multizone",
    "api-endpoint",
    "container-api-endpoint",
    "local-zone",
    "alpha-features",
    "credentials-file",
    "metadata-host",
    "key-scope",
    "metadata-key",
)


@frozen
class GCEConfig:
    """How to reach which instances of which project.

    :ivar project: empty: that of the credentials, or of the machine we are on.
    :ivar api: URL of the API, with a slash at its end.
    :ivar zone: empty: none was named.
    :ivar many_zones: every zone of the region of *zone*, not *zone* alone.
    :ivar prefix: of the names of instances; empty: any name.
    :ivar tags: instances have one of them; empty: any instance.
    :ivar network: whose interfaces' addresses count, where an instance has one in it; empty: any.
    :ivar token_url: of a service for tokens; empty: none.
    :ivar token_body: what is posted there.
    :ivar credentials_file: with the key of a service account, or another login; empty: the metadata service
        gives tokens.
    :ivar metadata_host: ``host`` or ``host:port`` of the metadata service.
    :ivar key_items: the metadata items that new keys go to.
    :ivar key_scope: `PROJECT_SCOPE` or `INSTANCE_SCOPE`, whose metadata that is.
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
    """Read a configuration; without one, everything is found out from the machine we are on.

    :param environment: ``GCE_METADATA_HOST`` and ``GOOGLE_APPLICATION_CREDENTIALS`` count where the
        configuration says nothing, and then the login that gcloud left at its usual place.
    :raise CloudConfigError: it says something that cannot be.
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
        or environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        or usual_file(environment),
        metadata_host=section.text("metadata-host")
        or environment.get("GCE_METADATA_HOST", "")
        or METADATA_HOST,
        key_items=_ITEMS[_choice(section, "metadata-key", tuple(_ITEMS))],
        key_scope=_choice(section, "key-scope", _SCOPES),
    )


def _name(section: Section, key: str) -> str:
    text = section.text(key)
    if not re.fullmatch(r"[A-Za-z0-9.:_-]*", text):
        raise section.wrong(key, f"{key} has a character that names at Google do not have")
    return text


def _choice(section: Section, key: str, choices: tuple[str, ...]) -> str:
    text = section.text(key) or choices[0]
    if text not in choices:
        raise section.wrong(key, f"{key} is none of {', '.join(choices)}")
    return text
