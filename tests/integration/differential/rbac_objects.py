"""Wrong roles and bindings, and rights that jane grants without having them."""

from __future__ import annotations

from typing import Any

from tests.integration.differential.asks import Ask
from tests.integration.differential.impersonation import RBAC
from tests.integration.differential.rows import Difference, Row, Table

ROLES = f"/apis/{RBAC}/v1"
_RULE = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
_EARLIER = Difference(
    "400", "422", "Tower validates an object before it checks whether the user may create it"
)


def role(name: str, *rules: dict[str, Any], namespace: str = "", **more: Any) -> dict[str, Any]:
    """Return a Role, or a ClusterRole."""
    meta = {"name": name, **({"namespace": namespace} if namespace else {})}
    kind = "Role" if namespace else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": meta, "rules": list(rules), **more}


def binding(
    name: str, to: dict[str, str], *subjects: dict[str, str], namespace: str = "", **more: Any
) -> dict[str, Any]:
    """Return a RoleBinding, or a ClusterRoleBinding."""
    value = role(name, namespace=namespace)
    del value["rules"]
    return {**value, "kind": f"{value['kind']}Binding", "roleRef": to, "subjects": list(subjects), **more}


def cluster_role(name: str, kind: str = "ClusterRole") -> dict[str, str]:
    """Return a reference to a role."""
    return {"apiGroup": RBAC, "kind": kind, "name": name}


def _path(value: dict[str, Any]) -> str:
    namespace, plural = value["metadata"].get("namespace"), f"{value['kind'].lower()}s"
    return f"{ROLES}/namespaces/{namespace}/{plural}" if namespace else f"{ROLES}/{plural}"


def _made(
    note: str, value: dict[str, Any], *, user: str = "admin", other: Difference | None = None
) -> Row[Ask]:
    return Row(
        f"{value['kind']}: {note}", Ask(path=f"{_path(value)}?dryRun=All", body=value, user=user), other
    )


_WRONG_RULES: dict[str, dict[str, Any]] = {
    "an empty rule": {},
    "no resources": {"verbs": ["get"]},
    "no resources of a group": {"verbs": ["get"], "apiGroups": [""]},
    "no groups": {"verbs": ["get"], "resources": ["pods"]},
    "no verbs": {"verbs": [], "apiGroups": [""], "resources": ["pods"]},
    "paths": {"verbs": ["get"], "nonResourceURLs": ["/a", "/b"]},
    "paths and resources": {**_RULE, "nonResourceURLs": ["/a"]},
    "paths with names": {"nonResourceURLs": ["/a"], "resourceNames": ["x"]},
}
_WRONG_ROLES: dict[str, dict[str, str]] = {
    "an empty reference": {},
    "a reference without a name": {"kind": "ClusterRole"},
    "a reference to a Role": {"kind": "Role", "name": "x"},
    "a reference to another kind": {"kind": "Other", "name": "x"},
    "a reference with a slash": {"kind": "ClusterRole", "name": "a/b"},
    "a reference to ..": {"kind": "ClusterRole", "name": ".."},
    "a reference to another group": {"kind": "ClusterRole", "name": "x", "apiGroup": "other"},
}
_WRONG_SUBJECTS: dict[str, dict[str, str]] = {
    "an empty subject": {},
    "a user without a name": {"kind": "User"},
    "a subject of another kind": {"kind": "Robot", "name": "x"},
    "a user of another group": {"kind": "User", "name": "x", "apiGroup": "other"},
    "a group without an API group": {"kind": "Group", "name": "x", "apiGroup": ""},
    "an account without a namespace": {"kind": "ServiceAccount", "name": "x"},
    "an account in capitals": {"kind": "ServiceAccount", "name": "X_", "namespace": "a"},
    "an account with a long name": {"kind": "ServiceAccount", "name": "x" * 300, "namespace": "a"},
    "an account with a group": {"kind": "ServiceAccount", "name": "x", "namespace": "a", "apiGroup": "v1"},
}


