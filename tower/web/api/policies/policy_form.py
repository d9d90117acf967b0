"""The form of access policies in Tower's own API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar

from attrs import evolve, frozen

from tower.clusters import API_VERSION
from tower.clusters.policies.access_policies import AccessPolicies, settled
from tower.clusters.policies.access_policy import AccessPolicy
from tower.clusters.policies.policy_object import read_spec, warnings_of
from tower.kube.timestamps import timestamp
from tower.web.api.calls.call import Call
from tower.web.api.discovery import GROUP
from tower.web.api.fields.kinds import KINDS
from tower.web.api.table import Object
from tower.web.api.writes.object_form import ObjectFacts

#: Returns warnings about the effects of a write, given the policy before and after it.
Preview = Callable[[AccessPolicy | None, AccessPolicy | None], Awaitable[list[str]]]


def show_policy(policy: AccessPolicy) -> Object:
    """Return the object of a policy."""
    metadata: dict[str, Any] = {
        "name": policy.name,
        "uid": policy.uid,
        "resourceVersion": str(policy.resource_version),
        "generation": policy.generation,
        "creationTimestamp": timestamp(policy.created),
    }
    parts = (("labels", policy.labels), ("annotations", policy.annotations))
    metadata |= {key: dict(part) for key, part in parts if part}
    if policy.managed:
        metadata["managedFields"] = list(policy.managed)
    return {
        "apiVersion": API_VERSION,
        "kind": "AccessPolicy",
        "metadata": metadata,
        "spec": dict(policy.given),
    }


@frozen(eq=False, repr=False)
class PolicyForm:
    """See `tower.web.api.writes.object_form.ObjectForm`.

    :param preview: for dry runs.
    """

    facts: ClassVar[ObjectFacts] = ObjectFacts(
        API_VERSION,
        "AccessPolicy",
        "accesspolicies",
        GROUP,
        "access policy",
        "access policies",
        ("spec",),
        KINDS["AccessPolicy"],
    )

    _policies: AccessPolicies
    _preview: Preview

    def new(self, name: str, namespace: str, value: Mapping[str, Any]) -> AccessPolicy:
        """See `ObjectForm`."""
        return self._policies.new(name, value.get("spec") or {})

    def edited(self, old: AccessPolicy, value: Mapping[str, Any]) -> AccessPolicy:
        """See `ObjectForm`."""
        given = value.get("spec") or {}
        return evolve(old, spec=read_spec(given), given=given)

    def with_parts(self, item: AccessPolicy, **parts: Any) -> AccessPolicy:
        """See `ObjectForm`."""
        return evolve(item, **parts)

    def settled(self, old: AccessPolicy, new: AccessPolicy) -> AccessPolicy:
        """See `ObjectForm`."""
        return settled(old, new)

    def body(self, item: AccessPolicy) -> dict[str, Any]:
        """See `ObjectForm`."""
        return {"spec": dict(item.given)}

    def show(self, item: AccessPolicy) -> Object:
        """See `ObjectForm`."""
        return show_policy(item)

    def check(self, call: Call, old: AccessPolicy | None, new: AccessPolicy) -> None:
        """Accept all: the right to write policies amounts to administration."""

    def warnings(self, item: AccessPolicy) -> list[str]:
        """See `ObjectForm`."""
        return warnings_of(item.spec)

    async def preview(self, old: AccessPolicy | None, new: AccessPolicy | None) -> list[str]:
        """See `ObjectForm`."""
        return await self._preview(old, new)
