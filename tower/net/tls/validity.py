"""Dates of a server's certificates, compared with this machine's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509

from tower.durations import human_duration

#: OpenSSL's texts about the dates of a certificate.
NOT_YET_VALID, EXPIRED = "certificate is not yet valid", "certificate has expired"


def is_about_dates(text: str) -> bool:
    """Return whether OpenSSL rejected a certificate for its dates."""
    return NOT_YET_VALID in text or EXPIRED in text


def validity_problem(chain: Sequence[x509.Certificate], now: float) -> str | None:
    """Return which certificate of *chain* is not valid now, by how much, and the cure; None: all are.

    :param now: the time of this machine, s since the epoch.
    """
    clock = f"this machine's clock shows {_moment(now)}"
    for certificate in chain:
        begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
        if now < begin:
            return (
                f"its certificate is valid from {_moment(begin)}, but {clock}, {_span(begin - now)} earlier: "
                "set the clock of this machine, or that of the server if it is wrong"
            )
        if now > end:
            return (
                f"its certificate was valid until {_moment(end)}, but {clock}, {_span(now - end)} later: "
                "renew the certificate, or set the clock of this machine if it is wrong"
            )
    return None


def _span(seconds: float) -> str:
    return human_duration(max(seconds, 1))


def _moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