def _selecting(note: str, *expressions: dict[str, Any]) -> Row[Ask]:
    selectors = [{"matchExpressions": list(expressions)}] if expressions else []
    return _made(note, role("r", aggregationRule={"clusterRoleSelectors": selectors}))


OBJECTS = Table(
    "Roles and bindings",
    [
        *(_made(f"the name {name}", role(name, _RULE)) for name in (".", "..", "a/b", "a%b", "a/%")),
        _made(
            "no name",
            role("", _RULE),
            other=Difference(
                "422 ClusterRole",
                "422 metadata.name: required",
                "Tower does not generate names (`metadata.generateName`)",
            ),
        ),
        _made("a good one", role("r", _RULE)),
        *(
            _made(note, role("r", rule, namespace=where))
            for where in ("", "default")
            for note, rule in _WRONG_RULES.items()
        ),
        _made("three rules, two of them wrong", role("r", _RULE, {"verbs": ["get"]}, {})),
        _selecting("no selectors"),
        _selecting("In without values", {"key": "a", "operator": "In"}),
        _selecting("Exists with values", {"key": "a", "operator": "Exists", "values": ["x"]}),
        _selecting("an unknown operator", {"key": "a", "operator": "Like"}),
        *(
            _made(note, binding("b", to, namespace=where))
            for where in ("", "default")
            for note, to in _WRONG_ROLES.items()
        ),
        *(
            _made(note, binding("b", cluster_role("view"), subject, namespace=where))
            for where in ("", "default")
            for note, subject in _WRONG_SUBJECTS.items()
        ),
        Row(
            "a change of roleRef",
            Ask(
                "PUT",
                f"{ROLES}/clusterrolebindings/acting?dryRun=All",
                binding("acting", cluster_role("view")),
                "admin",
            ),
        ),
        Row(
            "a second object of a name",
            Ask(path=f"{ROLES}/clusterroles?dryRun=All", body=role("acting"), user="admin"),
        ),
        *(
            Row(
                f"ClusterRole: `?{query}`",
                Ask(path=f"{ROLES}/clusterroles?{query}", body=role("r", _RULE), user="admin"),
            )
            for query in ("dryRun=Some", "dryRun=All&dryRun=Some", "dryRun=All&fieldValidation=Foo")
        ),
        Row(
            "ClusterRole: `?dryRun=All&fieldValidation=Strict` and an unknown field",
            Ask(
                path=f"{ROLES}/clusterroles?dryRun=All&fieldValidation=Strict",
                body=role("r", _RULE, foo=1),
                user="admin",
            ),
            Difference(
                "400",
                "422",
                "unknown fields are rejected with each `fieldValidation`: a misspelled field may be a limit",
            ),
        ),
        Row(
            "a change of a malformed version",
            Ask(
                "PUT",
                f"{ROLES}/clusterroles/acting?dryRun=All",
                {**role("acting"), "metadata": {"name": "acting", "resourceVersion": "x"}},
                "admin",
            ),
            Difference("500", "422", "the mistake is the client's"),
        ),
        Row(
            "a delete with `?gracePeriodSeconds=x`",
            Ask("DELETE", f"{ROLES}/clusterroles/acting?dryRun=All&gracePeriodSeconds=x", user="admin"),
            Difference("400", "200", "Tower has no grace periods and ignores the parameter"),
        ),
        Row("a missing object", Ask("GET", f"{ROLES}/clusterroles/missing", user="admin")),
        Row(
            "a missing object in a namespace",
            Ask("GET", f"{ROLES}/namespaces/default/roles/missing", user="admin"),
        ),
        Row(
            "a missing object is deleted",
            Ask("DELETE", f"{ROLES}/clusterrolebindings/missing?dryRun=All", user="admin"),
        ),
        Row(
            "another name in the path",
            Ask("PUT", f"{ROLES}/clusterroles/acting?dryRun=All", role("x", _RULE), "admin"),
        ),
    ],
)


