"""IDs of requests: the same ID is in the answer, in all of Tower's logs and in the cluster's audit log."""

from __future__ import annotations

import itertools
import re
import uuid

#: A valid ID of a client.
VALID_ID = re.compile(rb"[0-9A-Za-z-]{1,64}")

#: The beginning of all IDs of this process.
SERIES = str(uuid.uuid4())[:24]

_LINE = b"Audit-Id: %b%%012x\r\n" % SERIES.encode("ascii")

#: Returns the number of a new request.
next_number = itertools.count(1).__next__


def request_id_of(number: int) -> str:
    """Return the ID of the request with this *number*, in the form of a UUID."""
    return f"{SERIES}{number:012x}"


def id_line_of(number: int) -> bytes:
    """Return the header line that names the request to a cluster."""
    return _LINE % number


def new_request_id() -> str:
    """Return a unique ID."""
    return request_id_of(next_number())
