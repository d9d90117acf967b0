"""From when on the expiry of a credential or certificate needs attention.

One rule for conditions, ``tower doctor`` and the alert rules in ``deploy/prometheus/``.
"""

from __future__ import annotations

DAY = 86_400.0

#: A credential: less than this is left, s, and less than a tenth of its life if its begin is known.
CREDENTIAL_SOON = 7 * DAY

#: A serving certificate: the proxy renews its own 30 days before its end.
SERVING_SOON = 20 * DAY

#: A CA, which an operator rotates.
AUTHORITY_SOON = 90 * DAY


def credential_ends_soon(begin: float | None, end: float | None, now: float) -> bool:
    """Return whether a credential that is valid from *begin* to *end* ends soon; None: unknown, or never."""
    if end is None:
        return False
    return end - now < (CREDENTIAL_SOON if begin is None else min(CREDENTIAL_SOON, (end - begin) / 10))
