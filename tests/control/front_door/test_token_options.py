"""Tests of `tower.control.front_door.token_options`."""

from __future__ import annotations

import json
from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options

ISSUER = "--service-account-issuer=https://kubernetes.default.svc"
KEYS = "--service-account-key-file=x.pem"
TOP = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}


class TokenOptionsTests(SynchronousTestCase):
    """Values, and which go together."""

    def parse(self, *arguments: str, **environ: str) -> Options:
        """Return the options of a command line."""
        options = Options(environ)
        options.parse([*arguments, "--publish-service-address=127.0.0.1"])
        return options

    def error(self, *arguments: str) -> str:
        """Return the error for a command line."""
        return str(self.assertRaises(UsageError, self.parse, *arguments))

    def test_defaults(self) -> None:
        """Anonymous users are off; the other defaults are upstream's."""
        options = self.parse()
        names = ("anonymous-auth", "api-audiences", "authentication-token-webhook-version")
        self.assertEqual([options[name] for name in names], [False, None, "v1beta1"])
        self.assertEqual((options.account_issuers, options.account_key_files), ([], []))

    def test_booleans(self) -> None:
        """The flag may have a value, as in Go."""
        for word, value in (
            ("--anonymous-auth", True),
            ("--anonymous-auth=true", True),
            ("--anonymous_auth", True),
            ("--anonymous-auth=false", False),
        ):
            self.assertIs(self.parse(word)["anonymous-auth"], value)
        self.assertIn("is not a boolean", self.error("--anonymous-auth=x"))

    def test_accounts(self) -> None:
        """Issuers and files are repeatable; the audiences default to the issuers."""
        options = self.parse(ISSUER, "--service-account-issuer=b", KEYS, "--service-account-key-file=y")
        self.assertEqual(options.account_audiences, ["https://kubernetes.default.svc", "b"])
        self.assertEqual(options.account_key_files, [Path("x.pem"), Path("y")])
        options = self.parse(ISSUER, KEYS, "--api-audiences=a, b")
        self.assertEqual(options.account_audiences, ("a", "b"))
        options = self.parse(TOWER_SERVICE_ACCOUNT_ISSUER="https://a,https://b")
        self.assertEqual(options.account_issuers, ["https://a", "https://b"])

    def test_errors(self) -> None:
        """The texts are upstream's, with the cure."""
        for arguments, part in (
            ((KEYS,), "service-account-issuer is a required flag"),
            (("--service-account-jwks-uri=https://a",), "service-account-issuer is a required flag"),
            ((KEYS, "--service-account-issuer="), "service-account-issuer should not be an empty string"),
            ((KEYS, ISSUER, ISSUER), 'issuer "https://kubernetes.default.svc" is already specified'),
            (
                (KEYS, "--service-account-issuer=http://[x"),
                "service-account-issuer \"http://[x\" contained a ':' but was not a valid URL",
            ),
            (("--service-account-issuer=kube",), "give them with --service-account-key-file"),
            (("--service-account-issuer=http://a",), "(URL scheme must be https)"),
            (
                (ISSUER, "--service-account-jwks-uri=http://a"),
                "service-account-jwks-uri requires https scheme",
            ),
            (
                (ISSUER, "--service-account-jwks-uri=https://[x"),
                "service-account-jwks-uri must be a valid URL",
            ),
            ((ISSUER, KEYS, "--service-account-jwks-uri=https://a"), "are both sources of keys: omit one"),
            (("--api-audiences=a,",), "has an empty audience"),
            (
                ("--authentication-token-webhook-version=v2",),
                'unsupported authentication webhook version "v2", supported versions are "v1", "v1beta1"',
            ),
            (("--authentication-token-webhook-cache-ttl=x",), "is not a duration"),
        ):
            self.assertIn(part, self.error(*arguments), arguments)
        both = self.error(KEYS, "--service-account-jwks-uri=http://a")
        for part in ("is a required flag", "are both sources", "requires https scheme"):
            self.assertIn(part, both)

    def test_configuration(self) -> None:
        """Flags and the file exclude each other where both decide; issuers must not overlap."""
        path = Path(self.mktemp())
        word = f"--authentication-config={path}"
        path.write_text(json.dumps({**TOP, "anonymous": {"enabled": True}}))
        self.parse(word)
        for flag in ("--anonymous-auth", "--anonymous-auth=false"):
            self.assertIn("--anonymous-auth flag cannot be set when anonymous field", self.error(word, flag))
        entry = {
            "issuer": {"url": "https://kubernetes.default.svc", "audiences": ["a"]},
            "claimMappings": {"username": {"claim": "sub", "prefix": ""}},
        }
        path.write_text(json.dumps({**TOP, "jwt": [entry]}))
        self.parse(word, "--anonymous-auth")
        self.assertIn(
            'jwt[0].issuer.url: Invalid value: "https://kubernetes.default.svc": URL must not overlap with '
            "disallowed issuers: [https://kubernetes.default.svc]",
            self.error(word, ISSUER, KEYS),
        )
