"""IDs of requests: the same ID is in the answer, in all of Tower's logs and in the cluster's audit log."""

from __future__ import annotations

import itertools
import re
import uuid

#: A valid ID of a client.
VALID_ID = re.compile(rb"[0-9A-Za-z-]{1,64}")

_series = str(uuid.uuid4())[:24]
_numbers = itertools.count(1)


def new_request_id() -> str:
    """Return a unique ID in the form of a UUID; those of one process have the same beginning."""
    return f"{_series}{next(_numbers):012x}"
