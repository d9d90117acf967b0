"""Starts of both programs with wrong options, and the comparison of their errors."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from twisted.internet.testing import MemoryReactorClock
from twisted.python import usage

from tests.fakes.certificates import authority
from tests.integration.differential.rows import STARTS
from tower.control.proxy_options import Options
from tower.errors import ConfigurationError
from tower.proxy import Proxy
from tower.store import MemoryStore
from tower.trust.pki import pem_of_key
from tower.trust.statedir import StateDir

#: Words around kube-apiserver's texts, of parsers and readers of files.
_AROUND = re.compile(
    r"""invalid\ argument\ ".*?"\ for\ "--[a-z-]+"\ flag:\ |invalid\ authorization\ config:\ |
    \ in\ scheme\ "[^"]*"|,\ help:\ .*|error\ loading\ CA\ bundle\ for\ "[^"]*":\ |
    \ "(?:client-ca-bundle|request-header)::[^"]*"|error\ reading\ public\ key\ file\ \S+:\ |
    failed\ to\ load\ authentication\ configuration\ from\ file\ "[^"]*":\ |:\ from\ file\ \S+$""",
    re.VERBOSE | re.DOTALL,
)

#: The end of the text, if the cure follows.
_CURE = re.compile(r"(?:[:;,]) ")

_FILE = re.compile(r": from file \S+$")

_NAMED = re.compile(r"--[a-z-]+(?: '.*?'| [^ :]+:|:)? ?")


def write_files(folder: Path) -> None:
    """Write the good files."""
    now = time.time()
    root = authority("a", now=now)
    key, other = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    named = root.server_certificate(["a"], 86400, now)
    for name, content in {
        "ca.crt": named.certificate_pem,
        "ca.key": named.key_pem,
        "other.key": pem_of_key(other),
        "rsa.key": pem_of_key(rsa.generate_private_key(65537, 2048)),
        "sa.pub": key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
    }.items():
        (folder / name).write_bytes(content)


class TowerStarts:
    """Tower in this process: its options, then the proxy with all files, which does not listen."""

    def __init__(self, folder: Path) -> None:
        self._state = folder / "state"
        self._reactor: Any = MemoryReactorClock()
        self._reactor.advance(time.time())
        self.of([])

    def of(self, options: Sequence[str]) -> list[str]:
        """Return the lines of the error; none: it starts."""
        found = Options({})
        try:
            found.parse(["--publish-service-address=tower.example", f"--state-dir={self._state}", *options])
            Proxy(found, StateDir(self._state), self._reactor, None, MemoryStore())
        except (usage.UsageError, ConfigurationError) as e:
            return str(e).splitlines()
        return []


def difference(theirs: str, ours: Sequence[str]) -> str:
    """Return how the errors differ; all of kube-apiserver's must be in Tower's lines, before the cures."""
    left = _AROUND.sub("", theirs)
    for line in map(_without_file, ours):
        text = next((each for each in _texts(line) if each in left), None)
        if text is None:
            return f"{line!r} is not in {left!r}"
        left = left.replace(text, "", 1)
    left = re.sub(r"--[a-z-]+ (?:\S+ )?", "", left)
    return f"{left!r} is missing" if left.strip("[], ") else ""


def _without_file(line: str) -> str:
    return _FILE.sub("", line)


def _texts(line: str) -> Iterator[str]:
    """Yield the parts of a line that may be kube-apiserver's text, the longest first."""
    bare = _NAMED.sub("", line, count=1)
    for whole in (line, bare):
        ends = [len(whole), *(each.start() for each in reversed(list(_CURE.finditer(whole))))]
        for end in ends:
            if end > 10:
                yield whole[:end]


def shown(error: str) -> str:
    """Return an error as differences show it."""
    return error or STARTS
