"""Label selectors of Kubernetes: ``matchLabels`` and ``matchExpressions``; all requirements must hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from attrs import frozen

#: Operators of expressions.
Operator: TypeAlias = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@frozen
class LabelRequirement:
    """One requirement; *values* are empty for ``Exists`` and ``DoesNotExist``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* meet it; a missing label is never ``In``, and always ``NotIn``."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


@frozen
class LabelSelector:
    """A selector; it is never empty.

    :ivar labels: exact values.
    """

    labels: Mapping[str, str]
    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether *labels* meet all requirements."""
        return all(labels.get(key) == value for key, value in self.labels.items()) and all(
            each.matches(labels) for each in self.requirements
        )
