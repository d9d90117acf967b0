"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import balancers, host, http, nodes, nodessh, oidc, old, ssh, streams, text, upgraded, wire

_MODULES = (wire, ssh, old, http, streams, text, nodes, nodessh, balancers, host, oidc, upgraded)

TARGETS = {target.name: target for module in _MODULES for target in module.TARGETS}
