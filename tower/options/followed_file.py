"""Values in files that options name, read again when the content changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.files import read_plain

#: Interval of `FollowedFile.check`, s.
PERIOD = 2.0

#: Largest file, B.
LIMIT = 4 << 20

C = TypeVar("C")
T = TypeVar("T")


class Followed(Generic[C, T]):
    """The value of a content; while a changed content cannot be used, the last value stays in use.

    The content is compared, so links, renames and times do not matter: Kubernetes replaces the files of a
    Secret by a symbolic link to another directory.

    :param option: names the content.
    :param name: the option and its value, for errors and the log.
    :param read: returns the current content.
    :param parse: returns the value of a content; raises `ValueError` with the problem and the cure.
    :raise ConfigurationError: the content cannot be read or used.
    :ivar option: its name.
    :ivar name: see above.
    :ivar value: the current value.
    :ivar problem: why the last check could not use the content; empty if it could.
    :ivar on_change: called after `value` has changed; if it raises an error, the last value is restored, and
        the next check tries again.
    :ivar on_use: called with the last and the new content once the new one is in use.
    :ivar on_failure: called once for each problem of a changed content.
    """

    _log = Logger()

    def __init__(self, option: str, name: str, read: Callable[[], C], parse: Callable[[C], T]) -> None:
        self.option = option
        self.name = name
        self._read = read
        self._parse = parse
        self.problem = ""
        self._content = self._read()
        self.value = self._parsed(self._content)
        self.on_change: Callable[[], object] = lambda: None
        self.on_use: Callable[[C, C], object] = lambda _last, _new: None
        self.on_failure: Callable[[], object] = lambda: None

    def check(self) -> None:
        """Use the current content; log once why it cannot be used."""
        try:
            changed = self._update()
        except ConfigurationError as e:
            if self._is_new(e):
                self._log.error("{problem}; its last content stays in use", problem=self.problem)
            return
        self.problem = ""
        if changed:
            self._log.info("{file}: using its new content", file=self.name)

    def reload(self) -> str:
        """Do the same for `tower.reactor.signals.Reloads`.

        :raise ConfigurationError: the content cannot be used, and the last value stays in use.
        """
        try:
            changed = self._update()
        except ConfigurationError as e:
            self._is_new(e)
            raise
        self.problem = ""
        return "changed" if changed else "unchanged"

    def _is_new(self, problem: ConfigurationError) -> bool:
        """Return whether this is not the last problem."""
        if str(problem) == self.problem:
            return False
        self.problem = str(problem)
        self.on_failure()
        return True

    def _update(self) -> bool:
        content = self._read()
        if content == self._content:
            return False
        previous, self.value = self.value, self._parsed(content)
        try:
            self.on_change()
        except Exception:
            self.value = previous
            raise
        last, self._content = self._content, content
        self.on_use(last, content)
        return True

    def _parsed(self, content: C) -> T:
        try:
            return self._parse(content)
        except ValueError as e:
            raise ConfigurationError(f"{self.name}: {e}") from e


class FollowedFile(Followed[bytes, T]):
    """The value in a file.

    :raise ConfigurationError: the file cannot be used; names option and file.
    """

    def __init__(self, option: str, path: Path, parse: Callable[[bytes], T]) -> None:
        super().__init__(option, f"--{option} {path}", reader(option, path), parse)


class FollowedFiles(Followed[tuple[bytes, ...], T]):
    """The value of the contents of several files together; each must be valid without the others, too.

    :raise ConfigurationError: one of the files cannot be used; names option and file.
    """

    def __init__(self, option: str, paths: Sequence[Path], parse: Callable[[bytes], T]) -> None:
        readers = [reader(option, path) for path in paths]

        def parse_all(contents: tuple[bytes, ...]) -> T:
            for path, content in zip(paths, contents, strict=True):
                try:
                    parse(content)
                except ValueError as e:
                    raise ConfigurationError(f"--{option} {path}: {e}") from e
            return parse(b"\n".join(contents))

        name = f"--{option} {', '.join(map(str, paths))}"
        super().__init__(option, name, lambda: tuple(read() for read in readers), parse_all)


def reader(option: str, path: Path) -> Callable[[], bytes]:
    """Return a function that reads the file of *option*, also after a change of the working directory.

    It raises `ConfigurationError` if the file cannot be read.
    """
    absolute = path.absolute()

    def read() -> bytes:
        try:
            content = read_plain(absolute, LIMIT + 1)
        except OSError as e:
            verb = "read" if isinstance(e, IsADirectoryError) else "open"
            raise ConfigurationError(
                f"--{option}: {verb} {path}: {str(e.strerror).lower()}: name a readable file"
            ) from e
        if len(content) > LIMIT:
            raise ConfigurationError(f"--{option} {path}: larger than {LIMIT} B: name another file")
        return content

    return read
