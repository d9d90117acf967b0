"""OpenAPI schemas of roles and bindings."""

from __future__ import annotations

from typing import Any

from tower.web.api.fields.schema_parts import kind_properties, object_schema, text, texts

_ATOMIC = {"x-kubernetes-list-type": "atomic"}


def _rules() -> dict[str, Any]:
    rule = object_schema(
        "A rule, for resources or for other paths.",
        {
            "verbs": texts("Verbs, such as get; '*': all."),
            "apiGroups": texts("API groups of the resources; '': the core group; '*': all."),
            "resources": texts("Resources, such as clusters or clusters/status; '*': all."),
            "resourceNames": texts("Names of objects; by default all."),
            "nonResourceURLs": texts("Paths, such as /metrics; '*' at the end stands for any text."),
        },
        required=["verbs"],
    )
    return {"type": "array", "items": rule, "description": "The rules; additive.", **_ATOMIC}


def _aggregation() -> dict[str, Any]:
    expression = object_schema(
        "A requirement.",
        {
            "key": text("Key of a label."),
            "operator": text("In, NotIn, Exists or DoesNotExist."),
            "values": texts("Values of the label."),
        },
    )
    strings = {"type": "object", "additionalProperties": {"type": "string"}, "description": "Labels."}
    selector = object_schema(
        "A label selector.",
        {
            "matchLabels": strings,
            "matchExpressions": {"type": "array", "items": expression, "description": "Requirements."},
        },
    )
    selectors = {"type": "array", "items": selector, "description": "Selectors of the roles.", **_ATOMIC}
    return object_schema(
        "The role has the rules of all roles that a selector matches.", {"clusterRoleSelectors": selectors}
    )


def role(*, is_namespaced: bool) -> dict[str, Any]:
    """Return the schema of roles."""
    properties = {**kind_properties(), "rules": _rules()}
    if not is_namespaced:
        properties["aggregationRule"] = _aggregation()
    return object_schema("A set of rules that bindings grant.", properties)


def binding() -> dict[str, Any]:
    """Return the schema of bindings."""
    reference = object_schema(
        "The role.",
        {
            "apiGroup": text("Always rbac.authorization.k8s.io."),
            "kind": text("ClusterRole, or Role of the same namespace."),
            "name": text("Name of the role."),
        },
        required=["apiGroup", "kind", "name"],
        **{"x-kubernetes-map-type": "atomic"},
    )
    subject = object_schema(
        "A user, a group or a service account.",
        {
            "apiGroup": text("rbac.authorization.k8s.io, or empty for service accounts."),
            "kind": text("User, Group or ServiceAccount."),
            "name": text("Its name."),
            "namespace": text("Namespace of a service account."),
        },
        required=["kind", "name"],
    )
    subjects = {"type": "array", "items": subject, "description": "Those who get the role.", **_ATOMIC}
    return object_schema(
        "Grants a role to subjects.",
        {**kind_properties(), "roleRef": reference, "subjects": subjects},
        required=["roleRef"],
    )
