"""Tests of `tower.control.front_door.oidc_options`."""

from __future__ import annotations

from pathlib import Path

from twisted.python import usage
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tower.control.front_door.oidc_options import OIDCOptions
from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings

URL = "https://issuer.example"
BOTH = (f"--oidc-issuer-url={URL}", "--oidc-client-id=tower")


class OIDCOptionsTests(SynchronousTestCase):
    """The options, with kube-apiserver's defaults."""

    def issuer(self, *words: str, **environ: str) -> IssuerSettings | None:
        """Return the issuer."""
        options = OIDCOptions(environ)
        options.parse(words)
        return options.issuer

    def error(self, *words: str, **environ: str) -> str:
        """Return the error."""
        return str(self.assertRaises(usage.UsageError, self.issuer, *words, **environ))

    def test_defaults(self) -> None:
        """Without options there is no issuer; else the defaults of kube-apiserver count."""
        self.assertIsNone(self.issuer())
        self.assertEqual(self.issuer(*BOTH), IssuerSettings(URL, ("tower",), ClaimSource("sub", f"{URL}#")))
        self.assertEqual(
            self.issuer(TOWER_OIDC_ISSUER_URL=URL, TOWER_OIDC_CLIENT_ID="tower"), self.issuer(*BOTH)
        )

    def test_username(self) -> None:
        """The user name has the issuer as its prefix, unless it is an e-mail address or the prefix is set."""
        for words, claim in (
            (("--oidc-username-claim=name",), ClaimSource("name", f"{URL}#")),
            (("--oidc-username-claim=email",), ClaimSource("email")),
            (("--oidc-username-prefix=-",), ClaimSource("sub")),
            (("--oidc-username-prefix=x:",), ClaimSource("sub", "x:")),
            (("--oidc-username-claim=email", "--oidc-username-prefix=x:"), ClaimSource("email", "x:")),
            (("--oidc-username-prefix=",), ClaimSource("sub", f"{URL}#")),
        ):
            found = self.issuer(*BOTH, *words)
            assert found is not None
            self.assertEqual(found.username, claim)

    def test_others(self) -> None:
        """Groups, algorithms, required claims and CAs."""
        path = Path(self.mktemp())
        path.write_bytes(authority().pem)
        found = self.issuer(
            *BOTH,
            "--oidc-groups-claim=groups",
            "--oidc-groups-prefix=g:",
            "--oidc-signing-algs=RS256,ES256",
            "--oidc-required-claim=hd=example.org",
            "--oidc-required-claim=a=b=c",
            f"--oidc-ca-file={path}",
        )
        assert found is not None
        self.assertEqual(found.groups, ClaimSource("groups", "g:"))
        self.assertEqual(found.algorithms, ("RS256", "ES256"))
        self.assertEqual(found.required, (("hd", "example.org"), ("a", "b=c")))
        self.assertEqual(found.ca_file, str(path))
        several = self.issuer(*BOTH, TOWER_OIDC_REQUIRED_CLAIM="a=b, c=d")
        assert several is not None
        self.assertEqual(several.required, (("a", "b"), ("c", "d")))

    def test_errors(self) -> None:
        """Errors have upstream's texts, and the cure."""
        together = (
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set"
        )
        for words in ((BOTH[0],), (BOTH[1],), ("--oidc-groups-claim=x",), ("--oidc-required-claim=a=b",)):
            self.assertIn(together, self.error(*words))
        for url, text in (
            ("http://a", "URL scheme must be https"),
            ("https://a?b", "URL must not contain a query"),
            ("https://u@a", "URL must not contain a username or password"),
            ("https://a#b", "URL must not contain a fragment"),
            ("https:///a", "URL must have a host"),
        ):
            error = self.error(f"--oidc-issuer-url={url}", BOTH[1])
            self.assertIn(f"--oidc-issuer-url {url!r} is not valid: {text}", error)
        for word, text in (
            ("--oidc-signing-algs=HS256", 'oidc: unsupported signing alg: "HS256": give'),
            ("--oidc-signing-algs=RS256,none", 'oidc: unsupported signing alg: "none"'),
            ("--oidc-signing-algs=,", "is empty"),
            ("--oidc-required-claim=a", "give NAME=VALUE"),
            ("--oidc-required-claim==a", "give NAME=VALUE"),
            ("--oidc-ca-file=/nowhere", "name a readable file"),
            ("--oidc-username-claim=", "name a claim such as email"),
        ):
            self.assertIn(text, self.error(*BOTH, word))
        path = Path(self.mktemp())
        path.write_text("x")
        self.assertIn("has no PEM certificates", self.error(*BOTH, f"--oidc-ca-file={path}"))

    def test_file(self) -> None:
        """A file of issuers excludes the other options, and is checked at the start."""
        path = Path(self.mktemp())
        path.write_text("kind: AuthenticationConfiguration\napiVersion: apiserver.config.k8s.io/v1\n")
        self.assertIsNone(self.issuer(f"--authentication-config={path}"))
        text = "authentication-config file and oidc-* flags are mutually exclusive: omit --oidc-issuer-url"
        self.assertIn(text, self.error(f"--authentication-config={path}", *BOTH))
        path.write_text("kind: x")
        self.assertIn(
            f"--authentication-config {path}: Object 'apiVersion' is missing",
            self.error(f"--authentication-config={path}"),
        )
