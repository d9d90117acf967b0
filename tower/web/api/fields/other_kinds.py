"""OpenAPI schemas of Kubernetes' own kinds that Tower's API has: events, reviews, roles and bindings."""

from __future__ import annotations

from typing import Any

from tower.web.api.fields.rbac_schema import binding, role
from tower.web.api.fields.schema_parts import flag, kind_properties, number, object_schema, text, texts


def _reference(description: str) -> dict[str, Any]:
    return object_schema(
        description,
        {
            "apiVersion": text("API version of the object."),
            "kind": text("Kind of the object."),
            "name": text("Name of the object."),
            "uid": text("Unique ID of the object."),
        },
    )


def _common() -> dict[str, Any]:
    return {
        **kind_properties(),
        "reason": text("Machine-readable reason."),
        "type": text("Normal or Warning."),
    }


def _time(description: str) -> dict[str, Any]:
    return text(description, format="date-time")


def _core_event() -> dict[str, Any]:
    return object_schema(
        "A report of an event of a cluster, kept for an hour after its last occurrence.",
        {
            **_common(),
            "involvedObject": _reference("The cluster."),
            "message": text("Human-readable description."),
            "source": object_schema("The reporting program.", {"component": text("Always tower-proxy.")}),
            "firstTimestamp": _time("Time of the first occurrence."),
            "lastTimestamp": _time("Time of the last occurrence."),
            "count": number("Number of occurrences."),
            "reportingComponent": text("Always tower-proxy."),
            "reportingInstance": text("Always empty."),
        },
    )


def _event() -> dict[str, Any]:
    return object_schema(
        "A report of an event of a cluster, kept for an hour after its last occurrence.",
        {
            **_common(),
            "regarding": _reference("The cluster."),
            "note": text("Human-readable description."),
            "reportingController": text("Always tower-proxy."),
            "reportingInstance": text("Always empty."),
            "deprecatedSource": object_schema(
                "The reporting program.", {"component": text("Always tower-proxy.")}
            ),
            "deprecatedFirstTimestamp": _time("Time of the first occurrence."),
            "deprecatedLastTimestamp": _time("Time of the last occurrence."),
            "deprecatedCount": number("Number of occurrences."),
        },
    )


def _self_subject_review() -> dict[str, Any]:
    user = object_schema("The user.", {"username": text("Name."), "groups": texts("Groups.")})
    status = object_schema("The authenticated user.", {"userInfo": user})
    return object_schema("The identity of the requesting user.", {**kind_properties(), "status": status})


def _access_review() -> dict[str, Any]:
    resource = object_schema(
        "An operation on a resource.",
        {
            "group": text("API group."),
            "resource": text("Resource."),
            "subresource": text("Subresource."),
            "verb": text("Verb, such as get."),
            "name": text("Name of the object."),
            "namespace": text("Namespace of the object."),
            "version": text("API version."),
        },
    )
    path = object_schema("A request to a path.", {"path": text("Path."), "verb": text("Verb, such as get.")})
    spec = object_schema("The operation.", {"resourceAttributes": resource, "nonResourceAttributes": path})
    status = object_schema(
        "The answer.", {"allowed": flag("Whether it is allowed."), "reason": text("Reason if it is not.")}
    )
    return object_schema(
        "Whether the requesting user may do something.", {**kind_properties(), "spec": spec, "status": status}
    )


def _rules_review() -> dict[str, Any]:
    resource = object_schema(
        "Operations on resources.",
        {"verbs": texts("Verbs."), "apiGroups": texts("API groups."), "resources": texts("Resources.")},
    )
    path = object_schema("Paths.", {"verbs": texts("Verbs."), "nonResourceURLs": texts("Paths.")})
    status = object_schema(
        "The rules.",
        {
            "resourceRules": {"type": "array", "items": resource, "description": "Rules for resources."},
            "nonResourceRules": {"type": "array", "items": path, "description": "Rules for paths."},
            "incomplete": flag("Always false."),
        },
    )
    spec = object_schema("The request.", {"namespace": text("Namespace; ignored.")})
    return object_schema(
        "All operations that the requesting user may do.",
        {**kind_properties(), "spec": spec, "status": status},
    )


#: The schema of each kind; `CoreEvent` is the event of the core group.
OTHER_KINDS = {
    "CoreEvent": _core_event(),
    "Event": _event(),
    "SelfSubjectReview": _self_subject_review(),
    "SelfSubjectAccessReview": _access_review(),
    "SelfSubjectRulesReview": _rules_review(),
    "ClusterRole": role(is_namespaced=False),
    "Role": role(is_namespaced=True),
    "ClusterRoleBinding": binding(),
    "RoleBinding": binding(),
}
