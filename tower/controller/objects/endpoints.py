"""The addresses of a cluster's Service in its object."""

from __future__ import annotations

from typing import Any

from tower.controller.objects.host_cluster import ADDRESS_ANNOTATION
from tower.controller.objects.service_objects import (
    KUBERNETES_PORT,
    KUBESPHERE_PORT,
    balancer_names,
    cluster_ip,
    kubesphere_port,
)
from tower.kube.rest.host_api import Object
from tower.net.addresses import join_address

#: Fields of a cluster's connection that have the addresses of its Service.
ENDPOINTS = ("kubernetesAPIEndpoint", "kubesphereAPIEndpoint", "externalKubernetesAPIEndpoint")


def server_url(service: Object) -> str:
    """Return the URL of a cluster's API server for programs of the host."""
    return f"https://{join_address(cluster_ip(service), KUBERNETES_PORT)}"


def with_endpoints(cluster: str, access: Object, service: Object, port: int) -> Object:
    """Return the wanted fields of the cluster's object: *access*, and how users reach the cluster."""
    metadata = access["metadata"]
    address = f"{cluster}/{cluster_ip(service)}"
    metadata = {**metadata, "annotations": {**metadata["annotations"], ADDRESS_ANNOTATION: address}}
    connection: dict[str, Any] = {
        **access["spec"]["connection"],
        **endpoints(service),
        "kubernetesAPIServerPort": port,
        "kubesphereAPIServerPort": kubesphere_port(port),
    }
    return {"metadata": metadata, "spec": {"connection": connection}}


def endpoints(service: Object) -> dict[str, str | None]:
    """Return the fields `ENDPOINTS` for a Service; None: there is no such address."""
    names = balancer_names(service)
    external = f"https://{join_address(names[0], KUBERNETES_PORT)}" if names else None
    second = f"http://{join_address(cluster_ip(service), KUBESPHERE_PORT)}"
    return dict(zip(ENDPOINTS, (server_url(service), second, external), strict=True))
