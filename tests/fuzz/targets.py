"""All targets, by name."""

from __future__ import annotations

from tests.fuzz import http, ssh, streams, text, wire

TARGETS = {target.name: target for module in (wire, ssh, http, streams, text) for target in module.TARGETS}
