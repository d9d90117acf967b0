"""The known name that a misspelt one probably means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

#: Longest word that is compared, characters: the time grows with the product of the lengths.
LONGEST = 64


def nearest_name(word: str, names: Iterable[str], similarity: float = 0.6) -> str:
    """Return the one of *names* that is most similar to *word*; empty if none is similar enough.

    :param similarity: least similarity, 0 to 1; see `difflib.get_close_matches`.
    """
    if len(word) > LONGEST:
        return ""
    return next(iter(get_close_matches(word, sorted(names), 1, similarity)), "")
