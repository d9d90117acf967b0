"""An access policy: subjects, clusters, and the requests that it permits."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from tower.clusters.policies.access_levels import LEVELS
from tower.clusters.policies.label_selector import LabelSelector
from tower.clusters.policies.member_names import MemberNames
from tower.clusters.policies.time_window import TimeWindow
from tower.kube.access.service_accounts import user_of_account
from tower.tunnels.targets import KUBERNETES

SubjectKind: TypeAlias = Literal["User", "Group", "ServiceAccount", "Claim"]

#: Requests that a policy permits; see `tower.clusters.policies.access_levels`.
Access: TypeAlias = Literal["full", "edit", "no-exec", "read-only"]

#: Stands for all clusters or targets.
ALL = "*"

#: Identifies a subject in an index: kind and name, and the value of a claim.
SubjectKey: TypeAlias = tuple[str, ...]


@frozen
class Subject:
    """One user, group, service account or claim.

    :ivar name: of a claim, its key.
    :ivar namespace: of a service account.
    :ivar value: of a claim.
    """

    kind: SubjectKind
    name: str
    namespace: str = ""
    value: str = ""

    @property
    def key(self) -> SubjectKey:
        """The subject as in `keys_of`."""
        match self.kind:
            case "ServiceAccount":
                return "User", user_of_account(self.namespace, self.name)
            case "Claim":
                return "Claim", self.name, self.value
        return self.kind, self.name

    def __str__(self) -> str:
        """Return it for warnings."""
        match self.kind:
            case "ServiceAccount":
                return f"service account {self.namespace}/{self.name}"
            case "Claim":
                return f"claim {self.name}={self.value}"
        return f"{self.kind.lower()} {self.name}"


def keys_of(
    user: str, groups: Collection[str], extra: Collection[tuple[str, Collection[str]]] = ()
) -> list[SubjectKey]:
    """Return the keys of all subjects that a user is."""
    return [
        ("User", user),
        *(("Group", group) for group in groups),
        *(("Claim", name, value) for name, values in extra for value in values),
    ]


@frozen
class PolicySpec:
    """The settings of a policy.

    :ivar clusters: names of clusters, or `ALL`.
    :ivar selector: selects further clusters by label.
    :ivar names: of the user in the members.
    :ivar targets: names of targets, or `ALL`.
    :ivar ttl: longest time that a connection or a request may last, s; 0: any.
    :ivar window: None: always.
    """

    subjects: tuple[Subject, ...]
    clusters: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    names: MemberNames = field(factory=MemberNames)
    targets: tuple[str, ...] = (KUBERNETES,)
    access: Access = "full"
    ttl: float = 0.0
    window: TimeWindow | None = None

    def selects(self, cluster: str, labels: Mapping[str, str]) -> bool:
        """Return whether the policy is for this cluster."""
        if cluster in self.clusters or ALL in self.clusters:
            return True
        return self.selector is not None and self.selector.matches(labels)

    def has_target(self, target: str) -> bool:
        """Return whether the policy is for this target."""
        return target in self.targets or ALL in self.targets

    @property
    def level(self) -> int:
        """The bit of its access; see `tower.clusters.policies.access_levels`."""
        return LEVELS[self.access]


@frozen
class AccessPolicy:
    """A policy.

    :ivar created: s since the epoch.
    :ivar given: the spec as its writer gave it.
    :ivar generation: increases with each change of the spec.
    :ivar managed: ``managedFields``.
    """

    name: str
    uid: str
    resource_version: int
    created: float
    spec: PolicySpec
    given: Mapping[str, Any]
    generation: int = 1
    labels: Mapping[str, str] = field(factory=dict)
    annotations: Mapping[str, str] = field(factory=dict)
    managed: tuple[Mapping[str, Any], ...] = ()
