"""The certificates that the other end of a TLS session sent."""

from __future__ import annotations

import ssl
from typing import Any


def peer_chain(session: ssl.SSLObject) -> tuple[bytes, ...]:
    """Return the certificates that the peer sent, its own first, DER; a resumed session has none."""
    ends: Any = (session, getattr(session, "_sslobj", None))  # public from Python 3.13 on
    for end in ends:
        read = getattr(end, "get_unverified_chain", None)
        if read is not None:
            return tuple(_der(each) for each in read() or ())
    return ()


def _der(certificate: Any) -> bytes:
    return certificate if isinstance(certificate, bytes) else certificate.public_bytes(_DER)


#: ``_ssl.ENCODING_DER``.
_DER = 2
