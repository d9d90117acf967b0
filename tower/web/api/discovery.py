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
from tower.web.api.calls.media_types import JSON

GROUP = "cluster.kubesphere.io"
VERSION = "v1alpha1"

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
    is_namespaced: bool = False
    short: tuple[str, ...] = ()

    @property
    def parent(self) -> str:
        """The resource above a subresource, or empty."""
        return self.name.partition("/")[0] if "/" in self.name else ""


@frozen
class GroupVersion:
    """A version of an API group with its resources; the core group has an empty name."""

    group: str
    version: str
    resources: tuple[Resource, ...]

    @property
    def name(self) -> str:
        """Its name in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def kind(self, resource: Resource) -> dict[str, str]:
        """Return the kind of *resource*."""
        return {"group": self.group, "version": self.version, "kind": resource.kind}


RESOURCES = (
    Resource(
        "clusters", "cluster", "Cluster", ("create", "delete", "get", "list", "patch", "update", "watch")
    ),
    Resource("clusters/status", "", "Cluster", ("get", "patch", "update")),
    Resource("clusters/agents", "", "Agent", ("delete", "get")),
    Resource("clusters/jointokens", "", "JoinToken", ("create",)),
    Resource("clusters/kubeconfigs", "", "Kubeconfig", ("create",)),
    Resource("clusters/trustedcallers", "", "Kubeconfig", ("create",)),
    Resource("clusters/nodes", "", "Node", ("get",)),
    Resource("clusters/hostkeys", "", "HostKey", ("delete", "get")),
    Resource("agents", "agent", "Agent", ("list",)),
    Resource("jointokens", "jointoken", "JoinToken", ("create", "delete", "get", "list")),
    Resource("kubeconfigs", "kubeconfig", "Kubeconfig", ("create",)),
    Resource("credentials", "credential", "Credential", ("delete", "get", "list")),
    Resource("nodes", "node", "Node", ("list",)),
    Resource("hostkeys", "hostkey", "HostKey", ("list",)),
    Resource("rotations", "rotation", "Rotation", ("create", "delete", "get", "list")),
    Resource(
        "accesspolicies",
        "accesspolicy",
        "AccessPolicy",
        ("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Resource("loginsessions", "loginsession", "LoginSession", ("delete", "get", "list")),
    Resource("accessreviews", "accessreview", "AccessReview", ("create",)),
)
_EVENTS = (
    Resource(
        "events",
        "event",
        "Event",
        ("create", "get", "list", "patch", "watch"),
        is_namespaced=True,
        short=("ev",),
    ),
)
_SELF_REVIEW = Resource("selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", ("create",))

TOWER = GroupVersion(GROUP, VERSION, RESOURCES)
CORE = GroupVersion("", "v1", _EVENTS)
EVENTS = GroupVersion("events.k8s.io", "v1", _EVENTS)
_ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
RBAC = GroupVersion(
    "rbac.authorization.k8s.io",
    "v1",
    (
        Resource("clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", _ALL_VERBS),
        Resource("clusterroles", "clusterrole", "ClusterRole", _ALL_VERBS),
        Resource("rolebindings", "rolebinding", "RoleBinding", _ALL_VERBS, is_namespaced=True),
        Resource("roles", "role", "Role", _ALL_VERBS, is_namespaced=True),
    ),
)
AUTHENTICATION = "authentication.k8s.io"
AUTHORIZATION = "authorization.k8s.io"
GROUP_VERSIONS = (
    TOWER,
    CORE,
    EVENTS,
    GroupVersion(AUTHENTICATION, "v1", (_SELF_REVIEW,)),
    GroupVersion(AUTHENTICATION, "v1beta1", (_SELF_REVIEW,)),
    GroupVersion(
        AUTHORIZATION,
        "v1",
        (
            Resource(
                "selfsubjectaccessreviews", "selfsubjectaccessreview", "SelfSubjectAccessReview", ("create",)
            ),
            Resource(
                "selfsubjectrulesreviews", "selfsubjectrulesreview", "SelfSubjectRulesReview", ("create",)
            ),
        ),
    ),
    RBAC,
)


def kind_of(name: str) -> str:
    """Return the kind of a resource or subresource, such as ``clusters/agents``; *name* if unknown."""
    return next(
        (one.kind for version in GROUP_VERSIONS for one in version.resources if one.name == name), name
    )


def group_version(group: str, version: str) -> GroupVersion | None:
    """Return a version of a group, or None."""
    return next((each for each in GROUP_VERSIONS if (each.group, each.version) == (group, version)), None)


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
        "compiler": f"{platform.python_implementation()} ({tower.BUILD})",
        "platform": f"{platform.system().lower()}/{platform.machine()}",
    }


def api_versions(accept: str) -> tuple[str, dict[str, Any]]:
    """Return the media type and the answer to `/api`: the core group, which has events only."""
    media = _negotiate(accept)
    if media != JSON:
        return media, _aggregated(media, [""])
    return media, {"kind": "APIVersions", "versions": [CORE.version], "serverAddressByClientCIDRs": []}


def api_groups(accept: str) -> tuple[str, dict[str, Any]]:
    """Return the media type and the answer to `/apis`."""
    media = _negotiate(accept)
    names = [name for name in dict.fromkeys(each.group for each in GROUP_VERSIONS) if name]
    if media != JSON:
        return media, _aggregated(media, names)
    return media, {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(name) for name in names]}


def api_group(name: str) -> dict[str, Any] | None:
    """Return the answer to `/apis/<group>`, or None."""
    if not name or not any(each.group == name for each in GROUP_VERSIONS):
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name)}


def api_resources(found: GroupVersion = TOWER) -> dict[str, Any]:
    """Return the answer to `/apis/<group>/<version>`."""
    resources = []
    for resource in found.resources:
        shown: dict[str, Any] = {
            "name": resource.name,
            "singularName": resource.singular,
            "namespaced": resource.is_namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short:
            shown["shortNames"] = list(resource.short)
        resources.append(shown)
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": found.name,
        "resources": resources,
    }


def _negotiate(accept: str) -> str:
    return choose(accept, [JSON, *AGGREGATED]) or JSON


def _group(name: str) -> dict[str, Any]:
    versions = [
        {"groupVersion": each.name, "version": each.version} for each in GROUP_VERSIONS if each.group == name
    ]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def _aggregated(media: str, names: list[str]) -> dict[str, Any]:
    version = "v2beta1" if "v=v2beta1" in media else "v2"
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": name, "creationTimestamp": None},
                "versions": [_aggregated_version(each) for each in GROUP_VERSIONS if each.group == name],
            }
            for name in names
        ],
    }


def _aggregated_version(found: GroupVersion) -> dict[str, Any]:
    resources = []
    for resource in found.resources:
        if resource.parent:
            continue
        entry: dict[str, Any] = {
            "resource": resource.name,
            "responseKind": found.kind(resource),
            "scope": "Namespaced" if resource.is_namespaced else "Cluster",
            "singularResource": resource.singular,
            "verbs": list(resource.verbs),
        }
        if resource.short:
            entry["shortNames"] = list(resource.short)
        below = [
            {
                "subresource": sub.name.partition("/")[2],
                "responseKind": found.kind(sub),
                "verbs": list(sub.verbs),
            }
            for sub in found.resources
            if sub.parent == resource.name
        ]
        if below:
            entry["subresources"] = below
        resources.append(entry)
    return {"version": found.version, "resources": resources, "freshness": "Current"}
