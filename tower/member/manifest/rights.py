"""The agent's namespace, service account and rights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tower.member.manifest.settings import ALL_EXTRA, NAMESPACE, AgentSettings

#: Name of most objects.
NAME = "tower-agent"

#: Secret that the agent stores its key in.
KEY_SECRET = "tower-agent-key"  # noqa: S105 - a name

_GROUP = "rbac.authorization.k8s.io"


def metadata(settings: AgentSettings, name: str = NAME) -> dict[str, Any]:
    """Return the metadata of an object in the agent's namespace."""
    return {"name": name, "namespace": settings.namespace, "labels": labels()}


def labels() -> dict[str, str]:
    """Return the labels of all objects."""
    return {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "tower"}


def rights(settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the namespace, the service account and its rights.

    Any other namespace than the default one belongs to its owner, so the manifest's removal must keep it.
    """
    is_own = settings.namespace == NAMESPACE
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE, "labels": labels()}}
    subject = {"kind": "ServiceAccount", "name": NAME, "namespace": settings.namespace}
    # in another namespace, it may be the agent of another proxy
    name = NAME if is_own else f"{settings.namespace}-{NAME}"
    return [
        *([namespace] if is_own else []),
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(settings)},
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": name, "labels": labels()},
            "rules": _impersonation(settings),
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": labels()},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [subject],
        },
        {
            "apiVersion": f"{_GROUP}/v1",
            "kind": "Role",
            "metadata": metadata(settings, KEY_SECRET),
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
            "metadata": metadata(settings, KEY_SECRET),
            "roleRef": {"apiGroup": _GROUP, "kind": "Role", "name": KEY_SECRET},
            "subjects": [subject],
        },
    ]


def _impersonation(settings: AgentSettings) -> list[dict[str, Any]]:
    """Return the rules for users and groups, one rule if neither is restricted, and for UID and extra."""
    rules = [_rule(("users", "groups"), ())]
    if settings.users or settings.groups:
        rules = [_rule(("users",), settings.users), _rule(("groups",), settings.groups)]
    extra = [f"userextras/{key}" for key in settings.extra]
    resources = ["*"] if ALL_EXTRA in settings.extra else [*(["uids"] if settings.uid else []), *extra]
    if resources:
        rules.append(
            {"apiGroups": ["authentication.k8s.io"], "resources": resources, "verbs": ["impersonate"]}
        )
    return rules


def _rule(resources: Sequence[str], names: Sequence[str]) -> dict[str, Any]:
    rule: dict[str, Any] = {"apiGroups": [""], "resources": list(resources), "verbs": ["impersonate"]}
    return {**rule, "resourceNames": list(names)} if names else rule
