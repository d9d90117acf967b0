"""Tests of `tower.web.access.audit.file_changes`."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import HEAD, Lines, audit_to, policy_of
from tower.control.front_door.followed_pair import FollowedPair
from tower.kube.audit.policy import NONE
from tower.kube.request_info import parse_request_info
from tower.options.followed_file import FollowedFile, FollowedFiles
from tower.trust.named_certificates import PairFiles
from tower.web.access.audit.changes import NEW_DIGEST, OLD_DIGEST
from tower.web.access.audit.file_changes import OPTION, FileRecorder
from tower.web.access.audit.policy_file import AuditPolicyFile


def valid(content: bytes) -> bytes:
    """Return *content*, unless it is invalid."""
    if content == b"invalid":
        raise ValueError("no")
    return content


def digest(text: str) -> str:
    """Return the digest of a file with *text*."""
    return f"sha256:{sha256(text.encode()).hexdigest()}"


class FileRecorderTests(SynchronousTestCase):
    """Tests of `FileRecorder`."""

    def setUp(self) -> None:
        """Write a file."""
        self.lines = Lines()
        self.audit = audit_to(self.lines, Clock().seconds)
        self.recorder = FileRecorder(self.audit)
        self.path = Path(self.mktemp())
        self.path.write_text("old")

    def followed(self, option: str) -> FollowedFile[bytes]:
        """Return the file of *option*, whose changes are recorded."""
        file = FollowedFile(option, self.path, valid)
        self.recorder.observe(file)
        return file

    def change(self, file: Any, text: str) -> list[dict[str, Any]]:
        """Change the file; return the events."""
        self.path.write_text(text)
        file.check()
        return self.lines.events()

    def test_change(self) -> None:
        """A new content has an event of the proxy, with the option, its value, and both digests."""
        file = self.followed("authorization-policy-file")
        (event,) = self.change(file, "new")
        self.assertEqual((event["verb"], event["user"]), ("update", {"username": "tower:proxy"}))
        self.assertEqual((event["level"], event["stage"]), ("Metadata", "ResponseComplete"))
        self.assertEqual(
            event["objectRef"],
            {
                "resource": "optionfiles",
                "name": "authorization-policy-file",
                "apiGroup": "cluster.kubesphere.io",
                "apiVersion": "v1alpha1",
            },
        )
        option = f"--authorization-policy-file {self.path}"
        self.assertEqual(
            event["annotations"], {OPTION: option, OLD_DIGEST: digest("old"), NEW_DIGEST: digest("new")}
        )
        self.path.write_text("newer")
        self.assertEqual(file.reload(), "changed")
        (event,) = self.lines.events()
        self.assertEqual(event["annotations"][OLD_DIGEST], digest("new"))

    def test_unused(self) -> None:
        """The same content, and one that cannot be used, have no event."""
        file = self.followed("client-ca-file")
        self.assertEqual([self.change(file, text) for text in ("old", "invalid", "old")], [[], [], []])

        def fail() -> None:
            raise ValueError("cannot be used")

        file.on_change = fail
        with self.assertRaises(ValueError):
            self.change(file, "new")
        self.assertEqual(self.lines, [])

    def test_tokens(self) -> None:
        """The digests of a file of tokens are equal for equal contents, but do not show what these are."""
        file = self.followed("token-auth-file")
        (event,) = self.change(file, "new")
        (back,) = self.change(file, "old")
        self.assertEqual(event["annotations"][OLD_DIGEST], back["annotations"][NEW_DIGEST])
        self.assertNotEqual(event["annotations"][OLD_DIGEST], event["annotations"][NEW_DIGEST])
        self.assertRegex(event["annotations"][NEW_DIGEST], r"\Asalted:[0-9a-f]{32}\Z")

    def test_pair(self) -> None:
        """The digests of a certificate and its key are those of the certificate."""
        key = Path(self.mktemp())
        key.write_text("key")
        option = "tls-cert-file"
        pair = FollowedPair(option, f"--{option} c", PairFiles(self.path, key, ()), lambda *found: found)
        self.recorder.observe(pair)
        key.write_text("another key")
        (event,) = self.change(pair, "new")
        self.assertEqual(
            event["annotations"],
            {OPTION: "--tls-cert-file c", OLD_DIGEST: digest("old"), NEW_DIGEST: digest("new")},
        )

    def test_several(self) -> None:
        """The digests of several files are those of their contents, joined by newlines."""
        second = Path(self.mktemp())
        second.write_text("second")
        files = FollowedFiles("client-ca-file", (second, self.path), valid)
        self.recorder.observe(files)
        (event,) = self.change(files, "new")
        self.assertEqual(
            (event["annotations"][OLD_DIGEST], event["annotations"][NEW_DIGEST]),
            (digest("second\nold"), digest("second\nnew")),
        )

    def test_policy(self) -> None:
        """The audit policy decides on these events, too."""
        file = self.followed("client-ca-file")
        for omitted in (
            "rules: [{level: None, resources: [{group: cluster.kubesphere.io, resources: [optionfiles]}]}]",
            "rules: [{level: Metadata, omitStages: [ResponseComplete]}]",
        ):
            self.audit.use(policy_of(omitted))
            self.assertEqual(self.change(file, omitted), [])
        self.audit.use(policy_of("rules: [{level: Metadata, users: ['tower:proxy']}]"))
        self.assertEqual(len(self.change(file, "new")), 1)

    def test_audit_policy(self) -> None:
        """A new audit policy has an event even if it omits all events, and so has the next one."""
        self.path.write_text(HEAD + "rules: [{level: Metadata}]")
        file = AuditPolicyFile(self.path, self.audit.use).file
        self.recorder.observe(file, is_always_written=True)
        (event,) = self.change(file, HEAD + "rules: [{level: None}]")
        self.assertEqual(event["objectRef"]["name"], "audit-policy-file")
        pods = parse_request_info(b"GET", b"/api/v1/pods")
        self.assertEqual(self.audit.policy.decide("jane", (), pods).level, NONE)
        (back,) = self.change(file, HEAD + "rules: [{level: None, users: [jane]}]")
        self.assertEqual(event["annotations"][NEW_DIGEST], back["annotations"][OLD_DIGEST])
