"""Policies of the owners of members."""

from __future__ import annotations

import json
from typing import Any

from tower.member.policy.policy_document import API_VERSION, KIND


def document(*rules: Any, **more: Any) -> bytes:
    """Return a policy with these rules."""
    value = {"apiVersion": API_VERSION, "kind": KIND, "spec": {"allow": list(rules)}, **more}
    return json.dumps(value).encode()
