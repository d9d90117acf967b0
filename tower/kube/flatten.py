"""Self-contained kubeconfigs, without references to files."""

from __future__ import annotations

import base64
import json
from typing import Any

from tower.errors import ConfigurationError
from tower.kube.connection_settings import bearer_token
from tower.kube.kubeconfig import KubeAccess


def self_contained(access: KubeAccess) -> bytes:
    """Return *access* as a kubeconfig in JSON, with the current content of its files.

    :raise ConfigurationError: the token file cannot be read.
    """
    cluster: dict[str, Any] = {"server": access.server}
    user: dict[str, Any] = {}
    if access.ca_data is not None:
        cluster["certificate-authority-data"] = _base64(access.ca_data)
    if access.insecure:
        cluster["insecure-skip-tls-verify"] = True
    if access.tls_server_name is not None:
        cluster["tls-server-name"] = access.tls_server_name
    if access.proxy_url is not None:
        cluster["proxy-url"] = access.proxy_url
    if access.client_certificate is not None and access.client_key is not None:
        user["client-certificate-data"] = _base64(access.client_certificate)
        user["client-key-data"] = _base64(access.client_key)
    token = bearer_token(access)
    if access.token_file is not None and not token:
        raise ConfigurationError(f"the token file {access.token_file} is empty")
    if token:
        user["token"] = token
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "member", "cluster": cluster}],
        "users": [{"name": "member", "user": user}],
        "contexts": [{"name": "member", "context": {"cluster": "member", "user": "member"}}],
        "current-context": "member",
    }
    return json.dumps(content).encode("ascii")


def warnings_of(access: KubeAccess) -> list[str]:
    """Return warnings about *access*, for the user who hands it to the proxy."""
    found = []
    if access.insecure:
        found.append("insecure-skip-tls-verify: the API server can be impersonated by a man in the middle")
    if not (access.token or access.token_file or access.client_certificate):
        found.append("the kubeconfig has no credential: the API server will deny nearly all requests")
    return found


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
