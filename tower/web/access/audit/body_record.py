"""Bounded copies of bodies, for the audit log; only requests whose level includes bodies make them."""

from __future__ import annotations

from tower.http.bodies import CHUNKED, BadBody, ChunkedBody
from tower.net.budget import Budget
from tower.net.pipes import Buffer

#: Longest body that is copied, framing included, B.
LIMIT = 256 * 1024


class BodyMemory:
    """Memory for the copies of all bodies, shared fairly between users.

    :param capacity: B; see `Budget.share` for the part that one user gets.
    :ivar budget: all users together.
    :ivar loans: of each user that has one, B.
    """

    def __init__(self, capacity: int) -> None:
        self.budget = Budget(capacity)
        self.loans: dict[str, int] = {}

    def borrow(self, user: str, size: int) -> bool:
        """Borrow *size* bytes; return False, and borrow nothing, if the share of *user* is less."""
        loan = self.loans.get(user, 0) + size
        if loan > self.budget.share(loan - size) or not self.budget.borrow(size):
            return False
        self.loans[user] = loan
        return True

    def give_back(self, user: str, size: int) -> None:
        """Return *size* borrowed bytes."""
        self.budget.give_back(size)
        self.loans[user] -= size
        if not self.loans[user]:
            del self.loans[user]


class BodyRecord:
    """A copy of one body as it passes, with its framing.

    :param memory: lends the memory, which all copies share.
    :param user: the user whose share of the memory the copy takes.
    :ivar media: media type, with parameters.
    :ivar encoding: content coding.
    :ivar size: number of bytes that have passed, framing included.
    :ivar is_whole: whether all of them were copied.
    """

    __slots__ = ("_framing", "_held", "_memory", "_pieces", "_user", "encoding", "is_whole", "media", "size")

    def __init__(
        self, memory: BodyMemory, user: str, framing: int, media: bytes | None, encoding: bytes | None
    ) -> None:
        self._memory = memory
        self._user = user
        self._framing = framing
        self._held = 0
        self._pieces: list[bytes] = []
        self.media = (media or b"").decode("ascii", "replace")
        self.encoding = (encoding or b"").decode("ascii", "replace").strip().lower()
        self.size = 0
        self.is_whole = True

    def add(self, data: Buffer) -> None:
        """Copy the next part, unless the body is too long or the user's share of the memory is used up."""
        size = len(data)
        self.size += size
        if not self.is_whole:
            return
        if self.size > LIMIT or not self._memory.borrow(self._user, size):
            self.is_whole = False
            self.release()
            return
        self._held += size
        self._pieces.append(bytes(data))

    def payload(self) -> bytes | None:
        """Return the body without framing; None: it was not copied as a whole."""
        if not self.is_whole:
            return None
        data = b"".join(self._pieces)
        if self._framing != CHUNKED:
            return data if self._framing < 0 else data[: self._framing]
        pieces: list[bytes] = []
        try:
            ChunkedBody(pieces).feed(data)
        except BadBody:
            return None
        return b"".join(pieces)

    def release(self) -> None:
        """Give the memory back."""
        held, self._held = self._held, 0
        self._pieces.clear()
        if held:
            self._memory.give_back(self._user, held)
