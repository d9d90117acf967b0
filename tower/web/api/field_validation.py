"""What clients are warned of in what they wrote; see Kubernetes' field validation.  Sans-IO."""

from __future__ import annotations

from typing import Any

from tower.escaping import json_text
from tower.kube.flatten import warnings_of
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.web.api.cluster_object import unknown_fields
from tower.web.api.dispatch import Call
from tower.web.api.table import Object
from tower.web.outcome import Response

_JSON_TYPE = (b"Content-Type", b"application/json")


def check_fields(call: Call, value: dict[str, Any]) -> list[str]:
    """Return what to warn of; see Kubernetes' field validation.

    :raise Refusal: there are fields that we do not know, and the client wants none.
    """
    wanted = call.query.get("fieldValidation") or "Warn"
    if wanted not in ("Ignore", "Warn", "Strict"):
        raise StatusError(422, f"fieldValidation: {wanted!r}: must be Ignore, Warn or Strict")
    if wanted == "Ignore":
        return []
    texts = [f'unknown field "{path}"' for path in unknown_fields(value)]
    if texts and wanted == "Strict":
        raise StatusError(400, f"strict decoding error: {', '.join(texts)}")
    return texts


def kubeconfig_warnings(access: KubeAccess | None) -> list[str]:
    """Return what to warn of in the credential for a member."""
    return [f"spec.connection.kubeconfig: {text}" for text in (warnings_of(access) if access else ())]


def written(item: Object, code: int, warnings: list[str]) -> Response:
    """Return the answer to a write that left *item*, with *warnings*."""
    body = json_text(item, separators=(",", ":")).encode()
    notes = tuple((b"Warning", _warning(text)) for text in warnings[:10])
    return Response(code, body, (_JSON_TYPE, *notes))


def _warning(text: str) -> bytes:
    """Return the value of a `Warning` header, as kube-apiserver writes them (RFC 7234 section 5.5)."""
    plain = "".join(c if c.isascii() and c.isprintable() else "?" for c in text)[:200]
    quoted = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'299 - "{quoted}"'.encode("ascii")
