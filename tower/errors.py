"""Exceptions; the classes below `TowerError` determine the response."""

from __future__ import annotations

from typing import ClassVar

from tower.escaping import reported

#: Kinds of failed authentications.
AUTH_FAILURES = (
    "no-credential",
    "unknown",
    "expired",
    "revoked",
    "removed",
    "not-yet-valid",
    "rejected-certificate",
    "other",
)

#: Kinds of requests that Tower itself denies to authenticated users.
POLICY_REFUSALS = (
    "other-cluster",
    "unknown-cluster",
    "not-administrator",
    "reserved-identity",
    "impersonation",
    "access-policy",
    "authorization-mode",
    "other",
)

#: Longest text of `one_line`, characters.
_LONGEST = 500


class TowerError(Exception):
    """Base class; the text is for users and operators, and contains no secret.

    :ivar permanent: whether a retry fails too until a setting, a file or a clock is changed.
    """

    permanent: bool = False


class ConfigurationError(TowerError):
    """An option, file or port is invalid: print one line and exit with 1."""


class ClusterUnreachable(TowerError):
    """The cluster did not answer: report it to the client, or retry."""


class PeerError(TowerError):
    """The peer violated the protocol: close that connection, keep serving.

    :cvar for_peer: text for the peer, if that of the error is for the log only.
    """

    for_peer: ClassVar[str] = ""


class Unauthorized(TowerError):
    """Authentication failed: answer 401.

    :ivar reason: the exact reason, for the log only; never sent to the peer.
    :ivar kind: of the reason, for metrics: one of `AUTH_FAILURES`.
    """

    def __init__(self, message: str = "Unauthorized", reason: str = "", kind: str = "other") -> None:
        super().__init__(message)
        self.reason = reason or message
        self.kind = kind


class Outdated(Unauthorized):
    """The user of an identity has changed: authenticate the request again; requests in progress end."""


class Forbidden(TowerError):
    """Authenticated, but not authorized: answer 403.

    :ivar kind: of the reason, for metrics: one of `POLICY_REFUSALS`.
    """

    def __init__(self, message: str, kind: str = "other") -> None:
        super().__init__(message)
        self.kind = kind


class Invalid(TowerError):
    """The request is invalid: answer 422 with name, value and cure."""


class NotFound(TowerError):
    """The object does not exist: answer 404."""


class AlreadyExists(TowerError):
    """The object exists already: answer 409, reason AlreadyExists."""


class Conflict(TowerError):
    """The object has changed: the client must read it again; answer 409, reason Conflict."""


def one_line(error: BaseException | None) -> str:
    """Return the text of *error*, in one line of bounded length."""
    return " ".join((str(error) or type(error).__name__).split())[:_LONGEST]


class StreamRefused(TowerError):
    """The far end did not open the stream.

    :ivar code: ``not-allowed``, ``no-such-target``, ``busy``, ``refused``, ``unreachable``, ``timeout``,
        ``name``, ``tls`` or ``failed``.
    :ivar reason: RFC 4254's reason code; 0 without one.
    :ivar peer_text: the far end's text, up to `PEER_TEXT_LIMIT` characters; None if the text is Tower's.
    """

    def __init__(self, code: str, text: str, reason: int = 0, peer_text: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason
        self.peer_text = peer_text

    def reported_by(self, peer: str) -> str:
        """Return the text; a text of the far end is attributed to *peer*."""
        return str(self) if self.peer_text is None else reported(peer, self.peer_text)


class TunnelLost(TowerError):
    """The tunnel was closed."""
