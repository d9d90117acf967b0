"""Reading a cloud's configuration file."""

from __future__ import annotations

from pathlib import Path

from attrs import field, frozen

from tower.files import ANYWHERE, Files, read_plain

#: Maximum size of a configuration file, B.
CONFIG_LIMIT = 256 << 10


def _without_mark(text: str) -> str:
    return text.removeprefix("\ufeff")


@frozen
class ConfigText:
    """A configuration file's path and text; the text may have passwords and is not in the ``repr``.

    :ivar text: without a byte order mark.
    """

    path: str
    text: str = field(repr=False, converter=_without_mark)


def read_config(path: str | Path, files: Files = ANYWHERE) -> ConfigText:
    """Read a configuration file.

    :param files: the files that may be read.
    :raise OSError: it cannot be read, is too large, or is not UTF-8; see its ``strerror``.
    """
    data = read_plain(path, CONFIG_LIMIT + 1, files)
    if len(data) > CONFIG_LIMIT:
        raise OSError(None, f"larger than {CONFIG_LIMIT} B")
    try:
        return ConfigText(str(path), data.decode())
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        raise OSError(None, f"not UTF-8 in line {line}") from None
