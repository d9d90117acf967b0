"""The status of a member, and its JSON form."""

from __future__ import annotations

import json

from twisted.trial.unittest import SynchronousTestCase

from tower.errors import PeerError
from tower.kube.member_status import LONGEST_STATUS, UNCHECKED, Check, MemberStatus

_GOOD = Check("True", "Answering", "The API server answers.")
_FULL = MemberStatus(
    _GOOD,
    Check("False", "Rejected", "The API server rejects the agent's token (401)."),
    Check("Unknown", "NotChecked", ""),
    "v1.33.1",
    1_800_000_000.0,
    -3.5,
)


class MemberStatusTests(SynchronousTestCase):
    """Encoding and decoding."""

    def test_round_trip(self) -> None:
        """An encoded status decodes to itself."""
        for status in (_FULL, MemberStatus()):
            self.assertEqual(MemberStatus.decode(status.encode()), status)

    def test_defaults(self) -> None:
        """Missing keys have a default, and unknown ones are ignored."""
        status = MemberStatus.decode(b'{"later":1,"apiServer":{"later":2}}')
        self.assertEqual(status, MemberStatus())
        self.assertIs(MemberStatus().api_server, UNCHECKED)

    def test_long_message(self) -> None:
        """A long message is truncated when it is encoded."""
        status = MemberStatus(Check("False", "Failed", "x" * 5000))
        self.assertEqual(len(MemberStatus.decode(status.encode()).api_server.message), 1024)

    def test_control_characters(self) -> None:
        """A message of a peer is escaped."""
        data = json.dumps({"apiServer": {"message": "a\x1b[2Jb"}}).encode()
        self.assertNotIn("\x1b", MemberStatus.decode(data).api_server.message)

    def test_invalid(self) -> None:
        """Every invalid status is an error that names the key."""
        for data, words in (
            (b"{", "not JSON"),
            (b"[" * 10_000, "not JSON"),
            (b"[]", "not a JSON object"),
            (b" " * (LONGEST_STATUS + 1), "exceeds the limit"),
            (b'{"version":3}', "version"),
            (b'{"version":"a\\n"}', "version"),
            (b'{"apiServer":3}', "apiServer"),
            (b'{"apiServer":{"status":"true"}}', "apiServer.status"),
            (b'{"credential":{"status":[]}}', "credential.status"),
            (b'{"credential":{"reason":"not a word"}}', "credential.reason"),
            (b'{"impersonation":{"message":3}}', "impersonation.message"),
            (b'{"credentialExpires":"3"}', "credentialExpires"),
            (b'{"credentialExpires":true}', "credentialExpires"),
            (b'{"clockOffset":1e999}', "clockOffset"),
            (b'{"clockOffset":1e20}', "clockOffset"),
            (b'{"clockOffset":1%b}' % (b"0" * 400), "clockOffset"),
        ):
            error = self.assertRaises(PeerError, MemberStatus.decode, data)
            self.assertIn(words, str(error))
