"""Rights of users in a real API server, and requests that they allow or not, for `test_authorizers`."""

from __future__ import annotations

import random
from typing import Any

from attrs import frozen

RBAC = "rbac.authorization.k8s.io"
ABAC = "abac.authorization.kubernetes.io/v1beta1"
ROLES = f"/apis/{RBAC}/v1"
NAMESPACES = ("a", "b")

#: Lines of the ABAC file.
POLICIES: tuple[dict[str, Any] | str, ...] = (
    "# the users of the old version",
    "",
    {"user": "old"},
    {"user": "old-pods", "resource": "pods"},
    {"user": "old-reader", "readonly": True, "namespace": "a"},
    {"group": "old-group", "namespace": "b", "resource": "secrets"},
    {"user": "*", "namespace": "for-all", "resource": "configmaps"},
    "user: old-yaml",
    {"apiVersion": ABAC.replace("v1beta1", "v0"), "kind": "Policy", "user": "old-versioned"},
    {"user": "abac-none"},
    {"user": "abac-pods", "namespace": "a", "resource": "pods"},
    {"user": "abac-any", "namespace": "*", "resource": "*", "apiGroup": "*"},
    {"user": "abac-apps", "namespace": "*", "resource": "deployments", "apiGroup": "apps"},
    {"user": "abac-reader", "namespace": "*", "resource": "*", "apiGroup": "*", "readonly": True},
    {"user": "abac-cluster", "resource": "nodes"},
    {"group": "abac-group", "namespace": "a", "resource": "*"},
    {"user": "abac-both", "group": "abac-group", "namespace": "b", "resource": "*"},
    {"user": "abac-paths", "nonResourcePath": "/metrics/*"},
    {"user": "abac-stars", "nonResourcePath": "/logs/**"},
    {"user": "abac-exact", "nonResourcePath": "/metrics"},
    {"user": "abac-all-paths", "nonResourcePath": "*", "readonly": True},
    {"user": "*", "nonResourcePath": "/for-users"},
    {"group": "*", "nonResourcePath": "/for-groups"},
)


def policy_lines() -> str:
    """Return the ABAC file."""
    lines = []
    for each in POLICIES:
        if isinstance(each, str):
            lines.append(each)
        elif str(each.get("user", each.get("group"))).startswith("old") or "for-all" in each.values():
            lines.append(_json(each))
        else:
            lines.append(_json({"apiVersion": ABAC, "kind": "Policy", "spec": each}))
    return "\n".join(lines) + "\n"


def _json(value: dict[str, Any]) -> str:
    return str(value).replace("'", '"').replace("True", "true")


