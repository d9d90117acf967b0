"""Pinned host keys and CAs of the proxy, in the agent's state directory."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

from twisted.logger import Logger

from tower.conch.connection.global_requests import RequestRefused
from tower.conch.transport.keys import Folder, checked_fingerprint
from tower.errors import ConfigurationError
from tower.net.tls.ca_pinning import parse_ca_hash
from tower.v2.hello import Announcement

_HOST_KEYS = "host-keys.json"


class KnownProxies:
    """Fingerprints of the proxy's host keys, and hashes of its CAs: those of the join command, and those that
    it announced since.

    Keys that a proxy announces over an authenticated connection are stored, so that it can change to its next
    key, and to its next CA, while agents run.  They are valid only together with the fingerprints of the join
    command.

    :param given: fingerprints of the join command.
    """

    _log = Logger()

    def __init__(self, state: Folder, given: Collection[str]) -> None:
        self._state = state
        self._given = sorted(given)
        self._announced = self._load()

    @property
    def pinned(self) -> set[str]:
        """All host keys that are accepted."""
        return {*self._given, *self._announced.host_keys}

    def ca_hashes(self) -> tuple[str, ...]:
        """Return the hashes of CAs that the proxy announced."""
        return self._announced.ca_hashes

    def _load(self) -> Announcement:
        try:
            stored = json.loads(self._state.read(_HOST_KEYS) or b"{}")
            if stored.get("given") != self._given:
                return Announcement()
            return _checked(stored["announced"], stored.get("caHashes", ()))
        except (ValueError, TypeError, AttributeError, KeyError, ConfigurationError):
            self._log.warn(
                "{name} in the state directory is damaged; it will be written again", name=_HOST_KEYS
            )
            return Announcement()

    def learn(self, announced: Announcement) -> None:
        """Store the pins of the proxy's hello; a write error is logged, and the next hello tries again."""
        try:
            self._store(announced)
        except ConfigurationError as e:
            self._log.warn("cannot store the host keys that the proxy announced: {reason}", reason=str(e))

    def update(self, announced: Announcement) -> None:
        """Store the pins of an announcement to this live tunnel; its success is the proxy's confirmation.

        :raise RequestRefused: they could not be stored.
        """
        try:
            self._store(announced)
        except ConfigurationError as e:
            self._log.warn("cannot store the host keys that the proxy announced: {reason}", reason=str(e))
            raise RequestRefused("the announcement could not be stored") from e

    def _store(self, announced: Announcement) -> None:
        valid = _checked(announced.host_keys, announced.ca_hashes)
        if valid == self._announced or not valid.host_keys:
            return
        stored = {"given": self._given, "announced": valid.host_keys, "caHashes": valid.ca_hashes}
        self._state.write(_HOST_KEYS, json.dumps(stored).encode())
        self._announced = valid


def _checked(host_keys: Collection[Any], ca_hashes: Collection[Any]) -> Announcement:
    return Announcement(
        tuple(sorted(checked_fingerprint(text) for text in host_keys)),
        tuple(sorted(parse_ca_hash(text) for text in ca_hashes)),
    )
