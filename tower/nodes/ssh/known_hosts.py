"""OpenSSH's known_hosts files (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from attrs import frozen
from twisted.logger import Logger

from tower.clusters.node import SSH_PORT, Node
from tower.conch.transport.fields import Malformed
from tower.conch.transport.signatures import SIGNATURES, key_type
from tower.files import ANYWHERE, Files, read_plain
from tower.nodes.ssh.host_keys import (
    HostKeyRefused,
    HostKeyRevoked,
    HostKeys,
    HostKeyUnknown,
    describe_key,
    key_mismatch,
    revoked_key,
    unknown_key,
)

#: Largest file that is read, B: some 40,000 hosts.
LARGEST = 8 * 1024 * 1024

#: Nodes whose lines are cached until the file changes.
_CACHED = 4096

_HASHED = "|1|"
_REVOKED = "@revoked"
_AUTHORITY = "@cert-authority"

_log = Logger()


class Pattern:
    """A name in a line: exact, with ``*`` and ``?``, or hashed.

    :ivar negated: whether the line excludes the hosts that match.
    """

    __slots__ = ("_digest", "_exact", "_like", "_salt", "negated")

    def __init__(self, text: str) -> None:
        self._salt = self._digest = b""
        self._exact = ""
        self._like: re.Pattern[str] | None = None
        self.negated = False
        if text.startswith(_HASHED):
            salt, _, digest = text.removeprefix(_HASHED).partition("|")
            self._salt, self._digest = b64decode(salt, validate=True), b64decode(digest, validate=True)
            if len(self._digest) != hashlib.sha1(usedforsecurity=False).digest_size:
                raise ValueError("a hashed name of the wrong length")
            return
        self.negated = text.startswith("!")
        name = text.removeprefix("!").lower()
        if not name:
            raise ValueError("an empty name")
        if "*" in name or "?" in name:
            parts = re.split(r"([*?])", name)
            like = "".join({"*": ".*", "?": "."}.get(part) or re.escape(part) for part in parts)
            self._like = re.compile(re.sub(r"(?:\.\*)+", ".*", like))
        else:
            self._exact = name

    def matches(self, name: str) -> bool:
        """Return whether *name*, in lower case, matches."""
        if self._digest:
            digest = hmac.digest(self._salt, name.encode(), "sha1")
            return hmac.compare_digest(digest, self._digest)
        if self._like is not None:
            return self._like.fullmatch(name) is not None
        return name == self._exact


@frozen
class Line:
    """A parsed line; *number* counts from 1."""

    number: int
    patterns: tuple[Pattern, ...]
    blob: bytes
    is_revoked: bool

    def matches(self, name: str) -> bool:
        """Return whether the line is for *name*."""
        found = [pattern for pattern in self.patterns if pattern.matches(name)]
        return bool(found) and not any(pattern.negated for pattern in found)


def parse_line(number: int, text: str) -> Line | None:
    """Return a parsed line, None for an empty line, a comment or a CA; raise ValueError if it is invalid."""
    words = text.split()
    if not words or words[0].startswith("#"):
        return None
    marker = words.pop(0) if words[0].startswith("@") else ""
    if marker == _AUTHORITY:
        return None
    if marker not in {"", _REVOKED}:
        raise ValueError(f"its marker is unknown; use {_REVOKED} or {_AUTHORITY}")
    if len(words) < 3:
        raise ValueError("names, type or key is missing")
    names, kind, encoded = words[:3]
    try:
        blob = b64decode(encoded, validate=True)
        is_right = key_type(blob) == kind.encode()
    except (binascii.Error, Malformed) as error:
        raise ValueError("its key is damaged") from error
    if not is_right:
        raise ValueError("the type of its key is not the stated one")
    if kind.encode() not in SIGNATURES and not marker:
        raise ValueError("the type of its key is not supported")
    return Line(number, tuple(Pattern(name) for name in names.split(",")), blob, marker == _REVOKED)


class KnownHosts(HostKeys):
    """The file *path*, read again whenever it has changed.

    A node is looked up by its host, then by its name; each first with its port, unless that is 22, then
    without, as OpenSSH does.

    :param may_be_missing: whether not to log that the file does not exist.
    :param files: opens *path*.
    :ivar lines: the valid lines.
    """

    def __init__(self, path: str | Path, *, may_be_missing: bool = False, files: Files = ANYWHERE) -> None:
        self.path = Path(path)
        self._files = files
        self._may_be_missing = may_be_missing
        self._stamp: object = None
        self.lines: Sequence[Line] = ()
        self._found: dict[Node, Sequence[Line]] = {}
        self._problem = ""

    def kinds(self, node: Node) -> set[bytes]:
        """See `HostKeys.kinds`."""
        return {key_type(line.blob) for line in self._lines_of(node)}

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`.

        :raise HostKeyUnknown: the file has no key of *node*.
        :raise HostKeyRefused: the file has another key, or revokes this one.
        """
        lines = self._lines_of(node)
        for line in self.lines:
            if line.is_revoked and line.blob == blob and any(map(line.matches, _names(node))):
                raise revoked_key(node, blob, self._location(line))
        if any(line.blob == blob for line in lines):
            return
        if not lines:
            raise unknown_key(node, blob, f"{self.path}{self._problem}")
        same = [line for line in lines if key_type(line.blob) == key_type(blob)] or lines
        raise key_mismatch(
            node,
            blob,
            " or ".join(f"{describe_key(line.blob)} of {self._location(line)}" for line in same[:3]),
        )

    def _location(self, line: Line) -> str:
        return f"{self.path} line {line.number}"

    def _lines_of(self, node: Node) -> Sequence[Line]:
        """Return the lines with keys of *node*."""
        self._refresh()
        found = self._found.get(node)
        if found is None:
            if len(self._found) >= _CACHED:
                self._found.clear()
            valid = [line for line in self.lines if not line.is_revoked]
            for name in _names(node):
                found = [line for line in valid if line.matches(name)]
                if found:
                    break
            self._found[node] = found = found or []
        return found

    def _refresh(self) -> None:
        """Read the file if it has changed."""
        try:
            now = self._files.stat(self.path)
            stamp: object = (now.st_mtime_ns, now.st_size, now.st_ino, now.st_dev)
            if stamp == self._stamp:
                return
            text = self._read()
        except OSError as error:
            # missing or unreadable, perhaps for a moment only: the known keys are not trusted meanwhile
            stamp = problem = (error.strerror or str(error)).lower()
            is_expected = self._may_be_missing and isinstance(error, FileNotFoundError)
            if stamp != self._stamp and not is_expected:
                _log.warn("cannot read known hosts: {path}: {reason}", path=str(self.path), reason=problem)
            self._stamp, self.lines, self._problem = stamp, (), f" (which cannot be read: {problem})"
            self._found.clear()
            return
        self._stamp, self._problem = stamp, ""
        self.lines = tuple(self._parse(text))
        self._found.clear()

    def _read(self) -> str:
        data = read_plain(self.path, LARGEST + 1, self._files)
        if len(data) > LARGEST:
            raise OSError(0, f"more than {LARGEST} B")
        return data.decode("utf-8", "replace")

    def _parse(self, text: str) -> Iterator[Line]:
        for number, each in enumerate(text.split("\n"), 1):
            if each.lstrip().startswith(_AUTHORITY):
                _log.info(
                    "{path} line {number}: ignored: host certificates are not supported",
                    path=str(self.path),
                    number=number,
                )
            try:
                line = parse_line(number, each)
            except ValueError as error:
                _log.warn(
                    "{path} line {number}: ignored: {reason}",
                    path=str(self.path),
                    number=number,
                    reason=str(error),
                )
                continue
            if line is not None:
                yield line


