"""The settings of logins."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen


@frozen
class LoginSettings:
    """How users log in.

    :ivar clients: client IDs of ``tower login`` by issuer.
    :ivar secrets: of these clients, if the provider requires one; every user of the front door gets them.
    :ivar is_exclusive: ID tokens of these clients can only begin sessions.
    :ivar session_ttl: lifetime of the sessions of users, s.
    :ivar workload_ttl: lifetime of other sessions, s.
    :ivar requires_refresh: a provider that has refresh tokens must give one.
    :ivar accepts_device_codes: ID tokens without a nonce, such as those of logins by device code, begin
        sessions.
    """

    clients: Mapping[str, str] = field(factory=dict)
    session_ttl: float = 12 * 3600.0
    workload_ttl: float = 3600.0
    requires_refresh: bool = True
    is_exclusive: bool = False
    secrets: Mapping[str, str] = field(factory=dict, repr=False)
    accepts_device_codes: bool = True

    def client_of(self, issuer: str) -> str:
        """Return the client ID for an issuer; empty: users do not log in there."""
        return self.clients.get(issuer, "")
