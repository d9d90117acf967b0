"""What a configuration says about Azure: JSON or YAML, with the keys that Kubernetes has for it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import yaml
from attrs import field, frozen
from twisted.logger import Logger

from tower.cloud.configtext import ConfigText
from tower.cloud.errors import CloudConfigError

#: Where a machine of Azure's finds its metadata service.
METADATA = "http://169.254.169.254"

#: The clouds: who gives tokens, and who manages resources.
_CLOUDS = {
    "azurepubliccloud": ("https://login.microsoftonline.com", "https://management.azure.com"),
    "azurecloud": ("https://login.microsoftonline.com", "https://management.azure.com"),
    "azurechinacloud": ("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
    "azureusgovernmentcloud": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
    "azureusgovernment": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
}

_log = Logger()

# What goes into paths of URLs as it is.
_GROUP = re.compile(r"[\w.()-]{1,90}")
_WORD = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9.-]{1,255}", re.ASCII)
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")


@frozen
class AzureConfig:
    """One configuration.

    :ivar identity: client id, or resource id, of the managed identity to use; empty: the machine's own.
    :ivar managed: take tokens from the metadata service.
    :ivar login: who gives tokens, without a slash at its end.
    :ivar manager: who manages resources, without a slash at its end.
    :ivar audience: whom tokens are for; the manager, mostly.
    :ivar cache: how long what is known of machines answers a question about one of them, s.
    """

    subscription: str
    group: str
    tenant: str = ""
    location: str = ""
    client: str = ""
    secret: str = field(default="", repr=False)
    managed: bool = False
    identity: str = ""
    login: str = _CLOUDS["azurecloud"][0]
    manager: str = _CLOUDS["azurecloud"][1]
    audience: str = _CLOUDS["azurecloud"][1] + "/"
    metadata: str = METADATA
    cache: float = 60.0


def read_azure_config(config: ConfigText) -> AzureConfig:
    """Return what *config* says; keys that are not known are about other things than machines.

    :raise CloudConfigError: with file and, where there is one, line; never with a value that may be secret.
    """
    given = _Keys(config)
    cloud = given.text("cloud") or "AzurePublicCloud"
    if cloud.lower() not in _CLOUDS:
        raise given.wrong(
            "cloud", f"cloud {cloud!r}: must be AzurePublicCloud, AzureChinaCloud or AzureUSGovernment"
        )
    login, manager = _CLOUDS[cloud.lower()]
    manager = given.url("resourceManagerEndpoint") or manager
    managed = given.flag("useManagedIdentityExtension")
    found = AzureConfig(
        subscription=given.required("subscriptionId", _WORD),
        group=given.required("resourceGroup", _GROUP),
        tenant=given.text("tenantId") if managed else given.required("tenantId", _TENANT),
        location=given.text("location"),
        client=given.text("aadClientId") if managed else given.required("aadClientId"),
        secret=given.text("aadClientSecret") if managed else given.required("aadClientSecret"),
        managed=managed,
        identity=given.text("userAssignedIdentityID"),
        login=given.url("activeDirectoryEndpoint") or login,
        manager=manager,
        audience=given.text("tokenAudience") or f"{manager}/",
        metadata=given.url("metadataEndpoint") or METADATA,
        cache=given.number("vmCacheTTLInSeconds", 60),
    )
    for url in (found.login, found.manager):
        if url.startswith("http://") and not _is_here(urlsplit(url).hostname or ""):
            _log.warn(
                "NOT SECURE: {url} is not https://: whoever is on the way can read our credentials", url=url
            )
    if found.group.endswith("."):
        raise given.wrong("resourceGroup", "resourceGroup is not valid")
    return found


def _is_here(host: str) -> bool:
    """Tell whether what is sent to *host* stays on this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class _Keys:
    """The keys of a configuration, in any case of letters, as Go reads them."""

    def __init__(self, config: ConfigText) -> None:
        self._config = config
        values = _parse(config)
        if not isinstance(values, Mapping):
            raise CloudConfigError(config.path, 0, "must be an object in JSON or YAML")
        self._values = {str(key).lower(): value for key, value in values.items()}

    def text(self, key: str) -> str:
        value = self._values.get(key.lower())
        if value is None:
            return ""
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self.wrong(key, f"{key} must be a text")
        return str(value).strip()

    def required(self, key: str, form: re.Pattern[str] | None = None) -> str:
        text = self.text(key)
        if not text:
            raise self.wrong(key, f"{key} is missing")
        if form is not None and not form.fullmatch(text):
            raise self.wrong(key, f"{key} is not valid")
        return text

    def flag(self, key: str) -> bool:
        value = self._values.get(key.lower(), False)
        if not isinstance(value, bool):
            raise self.wrong(key, f"{key} must be true or false")
        return value

    def number(self, key: str, default: int) -> float:
        value = self._values.get(key.lower(), default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 86400:
            raise self.wrong(key, f"{key} must be a number of seconds, at most 86400")
        return float(value or default)

    def url(self, key: str) -> str:
        text = self.text(key)
        if text and not _URL.fullmatch(text):
            raise self.wrong(key, f"{key} is no http or https URL without a query")
        return text.rstrip("/")

    def wrong(self, key: str, text: str) -> CloudConfigError:
        found = re.search(
            rf"""^[{{\s]*["']?{key}["']?\s*:""", self._config.text, re.IGNORECASE | re.MULTILINE
        )
        line = 0 if found is None else self._config.text.count("\n", 0, found.end()) + 1
        return CloudConfigError(self._config.path, line, text)


def _parse(config: ConfigText) -> Any:
    # Neither parser's own words are passed on: they may quote what stands there.
    if config.text.lstrip().startswith("{"):
        try:
            return json.loads(config.text)
        except json.JSONDecodeError as e:
            raise CloudConfigError(config.path, e.lineno, "this is no JSON") from None
        except RecursionError:
            raise CloudConfigError(config.path, 0, "this is no JSON") from None
    try:
        return yaml.safe_load(config.text)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 0
        raise CloudConfigError(config.path, line, "this is no YAML") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise CloudConfigError(config.path, 0, "this is no YAML") from None
