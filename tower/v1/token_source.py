"""The cluster's token at an old proxy, which may be replaced in its file while the agent runs."""

from __future__ import annotations

from attrs import define, field
from twisted.logger import Logger

from tower.options.values import read_secret_file


@define(eq=False)
class TokenSource:
    """Reads the token.

    :param text: the token at the start.
    :param path: its file; empty: it was given by a flag, a variable or standard input, and never changes.
    """

    _log = Logger()

    _text: str = field(repr=False)
    _path: str = ""
    _failure: str = field(default="", init=False)

    def read(self) -> str:
        """Return the current token; if its file cannot be used, log that once and return the last one."""
        if not self._path:
            return self._text
        try:
            self._text, failure = read_secret_file(self._path), ""
        except ValueError as e:
            failure = f"{self._path} {e}"
        if failure and failure != self._failure:
            self._log.warn("the changed token file is not used: {reason}", reason=failure)
        self._failure = failure
        return self._text
