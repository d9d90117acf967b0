"""Reload of the serving certificate, and of the CA of ``--ca-cert``, for new connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tower.errors import ConfigurationError
from tower.rotation.assembly import ProxyKeys
from tower.trust.authorities import given_authority
from tower.trust.pki import Authority
from tower.trust.serving_certificate import ServingCertificate


def given_ca(options: Mapping[str, Any], now: float) -> Authority | None:
    """Return the CA of ``--ca-cert`` and ``--ca-key``; None: the options are not set.

    :param now: s since the epoch.
    :raise ConfigurationError: with the option, the file and the cure.
    """
    if options["ca-cert"] is None or options["ca-key"] is None:
        return None
    return given_authority(options["ca-cert"], options["ca-key"], now)


def reload_serving(
    keys: ProxyKeys, serving: ServingCertificate, read_given: Callable[[], Authority | None]
) -> str:
    """Use the current files for new connections; return a few words about the certificate.

    :param read_given: returns what `given_ca` does.
    :raise ConfigurationError: a file cannot be used, and the previous one stays in use.
    """
    given, current = read_given(), keys.authority.current
    if given is not None:
        if given.hash != current.hash:
            raise ConfigurationError(
                f"the CA in --ca-cert has another key, {given.hash}: agents accept {current.hash} only; "
                "restart the proxy to use the new CA, and give the agents new join lines"
            )
        if list(given.certificates) != list(current.certificates):
            serving.sign_with(given)
            keys.authority.current = given
    return serving.reload()