def _names(node: Node) -> Iterator[str]:
    """Return the names of *node* in a file, in order of precedence."""
    for host in dict.fromkeys((node.host.lower(), node.name.lower())):
        if node.port != SSH_PORT:
            yield f"[{host}]:{node.port}"
        yield host


class KnownHostsFiles(HostKeys):
    """Several files, at least one: any may list a key, and any may revoke it; errors name the first."""

    def __init__(self, files: Iterable[KnownHosts]) -> None:
        self.files: Sequence[KnownHosts] = tuple(files)

    def kinds(self, node: Node) -> set[bytes]:
        """See `HostKeys.kinds`."""
        return {kind for file in self.files for kind in file.kinds(node)}

    def judge(self, node: Node, blob: bytes) -> None:
        """See `HostKeys.judge`.

        :raise HostKeyUnknown: no file has a key of *node*.
        :raise HostKeyRefused: the files have other keys only, or revoke this one.
        """
        problem: HostKeyRefused | None = None
        is_known = False
        for file in self.files:
            try:
                file.judge(node, blob)
            except HostKeyRevoked:
                raise
            except HostKeyUnknown as e:
                problem = problem or e
            except HostKeyRefused as e:
                problem = e if problem is None or isinstance(problem, HostKeyUnknown) else problem
            else:
                is_known = True
        if problem is not None and not is_known:
            raise problem
