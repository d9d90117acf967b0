"""Sections of a cloud's configuration, and their typed values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from ipaddress import ip_address
from urllib.parse import urlsplit

from attrs import define, field, frozen
from twisted.logger import Logger

from tower.cloud.errors import CloudConfigError

_YES = frozenset(("true", "yes", "on", "1"))
_NO = frozenset(("false", "no", "off", "0"))
_PRINTED = re.compile(r"[!-~]+")
_NUMBER = re.compile(r"[0-9]{1,18}|0[xX][0-9A-Fa-f]{1,15}", re.ASCII)

_log = Logger()


@frozen
class Value:
    """Value of a key; not in the ``repr``: it may be a password.

    :ivar line: its first line, from 1.
    :ivar text: None: the key has no ``=``.
    """

    line: int
    text: str | None = field(repr=False)


@define
class Section:
    """The keys below one header, or below several equal ones.

    Names of keys are case-insensitive.  An invalid value raises `CloudConfigError` with the key's line.

    :ivar file: for errors.
    :ivar line: of the first header; 0: there is none.
    :ivar values: by lower-case name, in the order of the file.
    """

    file: str
    name: str
    subsection: str = ""
    line: int = 0
    values: dict[str, list[Value]] = field(factory=dict)

    def __contains__(self, key: str) -> bool:
        return key.lower() in self.values

    def text(self, key: str, default: str = "") -> str:
        """Return the text of a key; if the key is repeated, the last one."""
        texts = self.texts(key)
        return texts[-1] if texts else default

    def required(self, key: str) -> str:
        """Return the text of a required key, which must not be empty."""
        text = self.text(key)
        if not text:
            raise self.wrong(key, f"{key} is missing" if key not in self else f"{key} is empty")
        return text

    def texts(self, key: str) -> list[str]:
        """Return all texts of a key."""
        texts = []
        for value in self.values.get(key.lower(), ()):
            if value.text is None:
                raise CloudConfigError(self.file, value.line, f"{key} needs a value: {key} = ...")
            texts.append(value.text)
        return texts

    def flag(self, key: str, default: bool = False) -> bool:
        """Return a boolean; a key without a value is true."""
        values = self.values.get(key.lower())
        if not values:
            return default
        text = values[-1].text
        if text is None or text.lower() in _YES:
            return True
        if text.lower() in _NO:
            return False
        raise self.wrong(key, f"{key} must be true or false")

    def number(self, key: str, default: int, *, least: int = 0, most: int = 2**31 - 1) -> int:
        """Return an integer within limits, decimal or, with ``0x``, hexadecimal."""
        if key not in self:
            return default
        text = self.text(key)
        if _NUMBER.fullmatch(text):
            number = int(text, 16 if text[:2] in ("0x", "0X") else 10)
            if least <= number <= most:
                return number
        raise self.wrong(key, f"{key} must be a number from {least} to {most}")

    def url(self, key: str, default: str, *, query: bool = False) -> str:
        """Return an HTTP or HTTPS URL without user and fragment, and without a trailing slash.

        :param query: whether a query is allowed; such a URL is returned unchanged.
        """
        text = self.text(key) or default
        try:
            parts = urlsplit(text)
            good = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        unwanted = good and ((parts.query and not query) or parts.fragment or "@" in parts.netloc)
        if not good or unwanted or not _PRINTED.fullmatch(text):
            raise self.wrong(key, f"{key} must be a URL like https://HOST/PATH")
        return text if "?" in text else text.rstrip("/")

    def wrong(self, key: str, text: str) -> CloudConfigError:
        """Return an error with the last line of a key, or the header's."""
        values = self.values.get(key.lower())
        return CloudConfigError(self.file, values[-1].line if values else self.line, text)


class Sections:
    """A whole configuration; *file* is for errors."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._sections: dict[tuple[str, str], Section] = {}

    def __iter__(self) -> Iterator[Section]:
        return iter(self._sections.values())

    def section(self, name: str, subsection: str = "") -> Section:
        """Return a section; a missing one is empty."""
        found = self._sections.get((name.lower(), subsection))
        return Section(self.file, name, subsection) if found is None else found

    def subsections(self, name: str) -> dict[str, Section]:
        """Return the sections ``[name "..."]`` by the text in quotes, in the order of the file."""
        return {each.subsection: each for each in self if each.name == name.lower() and each.subsection}

    def open(self, name: str, subsection: str, line: int) -> Section:
        """Return a section; add it if it is missing."""
        key = (name.lower(), subsection)
        if key not in self._sections:
            self._sections[key] = Section(self.file, *key, line)
        return self._sections[key]

    def warn_about_unknown(self, known: Mapping[str, Collection[str]]) -> None:
        """Log a warning with file and line for each unknown section and key.

        :param known: names of keys by name of section, for its subsections too.
        """
        names = {section.lower(): {key.lower() for key in keys} for section, keys in known.items()}
        for section in self:
            keys = names.get(section.name)
            if keys is None:
                _warn(self.file, section.line, "unknown section")
                continue
            for key, values in section.values.items():
                if key not in keys:
                    _warn(self.file, values[0].line, f"unknown key in [{section.name}]")


@lru_cache(maxsize=1000)  # a program reads a file once to check it, and again to use it
def _warn(file: str, line: int, text: str) -> None:
    _log.warn("{file}:{line}: {text} ignored", file=file, line=line, text=text)


def read_url(section: Section, key: str, default: str, *, is_secret: bool = True, query: bool = False) -> str:
    """Return the URL of a key, or *default*, see `Section.url`.

    :param is_secret: credentials are sent there: warn if it is not HTTPS.
    :raise CloudConfigError: it is not valid.
    """
    url = section.url(key, default, query=query)
    if is_secret:
        warn_unless_safe(key, url)
    return url


def warn_unless_safe(name: str, url: str) -> None:
    """Log a warning if credentials for *url* are sent in cleartext over a network."""
    if url and not is_safe(url):
        _log.warn(
            "NOT SECURE: {name} is not https://: credentials for {host} are sent in cleartext",
            name=name,
            host=urlsplit(url).hostname,
        )


def is_safe(url: str) -> bool:
    """Return whether a URL is HTTPS, or HTTP on the loopback interface."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host)))


def is_loopback(host: str) -> bool:
    """Return whether a name or address is of the loopback interface."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
