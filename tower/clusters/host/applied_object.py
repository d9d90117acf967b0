"""The object that ``kubectl apply`` stores in an annotation of a ``Cluster``, with secrets.  Sans-IO."""

from __future__ import annotations

import json

#: The annotation.
APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_SECRETS = ("token", "proxyToken", "kubeconfig")


def without_secrets(text: str) -> str | None:
    """Return an applied object without the secrets in it; None if it is malformed."""
    try:
        applied = json.loads(text)
    except (ValueError, RecursionError):
        return None
    spec = applied.get("spec", {}) if isinstance(applied, dict) else None
    if not isinstance(spec, dict) or not isinstance(connection := spec.get("connection", {}), dict):
        return None
    if "config" not in spec and not any(key in connection for key in _SECRETS):
        return text
    spec = {key: part for key, part in spec.items() if key != "config"}
    if connection:
        spec["connection"] = {key: part for key, part in connection.items() if key not in _SECRETS}
    return json.dumps({**applied, "spec": spec}, sort_keys=True, separators=(",", ":")) + "\n"
