"""Pinned host keys of the proxy, in the agent's state directory."""

from __future__ import annotations

import json
from collections.abc import Collection

from twisted.logger import Logger

from tower.conch.transport.keys import Folder, checked_fingerprint
from tower.errors import ConfigurationError

_HOST_KEYS = "host-keys.json"


class KnownProxies:
    """Fingerprints of the proxy's host keys: those of the join command, and those that it announced since.

    Keys that a proxy announces over an authenticated connection are stored, so that it can change to its next
    key while agents run.  They are valid only together with the fingerprints of the join command.

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
        return {*self._given, *self._announced}

    def _load(self) -> list[str]:
        try:
            stored = json.loads(self._state.read(_HOST_KEYS) or b"{}")
            if stored.get("given") != self._given:
                return []
            return [checked_fingerprint(text) for text in stored["announced"]]
        except (ValueError, TypeError, AttributeError, KeyError, ConfigurationError):
            self._log.warn(
                "{name} in the state directory is damaged; it will be written again", name=_HOST_KEYS
            )
            return []

    def learn(self, announced: Collection[str]) -> None:
        """Store the announced keys; a write error is logged, and the next hello tries again."""
        try:
            valid = sorted(checked_fingerprint(text) for text in announced)
            if valid == self._announced or not valid:
                return
            stored = {"given": self._given, "announced": valid}
            self._state.write(_HOST_KEYS, json.dumps(stored).encode())
        except ConfigurationError as e:
            self._log.warn("cannot store the host keys that the proxy announced: {reason}", reason=str(e))
        else:
            self._announced = valid
