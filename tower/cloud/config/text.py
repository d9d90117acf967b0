"""The text of a cloud's configuration, and where it came from."""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen

from tower.files import ANYWHERE, Files, read_plain

#: Largest configuration that is read, B.
CONFIG_LIMIT = 256 << 10


def _without_mark(text: str) -> str:
    return text.removeprefix("\ufeff")


@frozen
class ConfigText:
    """A configuration as it was read, with passwords in it: its text is not shown by ``repr``.

    :ivar path: for errors.
    :ivar text: without a byte order mark.
    """

    path: str
    text: str = field(repr=False, converter=_without_mark)


def read_config(path: str | Path, files: Files = ANYWHERE) -> ConfigText:
    """Read a configuration.

    :param files: where *path* is looked for.
    :raise OSError: with a ``strerror`` that says why it cannot be read.
    """
    data = read_plain(path, CONFIG_LIMIT + 1, files)
    if len(data) > CONFIG_LIMIT:
        raise OSError(None, f"larger than {CONFIG_LIMIT} B")
    try:
        return ConfigText(str(path), data.decode())
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise OSError(None, f"not UTF-8 in line {line}") from None
