"""A certificate and its key in two files that options name, read together."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tower.options.followed_file import Followed, reader
from tower.trust.named_certificates import PairFiles

T = TypeVar("T")


class FollowedPair(Followed[tuple[bytes, bytes], T]):
    """The value of a certificate and its key; the last one stays in use until both files fit.

    :param option: names both files.
    :param name: see `Followed`.
    :param parse: returns the value of both contents.
    :param key_option: names the file of the key; empty: *option* does.
    :raise ConfigurationError: a file cannot be read, or both cannot be used.
    """

    def __init__(
        self,
        option: str,
        name: str,
        files: PairFiles,
        parse: Callable[[bytes, bytes], T],
        key_option: str = "",
    ) -> None:
        certificate, key = reader(option, files.certificate), reader(key_option or option, files.key)
        super().__init__(option, name, lambda: (certificate(), key()), lambda found: parse(*found))
