"""Types of objects that Kubernetes and KubeSphere define."""

from __future__ import annotations

from tower.kube.rest.host_api import ResourceType

NAMESPACES = ResourceType("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = ResourceType("", "v1", "nodes", "Node", namespaced=False)
PODS = ResourceType("", "v1", "pods", "Pod")
SECRETS = ResourceType("", "v1", "secrets", "Secret")
CONFIG_MAPS = ResourceType("", "v1", "configmaps", "ConfigMap")
SERVICES = ResourceType("", "v1", "services", "Service")
EVENTS = ResourceType("", "v1", "events", "Event")
ENDPOINT_SLICES = ResourceType("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
CUSTOM_RESOURCE_DEFINITIONS = ResourceType(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)

#: KubeSphere's.
CLUSTERS = ResourceType("cluster.kubesphere.io", "v1alpha1", "clusters", "Cluster", namespaced=False)

#: Resource of Tower's API in the same group, which no CRD has.
OWN_RESOURCE = "clusters/jointokens"
