"""The default roles and bindings of Tower's own API: those of kube-apiserver 1.36, and others for Tower.

At each start, missing objects, rules and subjects are added, unless an object has the annotation
``rbac.authorization.kubernetes.io/autoupdate: "false"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from attrs import evolve

from tower.clusters.policies.rbac_object import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    OWN_PREFIX,
    RbacKind,
    RbacObject,
)
from tower.clusters.policies.rbac_objects import RbacObjects
from tower.kube.access.held_rights import HeldRights
from tower.kube.access.rbac import GROUP, Rule

AUTO_UPDATE = "rbac.authorization.kubernetes.io/autoupdate"

#: The annotation of bindings for clusters and for Tower's own API.
_EVERYWHERE = {"tower.kubesphere.io/clusters": "@tower,*"}

_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"
_LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}

#: Verbs, groups and resources, separated by blanks; `core` stands for the group without a name.
_Rule: TypeAlias = tuple[str, str, str]

_READ = "get list watch"
_WRITE = "create delete deletecollection patch update"

_ADMIN = (
    ("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    (f"{_WRITE} {_READ}", "rbac.authorization.k8s.io", "rolebindings roles"),
)
_EDIT = (
    (_READ, "core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy"),
    ("impersonate", "core", "serviceaccounts"),
    (_WRITE, "core", "pods pods/attach pods/exec pods/portforward pods/proxy"),
    ("create", "core", "pods/eviction"),
    (
        _WRITE,
        "core",
        (
            "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale "
            "secrets serviceaccounts services services/proxy"
        ),
    ),
    ("create", "core", "serviceaccounts/token"),
    (_WRITE, "core events.k8s.io", "events"),
    (
        _WRITE,
        "apps",
        (
            "daemonsets deployments deployments/rollback deployments/scale replicasets "
            "replicasets/scale statefulsets statefulsets/scale"
        ),
    ),
    (_WRITE, "autoscaling", "horizontalpodautoscalers"),
    (_WRITE, "batch", "cronjobs jobs"),
    (
        _WRITE,
        "extensions",
        (
            "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies "
            "replicasets replicasets/scale replicationcontrollers/scale"
        ),
    ),
    (_WRITE, "policy", "poddisruptionbudgets"),
    (_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    (f"{_WRITE} {_READ}", "coordination.k8s.io", "leases"),
    (_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
)
_VIEW = (
    (
        _READ,
        "core",
        (
            "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods "
            "replicationcontrollers replicationcontrollers/scale serviceaccounts services "
            "services/status"
        ),
    ),
    (
        _READ,
        "core",
        (
            "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status "
            "resourcequotas resourcequotas/status"
        ),
    ),
    (_READ, "core", "namespaces"),
    (_READ, "core events.k8s.io", "events"),
    (_READ, "discovery.k8s.io", "endpointslices"),
    (
        _READ,
        "apps",
        (
            "controllerrevisions daemonsets daemonsets/status deployments deployments/scale "
            "deployments/status replicasets replicasets/scale replicasets/status statefulsets "
            "statefulsets/scale statefulsets/status"
        ),
    ),
    (_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    (_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    (
        _READ,
        "extensions",
        (
            "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses "
            "ingresses/status networkpolicies replicasets replicasets/scale replicasets/status "
            "replicationcontrollers/scale"
        ),
    ),
    (_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    (_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    (_READ, "resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates"),
)
_BASIC = (
    ("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
    ("create", "authentication.k8s.io", "selfsubjectreviews"),
)

_PUBLIC = ("/healthz", "/livez", "/readyz", "/version", "/version/")
_DISCOVERY = (
    *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*"),
    *("/readyz", "/version", "/version/"),
)
_MONITORING = (
    *("/flagz", "/healthz", "/healthz/*", "/livez", "/livez/*", "/metrics", "/metrics/slis"),
    *("/readyz", "/readyz/*", "/statusz"),
)

# For Tower itself.
_TOWER = "cluster.kubesphere.io"
_VIEWER = (
    (_READ, _TOWER, "clusters clusters/status clusters/agents clusters/nodes agents nodes rotations"),
    (_READ, "core events.k8s.io", "events"),
)
_AUDITOR = (
    *_VIEWER,
    (_READ, _TOWER, "accesspolicies clusters/hostkeys credentials hostkeys jointokens loginsessions"),
    ("create", _TOWER, "accessreviews"),
    (_READ, GROUP, "clusterroles clusterrolebindings roles rolebindings"),
)
_CLUSTER_ADMIN = (
    *_VIEWER,
    (f"{_WRITE} {_READ}", _TOWER, "clusters clusters/status clusters/agents clusters/hostkeys"),
    (f"{_WRITE} {_READ}", _TOWER, "hostkeys jointokens"),
    ("create", _TOWER, "clusters/jointokens clusters/kubeconfigs clusters/trustedcallers"),
    ("delete get list", _TOWER, "credentials"),
    ("create patch", "core events.k8s.io", "events"),
)


async def ensure_default_roles(objects: RbacObjects) -> None:
    """Add what is missing of the default objects."""
    for wanted in default_objects(objects):
        of_kind = objects.of(wanted.kind)
        found = of_kind.get(wanted.name)
        if found is None:
            await of_kind.add(wanted)
        elif found.annotations.get(AUTO_UPDATE) != "false":
            body = _completed(found, wanted)
            if body == found.body:
                continue
            if body.get("roleRef") != found.body.get("roleRef"):
                await of_kind.remove(wanted.name, lambda _: None)
                await of_kind.add(wanted)
            else:
                await of_kind.change(wanted.name, lambda old, body=body: evolve(old, body=body))  # type: ignore[misc]


def _completed(found: RbacObject, wanted: RbacObject) -> Mapping[str, Any]:
    """Return the body of *found* with what only *wanted* has."""
    if wanted.kind.is_binding:
        if found.body.get("roleRef") != wanted.body["roleRef"]:
            return wanted.body
        subjects = list(found.body.get("subjects") or ())
        return {
            **found.body,
            "subjects": [*subjects, *(s for s in wanted.body["subjects"] if s not in subjects)],
        }
    if "aggregationRule" in wanted.body:
        return wanted.body if "aggregationRule" not in found.body else found.body
    own = HeldRights.of(map(Rule.of, found.body.get("rules") or ()))
    missing = own.missing(map(Rule.of, wanted.body["rules"]))
    return {**found.body, "rules": [*found.body.get("rules", ()), *(rule.as_object() for rule in missing)]}


def default_objects(objects: RbacObjects) -> Iterator[RbacObject]:
    """Yield the default objects."""

    def role(
        name: str,
        rules: Iterable[_Rule] = (),
        urls: Iterable[str] = (),
        *,
        into: str = "",
        of: str = "",
    ) -> RbacObject:
        body: dict[str, Any] = {"rules": [*map(_rule, rules), *_url_rules(urls)]}
        if of:
            selector = {"matchLabels": {f"{_AGGREGATE}{of}": "true"}}
            body = {"aggregationRule": {"clusterRoleSelectors": [selector]}}
        labels = {f"{_AGGREGATE}{into}": "true"} if into else {}
        return _default(objects, CLUSTER_ROLE, name, body, labels, {})

    def binding(name: str, *groups: str) -> RbacObject:
        body = {
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in groups],
        }
        return _default(objects, CLUSTER_ROLE_BINDING, name, body, {}, _EVERYWHERE)

    everything = ("*", "*", "*")
    yield role("cluster-admin", [everything], ["*"])
    yield role("admin", of="admin")
    yield role("edit", of="edit", into="admin")
    yield role("view", of="view", into="edit")
    yield role("system:aggregate-to-admin", _ADMIN, into="admin")
    yield role("system:aggregate-to-edit", _EDIT, into="edit")
    yield role("system:aggregate-to-view", _VIEW, into="view")
    yield role("system:basic-user", _BASIC)
    yield role("system:discovery", urls=_DISCOVERY)
    yield role("system:monitoring", [("get", "core", "nodes/metrics")], _MONITORING)
    yield role("system:public-info-viewer", urls=_PUBLIC)
    yield role(f"{OWN_PREFIX}viewer", _VIEWER, ["/metrics"])
    yield role(f"{OWN_PREFIX}auditor", _AUDITOR, ["/metrics"])
    yield role(f"{OWN_PREFIX}cluster-admin", _CLUSTER_ADMIN, ["/metrics"])
    yield role(f"{OWN_PREFIX}admin", [everything], ["*"])
    yield binding("system:basic-user", "system:authenticated")
    yield binding("system:discovery", "system:authenticated")
    yield binding("system:public-info-viewer", "system:authenticated", "system:unauthenticated")


def _rule(rule: _Rule) -> dict[str, Any]:
    verbs, groups, resources = (part.split() for part in rule)
    return {
        "verbs": verbs,
        "apiGroups": ["" if group == "core" else group for group in groups],
        "resources": resources,
    }


def _url_rules(urls: Iterable[str]) -> list[dict[str, Any]]:
    paths = list(urls)
    return [{"verbs": ["*"] if paths == ["*"] else ["get"], "nonResourceURLs": paths}] if paths else []


def _default(
    objects: RbacObjects,
    kind: RbacKind,
    name: str,
    body: Mapping[str, Any],
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
) -> RbacObject:
    return evolve(
        objects.new(kind, name, body),
        labels={**_LABELS, **labels},
        annotations={AUTO_UPDATE: "true", **annotations},
    )