def _grants(note: str, *rules: dict[str, Any], other: Difference | None = None, **more: Any) -> Row[Ask]:
    return _made(note, role("granted", *rules, **more), user="jane", other=other)


def _binds(
    note: str, to: dict[str, str], *subjects: dict[str, str], other: Difference | None = None
) -> Row[Ask]:
    value = binding("granted", to, *subjects)
    value["metadata"]["annotations"] = {"tower.kubesphere.io/clusters": "@tower"}
    return _made(note, value, user="jane", other=other)


def _on_roles(verbs: str, *names: str, plural: str = "clusterroles", group: str = RBAC) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"verbs": verbs.split(), "apiGroups": [group], "resources": [plural], **named}


ESCALATION = Table(
    "Granted rights",
    [
        _grants("an own right", _on_roles("create")),
        _grants("an own path", {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}),
        _grants("one right too many", _on_roles("delete create")),
        _grants("all verbs", _on_roles("*")),
        _grants("all rights", {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}),
        _grants("all paths", {"verbs": ["get"], "nonResourceURLs": ["*"]}),
        _grants(
            "paths below an own one",
            {"verbs": ["get", "post"], "nonResourceURLs": ["/metrics/a", "/metrics"]},
        ),
        _grants("all names of own objects", _on_roles("get", plural="roles")),
        _grants("an own name", _on_roles("get", "one", plural="roles")),
        _grants("own and other names", _on_roles("get", "one", "two", plural="roles")),
        _grants("another group", _on_roles("create", group="other")),
        _grants("all groups", _on_roles("create", group="*")),
        _grants(
            "two rules of one object", _on_roles("get", plural="nodes"), _on_roles("list", plural="nodes")
        ),
        _grants("impersonation of all users", _on_roles("impersonate", plural="users", group="")),
        _grants("impersonation of an own user", _on_roles("impersonate", "bob", plural="users", group="")),
        _grants("a rule without resources", {"verbs": ["get"]}),
        _grants("an empty verb list", {"verbs": []}),
        _grants("an aggregation", aggregationRule={"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}),
        _grants("an aggregation without selectors", aggregationRule={"clusterRoleSelectors": []}),
        _binds("the own role", cluster_role("acting")),
        _binds("cluster-admin", cluster_role("cluster-admin")),
        _binds("system:discovery", cluster_role("system:discovery")),
        _binds("a missing role", cluster_role("none")),
        _binds("a Role", cluster_role("acting", "Role"), other=_EARLIER),
        _binds("no name", cluster_role(""), other=_EARLIER),
        _binds("an unknown kind of subject", cluster_role("acting"), {"kind": "Robot", "name": "x"}),
        _binds(
            "an account without a namespace", cluster_role("acting"), {"kind": "ServiceAccount", "name": "x"}
        ),
        Row("Role: created outside of a namespace", Ask(path=f"{ROLES}/roles", body=role("r"), user="jane")),
        Row(
            "Role: created without the right",
            Ask(path=f"{ROLES}/namespaces/a/roles", body=role("r", namespace="a"), user="jane"),
        ),
        Row(
            "ClusterRole: deleted without the right",
            Ask("DELETE", f"{ROLES}/clusterroles/acting", user="jane"),
        ),
        Row("ClusterRoles: listed without the right", Ask("GET", f"{ROLES}/clusterroles", user="jane")),
        Row(
            "ClusterRoles: watched without the right",
            Ask("GET", f"{ROLES}/clusterroles?watch=1", user="jane"),
        ),
        Row(
            "Role: read by the right of its name",
            Ask("GET", f"{ROLES}/namespaces/default/roles/one", user="jane"),
        ),
        Row("Role: another name", Ask("GET", f"{ROLES}/namespaces/default/roles/two", user="jane")),
        Row(
            "ClusterRole: created as a user without the right",
            Ask(
                path=f"{ROLES}/clusterroles?dryRun=All",
                body=role("r"),
                user="jane",
                fields=("Impersonate-User: bob",),
            ),
        ),
    ],
)