@frozen
class Case:
    """A request; with a path it concerns no resource."""

    user: str
    verb: str
    resource: str = ""
    namespace: str = ""
    name: str = ""
    group: str = ""
    subresource: str = ""
    groups: tuple[str, ...] = ()
    path: str = ""

    def spec(self) -> dict[str, Any]:
        """Return the specification of a SubjectAccessReview."""
        spec: dict[str, Any] = {"user": self.user, "groups": list(self.groups)}
        if self.path:
            return spec | {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        fields = ("verb", "group", "resource", "subresource", "namespace", "name")
        attributes = {key: getattr(self, key) for key in fields if getattr(self, key)}
        return spec | {"resourceAttributes": {"version": "v1", **attributes}}


SERVICE_ACCOUNT = "system:serviceaccount:a:robot"
USERS = ("system:authenticated",)

#: Cases for ABAC first, then for RBAC.
CASES = (
    Case("stranger", "get", "pods", "a", "p"),
    Case("stranger", "get", path="/healthz"),
    Case("old", "delete", "nodes", name="n"),
    Case("old", "post", path="/anything"),
    Case("old-pods", "delete", "pods", "a", "p"),
    Case("old-pods", "delete", "pods", "a", "p", subresource="exec"),
    Case("old-pods", "delete", "secrets", "a", "p"),
    Case("old-pods", "get", path="/x"),
    Case("old-reader", "list", "secrets", "a"),
    Case("old-reader", "list", "secrets", "b"),
    Case("old-reader", "delete", "secrets", "a"),
    Case("old-yaml", "delete", "secrets", "a"),
    Case("old-versioned", "delete", "secrets", "a"),
    Case("x", "get", "secrets", "b", groups=("old-group",)),
    Case("x", "get", "secrets", "a", groups=("old-group",)),
    Case("x", "get", "configmaps", "for-all", groups=USERS),
    Case("x", "get", "configmaps", "for-all"),
    Case("abac-none", "get", "pods", "a", "p"),
    Case("abac-none", "get", path="/"),
    Case("abac-pods", "get", "pods", "a", "p"),
    Case("abac-pods", "create", "pods", "a", "p", subresource="eviction"),
    Case("abac-pods", "get", "pods", "b", "p"),
    Case("abac-pods", "get", "pods"),
    Case("abac-pods", "get", "pods", "a", group="metrics.k8s.io"),
    Case("abac-any", "escalate", "anything", "b", group="g.example"),
    Case("abac-any", "get", path="/healthz"),
    Case("abac-apps", "get", "deployments", "a", group="apps"),
    Case("abac-apps", "get", "deployments", "a", group="extensions"),
    Case("abac-apps", "get", "deployments", "a"),
    Case("abac-reader", "watch", "pods", "a"),
    Case("abac-reader", "create", "pods", "a"),
    Case("abac-reader", "deletecollection", "pods", "a"),
    Case("abac-reader", "", "pods", "a"),
    Case("abac-cluster", "delete", "nodes", name="n"),
    Case("abac-cluster", "delete", "nodes", "a", name="n"),
    Case("x", "delete", "pods", "a", groups=("abac-group",)),
    Case("x", "delete", "pods", "b", groups=("abac-group",)),
    Case("abac-both", "delete", "pods", "b", groups=("other", "abac-group")),
    Case("abac-both", "delete", "pods", "b"),
    Case("abac-paths", "get", path="/metrics/"),
    Case("abac-paths", "get", path="/metrics"),
    Case("abac-paths", "post", path="/metrics/x/y"),
    Case("abac-stars", "get", path="/logs/x"),
    Case("abac-stars", "get", path="/log"),
    Case("abac-exact", "get", path="/metrics"),
    Case("abac-exact", "get", path="/metrics/"),
    Case("abac-all-paths", "get", path="/any/thing"),
    Case("abac-all-paths", "post", path="/any/thing"),
    Case("abac-all-paths", "get", "pods", "a"),
    Case("x", "get", path="/for-users", groups=USERS),
    Case("x", "get", path="/for-users"),
    Case("x", "get", path="/for-groups", groups=("any",)),
    # RBAC
    Case("root", "get", "secrets", "a", groups=("system:masters",)),
    Case("admin", "delete", "nodes", name="n", groups=("tops",)),
    Case("admin", "put", path="/x", groups=("tops",)),
    Case("viewer", "get", "pods", "a", "p"),
    Case("viewer", "get", "pods", "a", "p", subresource="log"),
    Case("viewer", "get", "secrets", "a", "p"),
    Case("viewer", "get", "pods", "b", "p"),
    Case("viewer", "list", "pods"),
    Case("named", "get", "secrets", "a", "one"),
    Case("named", "get", "secrets", "a", "two"),
    Case("named", "list", "secrets", "a"),
    Case("named", "list", "secrets", "a", "one"),
    Case("logger", "get", "pods", "b", "p", subresource="log"),
    Case("logger", "get", "things", "b", "p", group="g.example", subresource="log"),
    Case("logger", "get", "pods", "b", "p"),
    Case("logger", "get", "pods", "b", "p", subresource="exec"),
    Case("scaler", "update", "deployments", "a", "d", group="apps", subresource="scale"),
    Case("scaler", "update", "deployments", "a", "d", group="apps"),
    Case("scaler", "update", "deployments", "a", "d", subresource="scale"),
    Case("pather", "get", path="/logs/a"),
    Case("pather", "get", path="/logs"),
    Case("pather", "get", path="/exact"),
    Case("pather", "get", path="/exact/more"),
    Case("pather", "post", path="/exact"),
    Case("dangling", "get", "pods", "a"),
    Case("dangling", "get", "pods", "b"),
    Case("dangling", "get", "configmaps", "a"),
    Case(SERVICE_ACCOUNT, "get", "pods", "a"),
    Case(SERVICE_ACCOUNT, "get", "services", "a"),
    Case(SERVICE_ACCOUNT, "get", "services", "b"),
    Case("system:serviceaccount:b:robot", "get", "services", "b"),
    Case("robot", "get", "services", "a"),
    Case("User", "get", "pods", "a", groups=("viewer",)),
    Case("several", "get", "pods", "a", groups=("g2", "g1")),
    # Webhook
    Case("hook-allow", "get", "pods", "a"),
    Case("hook-deny", "get", path="/x"),
    Case("hook-deny", "get", path="/for-users", groups=USERS),
    Case("hook-both", "get", "pods", "a"),
    Case("hook-silent", "get", "pods", "a"),
    Case("anyone", "get", path="/api", groups=USERS),
    Case("anyone", "get", path="/healthz", groups=("system:unauthenticated",)),
    Case("anyone", "create", "selfsubjectreviews", group="authentication.k8s.io", groups=USERS),
)


def _rule(verbs: str, resources: str = "", groups: str = "", **more: Any) -> dict[str, Any]:
    rule = {"verbs": verbs.split(), **more}
    if resources:
        rule |= {"resources": resources.split(), "apiGroups": groups.split(",")}
    return rule


def role(name: str, *rules: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Return a role, with a namespace or without."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules)}


def binding(
    name: str, to: str, *subjects: dict[str, str], namespace: str = "", kind: str = "ClusterRole"
) -> dict[str, Any]:
    """Return a binding to the role *to* of a *kind*, with a namespace or without."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": to},
        "subjects": list(subjects),
    }


def user(name: str, kind: str = "User") -> dict[str, str]:
    """Return a subject."""
    return {"kind": kind, "apiGroup": RBAC, "name": name}


def account(name: str, namespace: str = "") -> dict[str, str]:
    """Return a service account as a subject."""
    return {"kind": "ServiceAccount", "name": name, **({"namespace": namespace} if namespace else {})}


OBJECTS = (
    binding("tops", "cluster-admin", user("nobody"), user("tops", "Group")),
    role("pod-viewer", _rule("get list watch", "pods pods/log")),
    binding("viewers", "pod-viewer", user("viewer"), namespace="a"),
    role("named", _rule("get list", "secrets", resourceNames=["one"]), namespace="a"),
    binding("named", "named", user("named"), namespace="a", kind="Role"),
    role("logs", _rule("get", "*/log", "*")),
    binding("logs", "logs", user("logger")),
    role("scale", _rule("update", "deployments/scale", "apps")),
    binding("scale", "scale", user("scaler")),
    role("paths", _rule("get", nonResourceURLs=["/logs/*", "/exact"])),
    binding("paths", "paths", user("pather")),
    binding("dangling", "no-such-role", user("dangling")),
    binding("dangling-a", "no-such-role", user("dangling"), namespace="a", kind="Role"),
    role("dangling-b", _rule("get", "configmaps"), namespace="a"),
    binding("dangling-b", "dangling-b", user("dangling"), namespace="a", kind="Role"),
    role("services", _rule("get", "services"), namespace="a"),
    binding("services", "services", account("robot"), namespace="a", kind="Role"),
    binding("robots", "pod-viewer", account("robot", "a")),
    binding("several", "pod-viewer", user("g1", "Group"), user("g2", "Group")),
)

_VERBS = ("get", "list", "create", "delete", "*", "impersonate")
_GROUPS = ("", "apps", "*")
_RESOURCES = ("pods", "pods/log", "*/log", "deployments", "*", "*/scale")
_NAMES = ("x", "y")
_URLS = ("/", "/logs/*", "/logs", "*", "/a*")


def random_objects(seed: int, count: int) -> list[dict[str, Any]]:
    """Return random roles and bindings."""
    chance = random.Random(seed)

    def some(values: tuple[str, ...], most: int = 2) -> list[str]:
        return chance.sample(values, chance.randint(1, most))

    found: list[dict[str, Any]] = []
    for number in range(count):
        namespace = chance.choice(("", *NAMESPACES))
        rule: dict[str, Any] = {"verbs": some(_VERBS)}
        if namespace or chance.random() < 0.7:
            rule |= {"apiGroups": some(_GROUPS), "resources": some(_RESOURCES)}
            if chance.random() < 0.3:
                rule["resourceNames"] = some(_NAMES)
        else:
            rule["nonResourceURLs"] = some(_URLS)
        name = f"random-{number}"
        found.append(role(name, rule, namespace=namespace))
        kind = "Role" if namespace else "ClusterRole"
        where = namespace or chance.choice(("", *NAMESPACES))
        subject = user(f"random-{number}", chance.choice(("User", "Group")))
        found.append(binding(name, name, subject, namespace=where, kind=kind))
    return found


def random_cases(seed: int, count: int, subjects: int) -> list[Case]:
    """Return random requests of the users of `random_objects`; each user has many groups."""
    chance = random.Random(seed)
    found = []
    for _ in range(count):
        user_, *groups = (f"random-{chance.randrange(subjects)}" for _ in range(25))
        if chance.random() < 0.25:
            path = chance.choice(("/", "/logs", "/logs/x", "/abc", "/x"))
            case = Case(user_, chance.choice(_VERBS[:4]), path=path, groups=tuple(groups))
        else:
            resource, _, subresource = chance.choice(
                ("pods", "pods/log", "deployments", "deployments/scale", "things/log")
            ).partition("/")
            case = Case(
                user_,
                chance.choice(("get", "list", "create", "impersonate", "patch")),
                resource,
                chance.choice(("", "a", "b")),
                chance.choice(("", "x", "z")),
                chance.choice(("", "apps", "batch")),
                subresource,
                tuple(groups),
            )
        found.append(case)
    return found
