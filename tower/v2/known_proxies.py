"""Pinned host keys and CAs of the proxy, in the agent's state."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
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
    command; so are the hashes of CAs with its hashes, because a wrong `--ca-hash` must not succeed.

    :param given: fingerprints of the join command.
    :param given_hashes: hashes of CAs of the join command.
    :param is_stored: returns whether *state* has stored all that was written; some write later.
    """

    _log = Logger()

    def __init__(
        self,
        state: Folder,
        given: Collection[str],
        given_hashes: Collection[str] = (),
        is_stored: Callable[[], bool] = lambda: True,
    ) -> None:
        self._state = state
        self._is_stored = is_stored
        self._given = sorted(given)
        self._given_hashes = sorted(given_hashes)
        self._stored: dict[str, Any] = {}
        self._announced = self._load()

    @property
    def pinned(self) -> set[str]:
        """All host keys that are accepted."""
        return {*self._given, *self._announced.host_keys}

    def ca_hashes(self) -> tuple[str, ...]:
        """Return the hashes of CAs that the proxy announced."""
        return self._announced.ca_hashes

    def reload(self) -> None:
        """Read the state again, which another agent may have written."""
        self._announced = self._load()

    def _load(self) -> Announcement:
        try:
            stored = json.loads(self._state.read(_HOST_KEYS) or b"{}")
            if stored.get("given") != self._given:
                return Announcement()
            # files of earlier versions have no given hashes
            is_same = stored.get("givenHashes", self._given_hashes) == self._given_hashes
            found = _checked(stored["announced"], stored.get("caHashes", ()) if is_same else ())
            self._stored = {**stored, "used": str(stored.get("used", ""))}
            return found
        except (ValueError, TypeError, AttributeError, KeyError, ConfigurationError):
            self._log.warn(
                "{name} in the agent's state is damaged; it will be written again", name=_HOST_KEYS
            )
            return Announcement()

    def used(self, host_key: str) -> None:
        """Log a change of the host key, a fingerprint, that the proxy used for a tunnel."""
        earlier = self._stored.get("used", "")
        if host_key == earlier or not self._announced.host_keys:
            return
        if earlier:
            self._log.info(
                "the proxy's host key changed from {old} to {new}, as announced",
                old=earlier,
                new=host_key,
            )
        try:
            self._write({**self._stored, "used": host_key})
        except ConfigurationError as e:
            self._log.warn("cannot store the host key that the proxy uses: {reason}", reason=str(e))

    def learn(self, announced: Announcement) -> None:
        """Store the pins of the proxy's hello; a write error is logged, and the next hello tries again."""
        try:
            self._store(announced)
        except ConfigurationError as e:
            self._log.warn("cannot store the host keys that the proxy announced: {reason}", reason=str(e))

    def update(self, announced: Announcement) -> None:
        """Store the pins of an announcement to this live tunnel; its success is the proxy's confirmation.

        :raise RequestRefused: they could not be stored, or are not yet: the proxy announces them again.
        """
        try:
            self._store(announced)
        except ConfigurationError as e:
            self._log.warn("cannot store the host keys that the proxy announced: {reason}", reason=str(e))
            raise RequestRefused("the announcement could not be stored") from e
        if not self._is_stored():
            raise RequestRefused("the announcement is not stored yet")

    def _store(self, announced: Announcement) -> None:
        valid = _checked(announced.host_keys, announced.ca_hashes)
        if not valid.host_keys:
            return
        stored = {
            "given": self._given,
            "givenHashes": self._given_hashes,
            "announced": list(valid.host_keys),
            "caHashes": list(valid.ca_hashes),
            "used": self._stored.get("used", ""),
        }
        if stored == self._stored:
            return
        self._write(stored)
        before, self._announced = self._announced, valid
        self._report("host key", before.host_keys, valid.host_keys, self._given)
        self._report("CA", before.ca_hashes, valid.ca_hashes, self._given_hashes)

    def _write(self, stored: dict[str, Any]) -> None:
        self._state.write(_HOST_KEYS, json.dumps(stored).encode())
        self._stored = stored

    def _report(
        self, what: str, before: Collection[str], now: Collection[str], given: Collection[str]
    ) -> None:
        """Log which pins have changed; the first ones are not a change if none is *given*."""
        for pin in sorted({*now} - {*before, *given} if before or given else ()):
            self._log.info(
                "the proxy announced another {what}, {pin}, which is stored and accepted from now on",
                what=what,
                pin=pin,
            )
        for pin in sorted({*before} - {*now, *given}):
            self._log.info(
                "{what} {pin} is no longer accepted: the proxy no longer announces it",
                what=what,
                pin=pin,
            )


def _checked(host_keys: Collection[Any], ca_hashes: Collection[Any]) -> Announcement:
    return Announcement(
        tuple(sorted(checked_fingerprint(text) for text in host_keys)),
        tuple(sorted(parse_ca_hash(text) for text in ca_hashes)),
    )
