"""Tests of `tower.web.access.authentication.token_file`."""

from __future__ import annotations

import hashlib
from pathlib import Path

from attrs import define
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.log_lines import logged_lines
from tower.errors import Unauthorized
from tower.web.access.authentication import token_key
from tower.web.access.authentication.identity import TOKEN_LIMIT, Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.token_file import (
    StaticTokenAuthenticator,
    StaticTokens,
    parse_tokens,
)

PATH = Path("tokens.csv")
HASH = hashlib.sha256(b"s3cret").hexdigest()


def parse(text: str) -> StaticTokens:
    """Return the users in a file."""
    return parse_tokens(text.encode(), PATH)


@define
class File:
    """The file of the tokens."""

    value: StaticTokens


class StaticTokenTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with a file of two users."""
        self.file = File(parse(f'plain,jane,1,"dev,qa"\nsha256:{HASH.upper()},jürgen,2\n'))
        self.method = StaticTokenAuthenticator(self.file)

    def user(self, token: bytes | None) -> Identity | None:
        """Return the user of a token."""
        return self.method.authenticate(Presented(None, token))

    def known(self, token: bytes) -> Identity:
        """Return the user of a token in the file."""
        identity = self.user(token)
        assert identity is not None
        return identity

    def problem(self, text: str) -> str:
        """Return the reason why a file is rejected."""
        with self.assertRaises(ValueError) as caught:
            parse(text)
        problem = str(caught.exception)
        self.assertNotIn("s3cret", problem)
        return problem

    def test_users(self) -> None:
        """A token in plain text and one that only the hash describes; all others are unknown."""
        jane, other = self.known(b"plain"), self.known(b"s3cret")
        self.assertEqual((jane.user, jane.uid, jane.groups), ("jane", "1", ("dev", "qa")))
        self.assertEqual((other.user, other.uid, other.groups), ("jürgen", "2", ()))
        self.assertEqual((jane.method, jane.credential), ("token-file", None))
        self.assertNotEqual(jane.session, other.session)
        for token in (
            None,
            b"",
            b"Plain",
            f"sha256:{HASH}".encode(),
            HASH.encode(),
            b"x" * (TOKEN_LIMIT + 1),
        ):
            self.assertIsNone(self.user(token))

    def test_key_hides_token(self) -> None:
        """The key of an identity, which the audit log shows, depends on a secret of the process."""
        found = self.known(b"s3cret").session
        self.assertRegex(found, r"\Atoken-file:[0-9a-f]{32}\Z")
        self.patch(token_key, "_SALT", b"of another process")
        self.file.value = parse("s3cret,joe,3\n")
        self.assertNotEqual(self.known(b"s3cret").session, found)

    def test_token_is_not_forwarded(self) -> None:
        """The token is for Tower."""
        self.assertTrue(self.known(b"plain").uses(b"plain"))

    def test_removed(self) -> None:
        """An identity ends when its line is removed or changed, and goes on when others are."""
        jane = self.known(b"plain")
        self.file.value = parse('other,joe,3\nplain,jane,1,"dev,qa"\n')
        self.method.check(jane)
        for text in ("", "plain,jane,1\n", 'plain,joe,1,"dev,qa"\n'):
            self.file.value = parse(text)
            with self.assertRaises(Unauthorized) as caught:
                self.method.check(jane)
            self.assertEqual(caught.exception.kind, "removed")

    def test_groups(self) -> None:
        """Empty groups are dropped, and so is the group of all users; further columns are ignored."""
        tokens = parse('t,jane,1,"dev,,system:authenticated,qa",more\nu,joe,2,""\n').users.values()
        self.assertEqual([each.groups for each in tokens], [("dev", "qa"), ()])

    def test_warnings(self) -> None:
        """Empty and duplicate tokens are logged with kube-apiserver's texts; the last duplicate counts."""
        lines = logged_lines(self)
        (user,) = parse(
            f"t,jane,1\n,joe,2\nt,joe,3\nsha256:{hashlib.sha256(b't').hexdigest()},jim,4\n"
        ).users.values()
        self.assertEqual(user.user, "jim")
        self.assertEqual(
            lines[:3],
            [
                "empty token has been found in token file 'tokens.csv', record number '2'",
                "duplicate token has been found in token file 'tokens.csv', record number '3'",
                "duplicate token has been found in token file 'tokens.csv', record number '4'",
            ],
        )

    def test_plain(self) -> None:
        """Tokens in plain text cause a warning; hashes do not."""
        lines = logged_lines(self)
        parse(f"sha256:{HASH},jane,1\n")
        self.assertEqual(lines, [])
        parse("s3cret,jane,1\nother,joe,2\n")
        (line,) = lines
        self.assertIn("has 2 tokens in plain text: replace each by sha256:HASH", line)
        self.assertNotIn("s3cret", line)

    def test_invalid(self) -> None:
        """Every problem names the record and the rule, and no token."""
        for text, problem in (
            (
                "a,b,1\ns3cret,jane\n",
                "at least 3 columns (token, user name, user uid), found 2: correct record 2",
            ),
            ('s3cret,ja"ne,1\n', 'parse error on line 1, column 10: bare " in non-quoted-field'),
            ("s3cret,,1\n", "record 1: user '': must be 1 to 253 printable characters"),
            ("s3cret,system:admin,1\n", "record 1: user 'system:admin': names with the prefix 'system:' are"),
            ("s3cret,jane,1,system:masters\n", "record 1: group 'system:masters': names with the prefix"),
            ("s3cret,jane,1,tower:admins\n", "record 1: group 'tower:admins': names with the prefix"),
            ('s3cret,jane,1,"dev, qa"\n', "record 1: group ' qa': must be"),
            ("s3cret,jane,\x07\n", "record 1: the UID has"),
            ("sha256:s3cret,jane,1\n", "record 1: 'sha256:' is followed by other than 64 hexadecimal digits"),
            ("towerk-s3cret,jane,1\n", "record 1: a token begins with 'towerk-'"),
        ):
            self.assertIn(problem, self.problem(text))
        with self.assertRaises(ValueError) as caught:
            parse_tokens(b"\xff,jane,1\n", PATH)
        self.assertIn("UTF-8", str(caught.exception))
