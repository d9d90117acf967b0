"""The error tree.  The second level says whose fault it is, and so what to do."""

from __future__ import annotations

from typing import ClassVar

from tower.escaping import reported

#: Longest text that is kept about a failure.
_LONGEST = 500


class TowerError(Exception):
    """Parent of everything Tower raises on purpose; its text is for people and holds no secret."""


class ConfigurationError(TowerError):
    """An option, a file or a port that cannot work: print the one line and exit 1."""


class ClusterUnreachable(TowerError):
    """The cluster did not answer: tell the client, maybe retry."""


class PeerError(TowerError):
    """The remote side broke the protocol: drop that connection, keep serving.

    :cvar for_peer: what the remote side is told, where the text is for our own people alone.
    """

    for_peer: ClassVar[str] = ""


class Unauthorized(TowerError):
    """Nobody we know: answer 401.

    :ivar reason: what exactly was wrong, for the log alone; never sent to the peer.
    """

    def __init__(self, message: str = "Unauthorized", reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class Forbidden(TowerError):
    """Known, but not allowed: answer 403."""


class Invalid(TowerError):
    """The request makes no sense: answer 422 with the name, the value and the cure."""


class NotFound(TowerError):
    """There is no such object: answer 404."""


class AlreadyExists(TowerError):
    """There is such an object already: answer 409, reason AlreadyExists."""


class Conflict(TowerError):
    """The object was changed in between: read it again and retry; answer 409, reason Conflict."""


def one_line(error: BaseException | None) -> str:
    """Return what *error* says, in one line of bounded length."""
    return " ".join((str(error) or type(error).__name__).split())[:_LONGEST]


class StreamRefused(TowerError):
    """The far end did not open the stream.

    :ivar code: ``not-allowed``, ``no-such-target``, ``busy``, ``refused``, ``unreachable``, ``timeout``,
        ``name``, ``tls`` or ``failed``.
    :ivar reason: RFC 4254's number in the far end's message; 0 where there was none.
    :ivar said: the far end's words, up to `LONGEST_SAID`; None where the text is ours.
    """

    def __init__(self, code: str, text: str, reason: int = 0, said: str | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.reason = reason
        self.said = said

    def told_by(self, who: str) -> str:
        """Return the text; where it is the far end's, as words of *who*."""
        return str(self) if self.said is None else reported(who, self.said)


class TunnelLost(TowerError):
    """The tunnel went away."""
