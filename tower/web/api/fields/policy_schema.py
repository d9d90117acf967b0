"""OpenAPI schemas of access policies and access reviews, with the merge rules of their lists."""

from __future__ import annotations

from typing import Any

from tower.web.api.fields.schema_parts import flag, kind_properties, object_schema, text, texts


def _set(description: str) -> dict[str, Any]:
    return {**texts(description), "x-kubernetes-list-type": "set"}


def _strings(description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": {"type": "string"}, "description": description}


def access_policy() -> dict[str, Any]:
    """Return the schema of policies."""
    subject = object_schema(
        "A user, a group, a service account or a claim.",
        {
            "kind": text("User, Group, ServiceAccount or Claim."),
            "name": text("Name, or the key of a claim in the user's extra."),
            "namespace": text("Namespace of a service account that the front door authenticated."),
            "value": text("Value of a claim."),
        },
        required=["kind", "name"],
    )
    requirement = object_schema(
        "One requirement.",
        {
            "key": text("Key of the label."),
            "operator": text("In, NotIn, Exists or DoesNotExist."),
            "values": texts("Values, for In and NotIn."),
        },
        required=["key", "operator"],
    )
    selector = object_schema(
        "Clusters with these labels, in addition to names; all requirements must hold.",
        {
            "matchLabels": _strings("Exact values of labels."),
            "matchExpressions": {
                "type": "array",
                "items": requirement,
                "description": "Requirements, as in Kubernetes.",
            },
        },
    )
    clusters = object_schema(
        "The clusters that the subjects enter: those with these names or these labels.",
        {"names": _set("Names of clusters; '*': all clusters."), "selector": selector},
    )
    names = object_schema(
        "The names of the users in the clusters; by default their own.",
        {
            "user": text("Name of the user; {user} stands for the user's own name, the default."),
            "groups": _set(
                "Groups; '*' stands for the user's own groups, the default unless there is a groupMapping."
            ),
            "groupMapping": _strings("Groups in the clusters, by the user's own groups."),
            "serviceAccountPrefix": text(
                "Replaces 'system:' in the names of service accounts; by default 'door:'."
            ),
            "uid": flag("Whether the clusters get the UIDs of the users; by default not."),
            "extra": _set("Keys of further facts about the users that the clusters get; '*': all."),
        },
    )
    window = object_schema(
        "Times at which the users enter; connections are cut at its end.",
        {
            "days": _set("Mon, Tue, Wed, Thu, Fri, Sat, Sun; by default all.  The days on which it begins."),
            "from": text("Begin, HH:MM; by default 00:00."),
            "to": text("End, HH:MM up to 24:00, the default; before the begin: on the next day."),
            "timeZone": text("Name in the IANA database, such as Europe/Berlin."),
        },
        required=["timeZone"],
    )
    spec = object_schema(
        "The users that may enter, the clusters, and the requests that they may send.",
        {
            "subjects": {
                "type": "array",
                "items": subject,
                "description": "The users.",
            },
            "clusters": clusters,
            "as": names,
            "targets": _set("Targets of the clusters; by default kubernetes, the API server; '*': all."),
            "access": text("full (default), edit, no-exec or read-only."),
            "ttl": text("Longest connection, such as 8h; by default any."),
            "timeWindow": window,
        },
        required=["subjects", "clusters"],
    )
    return object_schema(
        "Admits users without a credential that Tower issued to clusters.",
        {**kind_properties(), "spec": spec},
    )


def access_review() -> dict[str, Any]:
    """Return the schema of reviews."""
    spec = object_schema(
        "The question.",
        {
            "user": text("Name of the user."),
            "groups": texts("Groups of the user."),
            "claims": {
                "type": "object",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
                "description": "Claims of the user, by key.",
            },
            "cluster": text("Name of the cluster."),
            "target": text("Name of the target; by default kubernetes."),
            "verb": text("Kubernetes' verb, such as get; without it: any request."),
            "group": text("API group of the resource."),
            "resource": text("Resource, such as pods or pods/exec."),
            "namespace": text("Namespace of the object."),
            "name": text("Name of the object."),
            "path": text("Request path, instead of a resource; may name an object."),
        },
        required=["user", "cluster"],
    )
    concerned = object_schema(
        "A policy of this user for this cluster.",
        {
            "name": text("Name of the policy."),
            "access": text("Requests that it permits."),
            "targets": texts("Targets that it permits."),
            "open": flag("Whether its time window is open, or it has none."),
            "timeWindow": text("Its time window."),
            "ttl": text("Maximum duration of a connection."),
        },
    )
    credential = object_schema(
        "A valid credential of this user for this cluster, which needs no policy.",
        {
            "name": text("ID of the credential; not a secret."),
            "groups": texts("Groups of the user in the cluster."),
            "expirationTimestamp": text("Time of expiry.", format="date-time"),
            "allowed": flag("Whether the user may send such a request with it."),
            "reason": text("Reason for the denial, as shown to the user."),
        },
    )
    status = object_schema(
        "The answer.",
        {
            "allowed": flag("Whether the user enters, and may send such a request."),
            "reason": text("Reason for the denial, as shown to the user."),
            "policies": texts("Policies that permit the request."),
            "user": text("Name of the user in the cluster."),
            "groups": texts("Groups of the user in the cluster."),
            "until": text("Time until which this holds if nothing changes.", format="date-time"),
            "concerned": {
                "type": "array",
                "items": concerned,
                "description": "All policies of this user for this cluster.",
            },
            "credentials": {
                "type": "array",
                "items": credential,
                "description": "The newest credentials that Tower issued to this user for this cluster.",
            },
        },
    )
    return object_schema(
        "Whether access policies or issued credentials let a user enter a cluster.",
        {**kind_properties(), "spec": spec, "status": status},
    )
