"""Configuration of the provider azure: JSON or YAML, with Kubernetes' keys."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

import yaml
from attrs import field, frozen

from tower.cloud.config.sections import warn_unless_safe
from tower.cloud.config.text import ConfigText
from tower.cloud.errors import CloudConfigError

#: The metadata service of Azure's machines.
METADATA = "http://169.254.169.254"

#: Endpoints of logins and of the resource manager, by cloud.
_CLOUDS = {
    "azurepubliccloud": ("https://login.microsoftonline.com", "https://management.azure.com"),
    "azurecloud": ("https://login.microsoftonline.com", "https://management.azure.com"),
    "azurechinacloud": ("https://login.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
    "azureusgovernmentcloud": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
    "azureusgovernment": ("https://login.microsoftonline.us", "https://management.usgovcloudapi.net"),
}

# Values that become part of URLs unquoted.
_GROUP = re.compile(r"[\w.()-]{1,90}")
_WORD = re.compile(r"[A-Za-z0-9-]{1,64}", re.ASCII)
_TENANT = re.compile(r"[A-Za-z0-9.-]{1,255}", re.ASCII)
_URL = re.compile(r"https?://[^\s/?#@]+(?:/[^\s?#]*)?")


@frozen
class AzureConfig:
    """One configuration.

    :ivar certificate: file with the client's certificate and key, PKCS#12 or PEM; empty: none.
    :ivar certificate_password: of that file.
    :ivar token_file: file with a federated token; empty: none.
    :ivar managed: get tokens from the metadata service.
    :ivar identity: client ID or resource ID of the managed identity; empty: the machine's own.
    :ivar login: token endpoint, without a trailing slash.
    :ivar manager: resource manager, without a trailing slash.
    :ivar audience: of tokens.
    :ivar cache: how long data about machines is cached, s.
    """

    subscription: str
    group: str
    tenant: str = ""
    location: str = ""
    client: str = ""
    secret: str = field(default="", repr=False)
    certificate: str = ""
    certificate_password: str = field(default="", repr=False)
    token_file: str = ""
    managed: bool = False
    identity: str = ""
    login: str = _CLOUDS["azurecloud"][0]
    manager: str = _CLOUDS["azurecloud"][1]
    audience: str = _CLOUDS["azurecloud"][1] + "/"
    metadata: str = METADATA
    cache: float = 60.0


def read_azure_config(config: ConfigText, environ: Mapping[str, str] = os.environ) -> AzureConfig:
    """Read a configuration; unknown keys are ignored.

    :param environ: has the workload identity of a pod of AKS.
    :raise CloudConfigError: with file and, if possible, line; never with a value that may be secret.
    """
    given = _Keys(config)
    cloud = given.text("cloud") or "AzurePublicCloud"
    if cloud.lower() not in _CLOUDS:
        raise given.wrong("cloud", "cloud must be AzurePublicCloud, AzureChinaCloud or AzureUSGovernment")
    login, manager = _CLOUDS[cloud.lower()]
    manager = given.url("resourceManagerEndpoint") or manager
    login_of = _login(given, environ)
    found = AzureConfig(
        subscription=given.required("subscriptionId", _WORD),
        group=given.required("resourceGroup", _GROUP),
        location=given.text("location"),
        login=given.url("activeDirectoryEndpoint") or login,
        manager=manager,
        audience=given.text("tokenAudience") or f"{manager}/",
        metadata=given.url("metadataEndpoint") or METADATA,
        cache=given.number("vmCacheTTLInSeconds", 60),
        **login_of,
    )
    warn_unless_safe("activeDirectoryEndpoint", found.login)
    warn_unless_safe("resourceManagerEndpoint", found.manager)
    if found.group.endswith("."):
        raise given.wrong("resourceGroup", "resourceGroup is not valid")
    return found


def _login(given: _Keys, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields for the login: the first configured method in Kubernetes' order.

    Without any, a pod's workload identity is used.
    """
    certificate, secret = given.text("aadClientCertPath"), given.text("aadClientSecret")
    federated = given.flag("useFederatedWorkloadIdentityExtension")
    if given.flag("useManagedIdentityExtension") and not federated:
        return {"managed": True, "identity": given.text("userAssignedIdentityID")}
    pod_file = environ.get("AZURE_FEDERATED_TOKEN_FILE", "")
    if federated or (pod_file and not secret and not certificate):
        token_file = given.text("aadFederatedTokenFile") or pod_file
        if not token_file:
            raise given.wrong(
                "useFederatedWorkloadIdentityExtension",
                "aadFederatedTokenFile is missing, and AZURE_FEDERATED_TOKEN_FILE is not set",
            )
        return {
            "tenant": given.required("tenantId", _TENANT, environ.get("AZURE_TENANT_ID", "")),
            "client": given.required("aadClientId", None, environ.get("AZURE_CLIENT_ID", "")),
            "token_file": token_file,
        }
    named = {"tenant": given.required("tenantId", _TENANT), "client": given.required("aadClientId")}
    if certificate and not secret:
        password = given.text("aadClientCertPassword")
        return {**named, "certificate": certificate, "certificate_password": password}
    return {**named, "secret": given.required("aadClientSecret")}


class _Keys:
    """The keys of a configuration; as in Go, case-insensitive."""

    def __init__(self, config: ConfigText) -> None:
        self._config = config
        values = _parse(config)
        if not isinstance(values, Mapping):
            raise CloudConfigError(config.path, 0, "must be a JSON or YAML object")
        self._values = {str(key).lower(): value for key, value in values.items()}

    def text(self, key: str) -> str:
        value = self._values.get(key.lower())
        if value is None:
            return ""
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise self.wrong(key, f"{key} must be a string")
        return str(value).strip()

    def required(self, key: str, form: re.Pattern[str] | None = None, default: str = "") -> str:
        text = self.text(key) or default
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
            raise self.wrong(key, f"{key} must be a URL like https://HOST/PATH")
        return text.rstrip("/")

    def wrong(self, key: str, text: str) -> CloudConfigError:
        found = re.search(
            rf"""^[{{\s]*["']?{key}["']?\s*:""", self._config.text, re.IGNORECASE | re.MULTILINE
        )
        line = 0 if found is None else self._config.text.count("\n", 0, found.end()) + 1
        return CloudConfigError(self._config.path, line, text)


def _parse(config: ConfigText) -> Any:
    # The parsers' messages are not passed on: they may quote the text.
    if config.text.lstrip().startswith("{"):
        try:
            return json.loads(config.text)
        except json.JSONDecodeError as e:
            raise CloudConfigError(config.path, e.lineno, "this is not JSON") from None
        except RecursionError:
            raise CloudConfigError(config.path, 0, "this is not JSON") from None
    try:
        return yaml.safe_load(config.text)
    except yaml.MarkedYAMLError as e:
        line = e.problem_mark.line + 1 if e.problem_mark else 0
        raise CloudConfigError(config.path, line, "this is not YAML") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise CloudConfigError(config.path, 0, "this is not YAML") from None
