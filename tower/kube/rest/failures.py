"""Texts of failures to follow objects of the host, with their cures."""

from __future__ import annotations

from tower.errors import ConfigurationError
from tower.kube.client import APIError
from tower.kube.rest.host_api import ResourceType
from tower.net.connecting import ConnectFailed

_CURES = {
    0: "check that the API server runs and that its address in the kubeconfig is right",
    401: "the credential is not accepted: renew the kubeconfig or the service account's token, as with "
    "'kubectl create token'",
    403: "grant get, list and watch of {name} to the proxy's account, as with "
    "'tower rbac host | kubectl apply -f -'",
    404: "install the CRD {name}: tower crds | kubectl apply -f -, or tower-proxy --install-crds",
}
_FORBIDDEN, _NOT_FOUND = 403, 404

_TLS_CURE = "check the certificate-authority and tls-server-name of the kubeconfig"


def is_lost_namespace(error: APIError, namespace: str) -> bool:
    """Return whether a write failed because its namespace does not exist, or is being deleted."""
    if error.code == _NOT_FOUND:
        # `reported` escapes the quotes
        return f'namespaces "{namespace}" not found' in error.message.replace("\\", "")
    return (
        error.code == _FORBIDDEN and f"namespace {namespace} because it is being terminated" in error.message
    )


def describe(error: APIError, resource: ResourceType) -> str:
    """Return one line about *error*, with the cure if it is known."""
    cause, cure = error.cause, _CURES.get(error.code, "").format(name=resource.name)
    if isinstance(cause, ConfigurationError):
        return str(cause)  # it has its own
    if isinstance(cause, ConnectFailed) and cause.kind == "tls":
        cure = _TLS_CURE
    return f"{error}; {cure}" if cure else str(error)
