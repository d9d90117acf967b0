"""Names of objects for names of records, which may have any characters.  Sans-IO.

A name with other characters than a DNS subdomain, such as a key's fingerprint, is replaced by a digest; an
annotation of the object has the real name.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from tower.errors import Invalid

#: Annotation with the record's name, as in a JSON string, if the object's name is a digest.
NAME = "tower.kubesphere.io/name"

#: Longest name of an object, characters.
_LONGEST = 253

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_DIGEST = re.compile(r"n-[0-9a-f]{64}")


def object_name(name: str, prefix: str = "") -> str:
    """Return the object's name for a record's name."""
    is_plain = len(prefix + name) <= _LONGEST and _SUBDOMAIN.fullmatch(name) is not None
    if is_plain and _DIGEST.fullmatch(name) is None:
        return prefix + name
    return f"{prefix}n-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def record_name(metadata: Mapping[str, Any], prefix: str = "") -> str:
    """Return the record's name for an object's metadata.

    :raise Invalid: the annotation does not fit the object's name.
    """
    stored: str = metadata["name"]
    text = (metadata.get("annotations") or {}).get(NAME)
    try:
        name = stored.removeprefix(prefix) if text is None else json.loads(f'"{text}"')
    except ValueError:
        name = None
    if not isinstance(name, str) or object_name(name, prefix) != stored:
        raise Invalid(f"metadata.annotations: {NAME}: is not the name of this object: delete this object")
    return name
