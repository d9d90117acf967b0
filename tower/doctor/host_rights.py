"""The rights that a proxy needs in its host cluster, from ``deploy/host-rbac.yaml``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import yaml
from attrs import frozen

from tower.kube.rest.host_api import Object, ResourceType

_REVIEWS = ResourceType(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

#: Namespace in the file, which stands for that of the records.
_NAMESPACE = "kubesphere-system"


@frozen
class HostRight:
    """The right to use one verb with a type of objects.

    :ivar resource: plural, and the subresource after a slash.
    :ivar name: of the only object; empty: all.
    :ivar namespace: empty: all, or the type has none.
    """

    group: str
    resource: str
    name: str
    verb: str
    namespace: str

    def __str__(self) -> str:
        plural, slash, subresource = self.resource.partition("/")
        shown = f"{self.verb} {plural}{'.' if self.group else ''}{self.group}{slash}{subresource}"
        return f"{shown} {self.name}".rstrip() + (f" in {self.namespace}" if self.namespace else "")

    def review(self) -> tuple[ResourceType, Object]:
        """Return the object that asks the API server for this right."""
        plural, _, subresource = self.resource.partition("/")
        attributes = {
            "group": self.group,
            "resource": plural,
            "subresource": subresource,
            "name": self.name,
            "verb": self.verb,
            "namespace": self.namespace,
        }
        given = {key: value for key, value in attributes.items() if value}
        return _REVIEWS, {"spec": {"resourceAttributes": given}}


def needed_rights(namespace: str) -> list[HostRight]:
    """Return the rights of ``tower rbac host``.

    :param namespace: of the records.
    """
    return [
        HostRight(group, resource, name, verb, namespace if place == _NAMESPACE else place)
        for group, resource, name, verb, place in _rights()
    ]


@cache
def _rights() -> tuple[tuple[str, str, str, str, str], ...]:
    return tuple(_read())


def _read() -> Iterator[tuple[str, str, str, str, str]]:
    """Yield group, resource, name, verb and namespace of each right."""
    text = (files("tower") / "deploy" / "host-rbac.yaml").read_text()
    for each in yaml.safe_load_all(text):
        for rule in each.get("rules", ()):
            for resource in rule["resources"]:
                for verb in rule["verbs"]:
                    for name in rule.get("resourceNames", ("",)):
                        place = each["metadata"].get("namespace", "")
                        yield rule["apiGroups"][0], resource, name, verb, place
