"""Texts of failures to follow objects of the host, with their cures."""

from __future__ import annotations

from tower.kube.client import APIError
from tower.kube.rest.host_api import ResourceType

_CURES = {
    0: "check that the API server runs and that its address in the kubeconfig is right",
    401: "the credential is not accepted: renew the kubeconfig or the service account's token",
    403: "grant get, list and watch of {name} to the proxy's user or service account",
    404: "install the CRD {name}: kubectl apply -f deploy/crds",
}


def describe(error: APIError, resource: ResourceType) -> str:
    """Return one line about *error*, with the cure if it is known."""
    cure = _CURES.get(error.code, "").format(name=resource.name)
    return f"{error}; {cure}" if cure else str(error)
