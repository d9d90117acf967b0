"""The CAs of providers' certificates, for clients that log in."""

from __future__ import annotations

import re
from collections.abc import Callable

from tower.files import read_plain
from tower.options.followed_file import PERIOD
from tower.web.access.authentication.oidc.issuer import IssuerSettings

#: Largest file of CAs, B.
_LIMIT = 1 << 20

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----\n?")


class IssuerAuthorities:
    """Keeps the CAs of each file for `PERIOD` s, and for longer if the file cannot be read.

    :param seconds: returns the time, s since the epoch.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._files: dict[str, tuple[str, float]] = {}  # content, and when it was read

    def of(self, issuer: IssuerSettings) -> str:
        """Return the CAs of an issuer, PEM; empty: the system's."""
        if not issuer.ca_file:
            return _certificates(issuer.authorities)
        now = self._seconds()
        text, read = self._files.get(issuer.ca_file, ("", 0.0))
        if not 0 <= now - read < PERIOD:
            try:
                text = _certificates(read_plain(issuer.ca_file, _LIMIT))
            except OSError:
                pass  # the provider's own requests log it
            self._files[issuer.ca_file] = text, now
        return text


def _certificates(data: bytes) -> str:
    return b"".join(_CERTIFICATE.findall(data)).decode("ascii", "replace")
