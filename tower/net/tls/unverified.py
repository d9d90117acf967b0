"""TLS without verification: to read a server's clock, or for a health check.  Never send a secret with it."""

from __future__ import annotations

import ssl


def unverified_context() -> ssl.SSLContext:
    """Return a TLS context for clients that verifies nothing, and has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
