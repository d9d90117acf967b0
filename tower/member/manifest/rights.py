"""The agent's namespace, service account and rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tower.member.manifest.settings import AgentSettings

#: Namespace of all objects that have one, and name of most objects.
NAMESPACE = "tower-system"
NAME = "tower-agent"

#: Secret that the agent stores its key in.
KEY_SECRET = "tower-agent-key"  # noqa: S105 - a name

_GROUP = "rbac.authorization.k8s.io"


def metadata(name: str = NAME, **more: Any) -> dict[str, Any]:
    """Return the metadata of an object in the agent's namespace."""
    return {"name": name, "namespace": NAMESPACE, "labels": labels(), **more}


def labels() -> dict[str, str]:
    """Return the labels of all objects."""
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "tower"}


def rights(settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the namespace, the service account and its rights."""
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels()}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata()},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": NAME, "labels": labels()},
            "rules": _impersonation(settings),
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": NAME, "labels": labels()},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": NAME},
            "subjects": [subject],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": metadata(KEY_SECRET),
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["secrets"],
                    "resourceNames": [KEY_SECRET],
                    "verbs": ["get", "patch"],
                }
            ],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(KEY_SECRET),
            "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": KEY_SECRET},
            "subjects": [subject],
        },
    ]


def _impersonation(settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the rules for users and groups, one rule if neither is restricted."""
    if not settings.users and not settings.groups:
        return [_rule(("users", "groups"), ())]
    return [_rule(("users",), settings.users), _rule(("groups",), settings.groups)]


def _rule(resources: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [""], "resources": list(resources), "verbs": ["impersonate"]}
    return {**rule, "resourceNames": list(names)} if names else rule
