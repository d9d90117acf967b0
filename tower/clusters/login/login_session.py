"""One login session."""

from __future__ import annotations

from typing import Any

from attrs import asdict, field, frozen

from tower.errors import Invalid
from tower.store.records import Record, Value, check_fields

#: Beginning of all IDs.
ID_PREFIX = "s-"


@frozen
class LoginSession:
    """The session of a user's client.

    :ivar id: not secret.
    :ivar user: as the provider's token names the user; also *groups*, *uid* and *extra*.
    :ivar issuer: URL of the provider.
    :ivar settings: fingerprint of the settings of the issuer when the user logged in.
    :ivar subject: of the provider's tokens.
    :ivar key: the client's public key, Ed25519, base64.
    :ivar created: s since the epoch.
    :ivar expires: s since the epoch.
    :ivar confirmed: when the provider last confirmed the user, s since the epoch.
    :ivar sealed: the provider's refresh token, sealed; empty: there is none.
    :ivar client: description of the client, for the user and administrators.
    """

    id: str
    user: str
    groups: tuple[str, ...]
    uid: str
    extra: tuple[tuple[str, tuple[str, ...]], ...]
    issuer: str
    settings: str
    subject: str
    key: str = field(repr=False)
    created: float
    expires: float
    confirmed: float
    sealed: str = field(default="", repr=False)
    client: str = ""

    @property
    def is_confirmed_again(self) -> bool:
        """Whether the provider confirms the user from time to time."""
        return bool(self.sealed)


def encode_session(session: LoginSession) -> Value:
    """Return the value of the record."""
    return {
        **asdict(session, filter=lambda attribute, _: attribute.name != "id"),
        "groups": list(session.groups),
        "extra": [[name, list(values)] for name, values in session.extra],
    }


def decode_session(record: Record) -> LoginSession:
    """Return the session in a record.

    :raise Invalid: it has unknown fields, which may limit it, or is malformed.
    """
    value: dict[str, Any] = {**record.value, "id": record.name}
    try:
        check_fields(LoginSession, value)
        value["groups"] = tuple(value["groups"])
        value["extra"] = tuple((name, tuple(values)) for name, values in value["extra"])
        return LoginSession(**value)
    except (Invalid, TypeError, ValueError) as e:
        raise Invalid(
            f"login session {record.name} is rejected: its record has {e}, as written by a newer Tower: "
            "upgrade this one, or let the user log in again"
        ) from None
