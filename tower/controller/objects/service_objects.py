"""The Service of a cluster, and the EndpointSlices that point to a proxy outside of the host cluster.

Names, labels and ports are those of KubeSphere Tower, whose Services are adopted.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from tower.controller.objects.differences import exactly
from tower.controller.objects.host_cluster import BALANCER_ANNOTATION, PREFIX, HostCluster
from tower.kube.rest.host_api import Object
from tower.web.ports.kubesphere_port import OFFSET

#: Prefix of the Services' names.
NAME_PREFIX = "mc-"

#: Label of all objects that belong to a cluster, with its name.
CLUSTER_LABEL = PREFIX + "cluster"

#: Annotation with the names of a Service's annotations that came from the cluster's object.
OWN_ANNOTATIONS = PREFIX + "load-balancer-annotations"

#: Ports of the Services.
KUBERNETES_PORT = 6443
KUBESPHERE_PORT = 80

#: Selector of KubeSphere Tower's Services; the leader's label is Tower's.
LEADER_SELECTOR: Mapping[str, str] = {
    "app.kubernetes.io/name": "tower",
    "app": "tower",
    PREFIX + "leader": "true",
}

#: Names of a Service that its certificate has, too.
SERVICE_NAMES = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")

#: Types of addresses, with the end of their EndpointSlices' names.
_FAMILIES = {"IPv4": "-ipv4", "IPv6": "-ipv6"}

#: Label with the program that writes an EndpointSlice.
_MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
_MANAGER = "tower-proxy"

#: Writes the EndpointSlices of Services with a selector, and leaves them if the selector goes.
_SELECTOR_MANAGER = "endpointslice-controller.k8s.io"


@frozen
class HostSettings:
    """Settings of the controller.

    :ivar namespace: of Services and Secrets.
    :ivar selector: labels of the proxy's pod; None: the proxy is outside of the host cluster.
    :ivar addresses: IP addresses of a proxy outside.
    :ivar is_compatible: kubeconfigs and tokens are in the Cluster objects, for KubeSphere's console.
    """

    namespace: str = "kubesphere-system"
    selector: Mapping[str, str] | None = field(default=LEADER_SELECTOR)
    addresses: Sequence[str] = ()
    is_compatible: bool = False


class InvalidAnnotation(ValueError):
    """The annotation for the load balancer's Service is not a JSON object of strings."""


def service_name(cluster: str) -> str:
    """Return the name of a cluster's Service, and of its Secret."""
    return NAME_PREFIX + cluster


def kubesphere_port(port: int) -> int | None:
    """Return the port for KubeSphere of the cluster with *port*; None: no port is that high."""
    return port + OFFSET if port + OFFSET < 1 << 16 else None


def cluster_of(service: str) -> str:
    """Return the name of the cluster of a Service."""
    return service.removeprefix(NAME_PREFIX)


def slice_names(cluster: str) -> list[str]:
    """Return the names of the EndpointSlices that a cluster's Service may have."""
    return [service_name(cluster) + suffix for suffix in _FAMILIES.values()]


def cluster_of_slice(name: str) -> str:
    """Return the name of the cluster of an EndpointSlice."""
    return cluster_of(name.rpartition("-")[0])


def is_of_selector(obj: Object) -> bool:
    """Return whether an EndpointSlice belongs to a Service with a selector."""
    return bool(obj["metadata"].get("labels", {}).get(_MANAGED_BY) == _SELECTOR_MANAGER)


def balancer_annotations(cluster: HostCluster) -> dict[str, str]:
    """Return the annotations for the load balancer's Service.

    :raise InvalidAnnotation: with the cure.
    """
    text = cluster.annotations.get(BALANCER_ANNOTATION, "")
    if not text.strip():
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise InvalidAnnotation(
            f"annotation {BALANCER_ANNOTATION} is not a JSON object with string values, such as "
            '{"service.beta.kubernetes.io/aws-load-balancer-type": "nlb"}: correct it'
        )
    return value


