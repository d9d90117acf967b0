"""Tests of `tower.control.validation`: options, files and the state directory together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tower.control.proxy_options import Options
from tower.control.validation import locked_state, validate
from tower.errors import ConfigurationError
from tower.options.errors import OptionErrors
from tower.trust.certificate_directory import pair_in
from tower.trust.statedir import StateDir


class ValidationTests(SynchronousTestCase):
    """A proxy that cannot start."""

    def setUp(self) -> None:
        """Make a folder."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.state = self.folder / "state"
        self.reactor: Any = MemoryReactorClock()

    def options(self, *arguments: str) -> Options:
        """Return completed options."""
        options = Options({})
        options.read(["--host=127.0.0.1", f"--state-dir={self.state}", *arguments])
        self.patch(options, "check_listening", lambda: None)
        return options.complete()

    def errors(self, *arguments: str) -> list[str]:
        """Return the errors of the options and their files."""
        return [str(each) for each in validate(self.options(*arguments), self.reactor)]

    def file(self, name: str, content: bytes | str) -> Path:
        """Write a file."""
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def test_all_at_once(self) -> None:
        """Options that do not go together, missing files and wrong files: each has its error."""
        none, rubbish = self.folder / "none", self.file("rubbish", "rubbish")
        found = self.errors(
            "--tls-private-key-file=k",
            f"--client-ca-file={none}",
            f"--requestheader-client-ca-file={rubbish}",
            "--requestheader-username-headers=X-Remote-User",
            f"--token-auth-file={rubbish}",
            f"--service-account-key-file={none}",
            "--service-account-issuer=https://accounts",
            "--authorization-mode=ABAC,Webhook",
            f"--authorization-policy-file={rubbish}",
            f"--authorization-webhook-config-file={none}",
            f"--authentication-token-webhook-config-file={none}",
            f"--authentication-kubeconfig={rubbish}",
            f"--audit-log-path={none}/log",
            f"--audit-policy-file={rubbish}",
            f"--audit-webhook-config-file={none}",
            f"--access-log={none}/log",
        )
        expected = (
            "missing filename for serving cert",
            f"--client-ca-file: open {none}: no such file or directory",
            f"--requestheader-client-ca-file {rubbish}: data does not contain any valid RSA or ECDSA",
            f"--token-auth-file {rubbish}: token file '{rubbish}' must have at least 3 columns",
            f"--service-account-key-file: open {none}: no such file",
            "error reading policy file",
            "loading audit policy file:",
            "--authentication-token-webhook-config-file:",
            "--authentication-kubeconfig:",
            "--authorization-webhook-config-file:",
            "--audit-webhook-config-file:",
            f"--audit-log-path '{none}/log' cannot be written",
            f"--access-log '{none}/log' cannot be written",
        )
        self.assertEqual(len(found), len(expected), found)
        for text, part in zip(found, expected, strict=True):
            self.assertIn(part, text)

    def test_right_files(self) -> None:
        """Files that can be used give no error, and a reload later finds them unchanged."""
        users = self.file("users.pem", authority("users", now=0.0).pem)
        tokens = self.file("tokens", "s3cret,jane,1\ns3cret,jim,2\n")
        self.assertEqual(self.errors(f"--client-ca-file={users}", f"--token-auth-file={tokens}"), [])

    def test_made_certificate(self) -> None:
        """The certificate of --cert-dir is made once all options are checked and the directory is locked."""
        serving = self.folder / "serving"
        options = self.options(f"--cert-dir={serving}", "--publish-service-address=tower.example")
        self.assertEqual(validate(options, self.reactor), [])
        self.assertRaises(ConfigurationError, locked_state, options, [ConfigurationError("one")])
        other = StateDir(self.state)
        other.lock()
        self.assertRaises(ConfigurationError, locked_state, options, [])
        self.assertFalse(serving.exists())
        other.close()
        self.addCleanup(locked_state(options, []).close)
        certificate, key = pair_in(serving)
        self.assertTrue(certificate.exists())
        self.assertEqual(validate(options, self.reactor), [])
        key.unlink()
        (problem,) = validate(options, self.reactor)
        self.assertIn("has no tower-proxy.key", str(problem))

    def test_unwritable_certificate(self) -> None:
        """If the certificate of --cert-dir cannot be made, the state directory is released."""
        options = self.options(
            f"--cert-dir={self.file('file', '')}", "--publish-service-address=tower.example"
        )
        error = self.assertRaises(ConfigurationError, locked_state, options, [])
        self.assertIn("cannot write the certificate", str(error))
        self.addCleanup(locked_state(self.options(), []).close)

    def test_same_authorities(self) -> None:
        """Users of the CA of front proxies could act as all others."""
        users = self.file("users.pem", authority("users", now=0.0).pem)
        arguments = [
            f"--client-ca-file={users}",
            f"--requestheader-client-ca-file={users}",
            "--requestheader-username-headers=X-Remote-User",
        ]
        (problem,) = self.errors(*arguments)
        self.assertIn("contain overlapping certificates", problem)
        self.assertEqual(self.errors(*arguments, "--requestheader-allowed-names=front"), [])

    def test_state(self) -> None:
        """The state directory's error comes with the others; with errors, a missing one is not created."""
        options = self.options()
        errors: list[Exception] = [ConfigurationError("one")]
        self.assertRaises(ConfigurationError, locked_state, options, errors)
        self.assertFalse(self.state.exists())
        other = StateDir(self.state)
        other.lock()
        both = self.assertRaises(OptionErrors, locked_state, options, errors).errors
        self.assertEqual(str(both[0]), "one")
        self.assertIn("in use by another Tower process", str(both[1]))
        other.close()
        self.assertRaises(ConfigurationError, locked_state, options, errors)
        state = locked_state(options, [])  # the failed attempts have released it
        self.addCleanup(state.close)
        self.assertRaises(ConfigurationError, StateDir(self.state).lock)
