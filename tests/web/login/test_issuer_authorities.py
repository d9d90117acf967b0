"""Tests of `tower.web.login.issuer_authorities`."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tests.fakes.id_tokens import ISSUER
from tower.files import read_plain
from tower.options.followed_file import PERIOD
from tower.web.login import issuer_authorities
from tower.web.login.issuer_authorities import IssuerAuthorities


class IssuerAuthoritiesTests(SynchronousTestCase):
    """One file."""

    def test_file(self) -> None:
        """A file is read at most once in a period; changes count, and a lost file keeps its content."""
        clock, reads = Clock(), list[str]()

        def read(path: str, limit: int) -> bytes:
            reads.append(path)
            return read_plain(path, limit)

        self.patch(issuer_authorities, "read_plain", read)
        path, first, second = Path(self.mktemp()), authority("a").pem, authority("b").pem
        path.write_bytes(b"text\n" + first)
        found, issuer = IssuerAuthorities(lambda: 100 + clock.seconds()), evolve(ISSUER, ca_file=str(path))
        for _ in range(5):
            self.assertEqual(found.of(issuer), first.decode())
        self.assertEqual(len(reads), 1)
        path.write_bytes(first + second)
        clock.advance(PERIOD)
        self.assertEqual(found.of(issuer), (first + second).decode())
        path.unlink()
        clock.advance(PERIOD)
        self.assertEqual(found.of(issuer), (first + second).decode())
        self.assertEqual(found.of(evolve(ISSUER, authorities=b"x" + first)), first.decode())
        self.assertEqual(found.of(ISSUER), "")
