"""Kubernetes objects in protobuf, as kubectl sends them."""

from __future__ import annotations

PROTOBUF = "application/vnd.kubernetes.protobuf"


def message(**fields: bytes | str) -> bytes:
    """Return a protobuf message; `f3` is field 3."""
    data = b""
    for name, value in fields.items():
        raw = value.encode() if isinstance(value, str) else value
        data += bytes(((int(name[1:]) << 3) | 2, len(raw))) + raw
    return data
