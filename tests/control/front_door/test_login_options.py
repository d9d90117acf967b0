"""Tests of `tower.control.front_door.login_options`."""

from __future__ import annotations

from pathlib import Path

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from tower.control.front_door.login_options import LoginOptions
from tower.web.login.login_settings import LoginSettings

URL = "https://issuer.example"
BOTH = (f"--oidc-issuer-url={URL}", "--oidc-client-id=tower")


class LoginOptionsTests(SynchronousTestCase):
    """The options."""

    def settings(self, *words: str) -> LoginSettings:
        """Return the settings."""
        options = LoginOptions({})
        options.parse(words)
        return options.login

    def test_defaults(self) -> None:
        """Users log in with the client of --oidc-client-id, for 12 hours."""
        self.assertEqual(self.settings(), LoginSettings({}))
        self.assertEqual(self.settings(*BOTH), LoginSettings({URL: "tower"}, 43200.0, 3600.0))

    def test_given(self) -> None:
        """Clients of several issuers, and lifetimes."""
        words = (f"--login-client-id={URL}=cli", "--login-client-id=https://b?x=y=z")
        found = self.settings(*BOTH, *words, "--login-session-ttl=8h", "--login-without-refresh-token")
        self.assertEqual(found.clients, {URL: "cli", "https://b?x=y": "z"})
        self.assertEqual((found.session_ttl, found.requires_refresh), (28800.0, False))
        self.assertEqual(found.client_of("https://other"), "")
        self.assertTrue(found.accepts_device_codes)
        self.assertFalse(self.settings(*BOTH, "--login-device-code=false").accepts_device_codes)
        self.assertTrue(found.is_exclusive)
        options = LoginOptions({})
        options.parse([*BOTH, words[0]])
        assert options.issuer is not None
        self.assertEqual(options.issuer.audiences, ("tower", "cli"))

    def test_secret(self) -> None:
        """Some providers require a secret of the client, which all users get."""
        path = Path(self.mktemp())
        path.write_text("s3cret\n")
        words = (*BOTH, f"--login-client-secret-file={URL}={path}")
        found = self.settings(*words, f"--login-client-id={URL}=cli")
        self.assertEqual(found.secrets, {URL: "s3cret"})
        self.assertNotIn("s3cret", repr(found))
        self.assertIn(
            "the client is unknown", str(self.assertRaises(usage.UsageError, self.settings, *words))
        )
        for text, problem in ((f"{URL}={path}x", "No such file"), ("x", "malformed"), (URL, "malformed")):
            error = self.assertRaises(usage.UsageError, self.settings, f"--login-client-secret-file={text}")
            self.assertIn(problem, str(error))
        path.write_bytes(b"\xff")
        self.assertIn("one line", str(self.assertRaises(usage.UsageError, self.settings, *words)))

    def test_file(self) -> None:
        """The file has to accept tokens for the clients of logins."""
        options = LoginOptions({})
        options["login-client-ids"] = {URL: "cli"}
        issuer = f"issuer: {{url: {URL}, audiences: [%s], audienceMatchPolicy: MatchAny}}"
        mappings = "claimMappings: {username: {claim: sub, prefix: x}}"
        kind = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
        file = f"{kind}jwt:\n- {{{issuer}, {mappings}}}\n"
        self.assertEqual(len(options.read_configuration((file % "cli, tower").encode()).issuers), 1)
        error = self.assertRaises(ValueError, options.read_configuration, (file % "tower").encode())
        self.assertIn("jwt[0].issuer.audiences: must contain 'cli' of --login-client-id: add it", str(error))

    def test_errors(self) -> None:
        """Malformed values, and clients without an issuer."""
        for words, text in (
            (("--login-client-id=tower",), "give ISSUER=CLIENT-ID"),
            (("--login-client-id=http://a=b",), "give ISSUER=CLIENT-ID"),
            ((f"--login-client-id={URL}=cli",), "requires the issuer"),
            (("--login-session-ttl=1s",), "give 1m to 168h"),
            (("--login-workload-ttl=1y",), "--login-workload-ttl"),
        ):
            self.assertIn(text, str(self.assertRaises(usage.UsageError, self.settings, *words)))
