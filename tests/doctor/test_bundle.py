"""Tests for `tower.doctor.bundle`."""

from __future__ import annotations

import stat
import tarfile
from pathlib import Path

from tests.doctor.kit import DoctorTestCase
from tests.fakes.certificates import authority
from tower import BUILD
from tower.doctor import bundle
from tower.doctor.bundle import redact, write_bundle
from tower.doctor.findings import Finding, fail
from tower.errors import ConfigurationError
from tower.trust.pki import pem_of_key

TOKEN = "tower-" + "a" * 43


class RedactTests(DoctorTestCase):
    """Secrets in texts."""

    def test_secrets(self) -> None:
        """Keys, tokens, bearers and passwords are removed; the rest stays."""
        pem = pem_of_key(authority().key).decode()
        for text, rest in (
            (f"a {pem} b", "a [removed]\n b"),
            (pem[:100], "[removed]"),
            (f"printf %s {TOKEN} | twistd", "printf %s [removed] | twistd"),
            (f"x towerk-{'b' * 43}, y", "x [removed], y"),
            ("Authorization: Bearer abc.def-1", "Authorization: Bearer [removed]"),
            ("jwt eyJhbGci.eyJzdWIi.c2ln end", "jwt [removed] end"),
            ("agent --token s3cret --name a", "agent --token [removed] --name a"),
            ("    client-key-data: LS0tLS1C", "    client-key-data: [removed]"),
            ('{"password": "p", "user": "u"}', '{"password": "[removed]", "user": "u"}'),
            ("proxy http://joe:pw@proxy:3128/", "proxy http://[removed]@proxy:3128/"),
            ("HTTPS_PROXY=bob:hunter2@proxy:3128", "HTTPS_PROXY=[removed]@proxy:3128"),
            ("http_proxy=http://bob:p@ss@proxy", "http_proxy=http://[removed]@proxy"),
            ("passphrase: x secret_key=y", "passphrase: [removed] secret_key=[removed]"),
            (r"{\"token\": \"abc\"}", r"{\"token\": \"[removed]\"}"),
            ("agent of alpha connected from 10.0.0.1:4711", "agent of alpha connected from 10.0.0.1:4711"),
        ):
            self.assertEqual(redact(text), rest)

    def test_long_lines(self) -> None:
        """Redacting takes time in proportion to the length of a text, not to its square."""
        for text in ("a-" * 500_000, "eyJ-" * 20_000, "token" * 50_000):
            self.assertEqual(redact(text), text)


class BundleTests(DoctorTestCase):
    """The archive."""

    def setUp(self) -> None:
        """Make a folder."""
        super().setUp()
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.file = self.folder / "b.tar.gz"

    def written(self, environ: dict[str, str], directory: Path | None, *logs: str) -> dict[str, str]:
        """Return the parts of a new bundle."""
        write_bundle(self.file, [Finding("x", fail("seen", "cure"))], environ, directory, logs)
        with tarfile.open(self.file) as archive:
            return {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]

    def test_parts(self) -> None:
        """The archive is private and has findings, versions, settings and names of files."""
        state = self.folder / "state"
        state.mkdir()
        (state / "users-ca.pem").write_text("dear")
        environ = {
            "TOWER_TOKEN": "t",
            "TOWER_NAME": "alpha",
            "HTTPS_PROXY": "http://u:p@h:1",
            "HOME": "/root",
        }
        parts = self.written(environ, state)
        self.assertEqual(stat.S_IMODE(self.file.stat().st_mode), 0o600)
        self.assertEqual(parts["tower-doctor/doctor.txt"], "FAIL  x: seen -> cure\n")
        self.assertEqual(
            parts["tower-doctor/environment.txt"],
            "HTTPS_PROXY=http://[removed]@h:1\nTOWER_NAME=alpha\nTOWER_TOKEN=[removed]\n",
        )
        self.assertIn("Twisted", parts["tower-doctor/about.json"])
        self.assertIn(f'"build": "{BUILD}"', parts["tower-doctor/about.json"])
        self.assertIn("users-ca.pem", parts["tower-doctor/state-directory.txt"])
        self.assertNotIn("dear", "".join(parts.values()))

    def test_logs(self) -> None:
        """Logs are redacted, and only their ends are included."""
        log = self.folder / "log"
        log.write_text(f"begin\n{'x' * 100}\njoined with {TOKEN}\n")
        parts = self.written({}, None, str(log))
        self.assertIn("joined with [removed]", parts["tower-doctor/logs/1-log"])
        self.file.unlink()
        self.patch(bundle, "LOG_LIMIT", 80)
        self.assertEqual(
            self.written({}, None, str(log))["tower-doctor/logs/1-log"], "joined with [removed]\n"
        )

    def test_not_written(self) -> None:
        """An existing file is kept; a missing log or directory is named."""
        self.file.write_text("dear")
        for file, logs, text in (
            (self.file, [], "exists"),
            (self.folder / "none" / "b", [], "no such file"),
            (self.folder / "c", [str(self.folder / "none")], "--log"),
        ):
            error = self.assertRaises(ConfigurationError, write_bundle, file, [], {}, None, logs)
            self.assertIn(text, str(error))
        self.assertEqual(self.file.read_text(), "dear")