def wanted_service(
    cluster: HostCluster, port: int, settings: HostSettings, current: Mapping[str, Any] | None = None
) -> Object:
    """Return the Service of a cluster; a field that must go is None.

    :param port: the cluster's own.
    :param current: the Service that exists, if any; other annotations, such as a cloud's, stay.
    """
    metadata: Mapping[str, Any] = (current or {}).get("metadata") or {}
    name = service_name(cluster.name)
    annotations: dict[str, str | None] = {}
    before = (metadata.get("annotations") or {}).get(OWN_ANNOTATIONS, "")
    annotations |= dict.fromkeys(filter(None, before.split(",")))
    if before:
        annotations[OWN_ANNOTATIONS] = None
    if cluster.is_exported:
        try:
            own = balancer_annotations(cluster)
        except InvalidAnnotation:
            own = {}  # the condition reports it
        annotations |= own
        if own:
            annotations[OWN_ANNOTATIONS] = ",".join(sorted(own))
    selector = (current or {}).get("spec", {}).get("selector")
    spec: dict[str, Any] = {
        "type": "LoadBalancer" if cluster.is_exported else "ClusterIP",
        "ports": [
            {"name": name, "protocol": "TCP", "port": number, "targetPort": target}
            for (name, target), number in zip(
                _targets(port), (KUBERNETES_PORT, KUBESPHERE_PORT), strict=False
            )
        ],
        "selector": exactly(selector, settings.selector or {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {**_metadata(cluster, name, settings), "annotations": annotations},
        "spec": spec,
    }


def wanted_slices(cluster: HostCluster, port: int, settings: HostSettings) -> list[Object]:
    """Return the EndpointSlices of a cluster's Service, one for each family; none if it selects pods."""
    if settings.selector is not None:
        return []
    families: dict[str, list[str]] = {}
    for address in settings.addresses:
        families.setdefault(f"IPv{ipaddress.ip_address(address).version}", []).append(address)
    service = service_name(cluster.name)
    slices = []
    for family, addresses in families.items():
        metadata = _metadata(cluster, service + _FAMILIES[family], settings)
        metadata["labels"] |= {
            "kubernetes.io/service-name": service,
            _MANAGED_BY: _MANAGER,
        }
        slices.append(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": metadata,
                "addressType": family,
                "endpoints": [{"addresses": addresses, "conditions": {"ready": True}}],
                "ports": [
                    {"name": name, "port": target, "protocol": "TCP"} for name, target in _targets(port)
                ],
            }
        )
    return slices


def cluster_ip(service: Mapping[str, Any] | None) -> str:
    """Return the ClusterIP of a Service; empty without one."""
    address = (service or {}).get("spec", {}).get("clusterIP") or ""
    return "" if address == "None" else str(address)


def balancer_names(service: Mapping[str, Any] | None) -> list[str]:
    """Return the addresses and host names of a Service's load balancer, the preferred one first."""
    if service is None or service.get("spec", {}).get("type") != "LoadBalancer":
        return []
    ingress = ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    names = [str(each.get("ip") or each.get("hostname") or "") for each in ingress]
    more = [str(each["hostname"]) for each in ingress if each.get("ip") and each.get("hostname")]
    return list(dict.fromkeys(filter(None, [*names, *more])))


def certificate_names(service: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names under which clients reach a Service."""
    address = cluster_ip(service)
    return (*((address,) if address else ()), *balancer_names(service))


def _metadata(cluster: HostCluster, name: str, settings: HostSettings) -> dict[str, Any]:
    labels = {"app": service_name(cluster.name), "app.kubernetes.io/name": service_name(cluster.name)}
    return {
        "name": name,
        "namespace": settings.namespace,
        "labels": {**labels, CLUSTER_LABEL: cluster.name},
        "ownerReferences": [cluster.owner],
    }


def _targets(port: int) -> list[tuple[str, int]]:
    """Return names and numbers of a cluster's ports on the proxy."""
    second = kubesphere_port(port)
    return [("kubernetes", port)] + ([("kubesphere", second)] if second is not None else [])
