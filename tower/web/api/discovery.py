"""Discovery of Tower's own API: groups, versions and resources, in the plain and the aggregated form.

kubectl reads these documents first.  Sans-IO: every function returns a JSON-able value.
"""

from __future__ import annotations

import platform
import re
from typing import Any

from attrs import frozen

import tower
from tower.kube.accept import choose

GROUP = "cluster.kubesphere.io"
VERSION = "v1alpha1"
GROUP_VERSION = f"{GROUP}/{VERSION}"

JSON = "application/json"
#: Media types of the aggregated form, newest first; kubectl 1.27 to 1.29 request v2beta1.
AGGREGATED = tuple(
    f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
    for version in ("v2", "v2beta1")
)


@frozen
class Resource:
    """One resource of the API, or a subresource (`clusters/agents`); its name is the plural in the path."""

    name: str
    singular: str
    kind: str
    verbs: tuple[str, ...]

    @property
    def parent(self) -> str:
        """The resource above a subresource, or empty."""
        return self.name.partition("/")[0] if "/" in self.name else ""


RESOURCES = (
    Resource(
        "clusters", "cluster", "Cluster", ("create", "delete", "get", "list", "patch", "update", "watch")
    ),
    Resource("clusters/status", "", "Cluster", ("get", "patch", "update")),
    Resource("clusters/agents", "", "Agent", ("delete", "get")),
    Resource("clusters/jointokens", "", "JoinToken", ("create",)),
    Resource("clusters/kubeconfigs", "", "Kubeconfig", ("create",)),
    Resource("clusters/nodes", "", "Node", ("get",)),
    Resource("clusters/hostkeys", "", "HostKey", ("delete", "get")),
    Resource("kubeconfigs", "kubeconfig", "Kubeconfig", ("create",)),
    Resource("credentials", "credential", "Credential", ("delete", "get", "list")),
    Resource("rotations", "rotation", "Rotation", ("create", "delete", "get", "list")),
)


def git_version(release: str = tower.__version__) -> str:
    """Return a Python *release* number as the semantic version that Kubernetes clients parse."""
    match = re.fullmatch(r"(\d+\.\d+\.\d+)(?:\.?(a|b|rc|dev)(\d+))?(?:\+.*)?", release)
    if match is None:
        raise ValueError(f"{release!r} is not a release number")
    number, stage, count = match.groups()
    return f"v{number}" + (f"-{stage}.{count}" if stage else "")


def version_info() -> dict[str, str]:
    """Return the answer to `/version`."""
    version = git_version()
    major, minor, _ = version[1:].split(".", 2)
    return {
        "major": major,
        "minor": minor,
        "gitVersion": version,
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def api_versions(accept: str) -> tuple[str, dict[str, Any]]:
    """Return the media type and the answer to `/api`: there is no core group."""
    media = _negotiate(accept)
    if media != JSON:
        return media, _aggregated(media, [])
    return media, {"kind": "APIVersions", "versions": [], "serverAddressByClientCIDRs": []}


def api_groups(accept: str) -> tuple[str, dict[str, Any]]:
    """Return the media type and the answer to `/apis`."""
    media = _negotiate(accept)
    if media != JSON:
        return media, _aggregated(media, [_aggregated_group()])
    return media, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def api_group() -> dict[str, Any]:
    """Return the answer to `/apis/<group>`."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def api_resources() -> dict[str, Any]:
    """Return the answer to `/apis/<group>/<version>`."""
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": [
            {
                "name": resource.name,
                "singularName": resource.singular,
                "namespaced": False,
                "kind": resource.kind,
                "verbs": list(resource.verbs),
            }
            for resource in RESOURCES
        ],
    }


def _negotiate(accept: str) -> str:
    return choose(accept, [JSON, *AGGREGATED]) or JSON


def _group() -> dict[str, Any]:
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def _aggregated(media: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    version = "v2beta1" if "v=v2beta1" in media else "v2"
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_group() -> dict[str, Any]:
    resources = []
    for resource in RESOURCES:
        if resource.parent:
            continue
        entry: dict[str, Any] = {
            "resource": resource.name,
            "responseKind": _kind(resource),
            "scope": "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
        }
        below = [
            {"subresource": sub.name.partition("/")[2], "responseKind": _kind(sub), "verbs": list(sub.verbs)}
            for sub in RESOURCES
            if sub.parent == resource.name
        ]
        if below:
            entry["subresources"] = below
        resources.append(entry)
    return {
        "metadata": {"name": GROUP, "creationTimestamp": None},
        "versions": [{"version": VERSION, "resources": resources, "freshness": "Current"}],
    }


def _kind(resource: Resource) -> dict[str, str]:
    return {"group": GROUP, "version": VERSION, "kind": resource.kind}
