"""Tests of `tower.control.front_door.token_authentication`; `tests.integration` has real programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.agent_options import Unresolving
from tests.fakes.id_tokens import ec_key, public_pem, rsa_key
from tower.control.front_door.token_authentication import TokenAuthentication
from tower.control.front_door.token_options import TokenOptions
from tower.errors import ConfigurationError
from tower.options.followed_file import PERIOD
from tower.reactor.signals import Reloads

ISSUER = "--service-account-issuer=https://issuer.example"
KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1/hook"}}]
users: [{name: a, user: {token: secret}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


class TokenAuthenticationTests(SynchronousTestCase):
    """The methods that options configure."""

    def setUp(self) -> None:
        """Make a clock and a kubeconfig."""
        self.clock: Any = MemoryReactorClock()
        self.patch(self.clock, "nameResolver", Unresolving())
        self.reloads = Reloads()
        self.kubeconfig = Path(self.mktemp())
        self.kubeconfig.write_text(KUBECONFIG)

    def made(self, *words: str) -> TokenAuthentication:
        """Return the methods, and start what they need."""
        options = TokenOptions({})
        options.parse(words)
        found = TokenAuthentication(options, self.clock, self.clock.seconds, self.reloads)
        found.startService()
        self.addCleanup(found.stopService)
        return found

    def test_none(self) -> None:
        """Without options there is no method."""
        found = self.made()
        self.assertEqual((found.accounts, found.reviewers, list(found)), ((), (), []))

    def test_reviewers(self) -> None:
        """The webhook comes before the API server; their times differ."""
        found = self.made(
            f"--authentication-token-webhook-config-file={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
        )
        self.assertEqual([each.method for each in found.reviewers], ["webhook", "delegated"])
        self.assertEqual(sorted(found.clients), ["delegated", "webhook"])

    def test_audiences(self) -> None:
        """As in kube-apiserver, issuers of service accounts are the webhook's audiences by default."""
        keys = Path(self.mktemp())
        keys.write_bytes(public_pem(rsa_key("first")))
        files = (
            f"--service-account-key-file={keys}",
            f"--authentication-token-webhook-config-file={self.kubeconfig}",
            f"--authentication-kubeconfig={self.kubeconfig}",
        )
        issuer = "--service-account-issuer=https://alpha.example"
        for given, webhook, delegated in (
            ((issuer,), ("https://alpha.example",), ()),
            ((issuer, "--api-audiences=tower"), ("tower",), ("tower",)),
        ):
            found = self.made(*files, *given).reviewers
            self.assertEqual([tuple(each._reviewing.audiences) for each in found], [webhook, delegated])

    def test_wrong_file(self) -> None:
        """An error names the option and the file."""
        for option, content in (
            ("authentication-kubeconfig", "x: ["),
            ("authentication-token-webhook-config-file", "{}"),
        ):
            self.kubeconfig.write_text(content)
            error = self.assertRaises(ConfigurationError, self.made, f"--{option}={self.kubeconfig}")
            self.assertIn(f"--{option}: ", str(error))
        path = Path(self.mktemp())
        word = f"--service-account-key-file={path}"
        self.assertIn(
            ": no such file or directory", str(self.assertRaises(ConfigurationError, self.made, ISSUER, word))
        )
        path.write_text("x")
        self.assertIn(
            f"{word.replace('=', ' ')}: data does not contain any valid RSA or ECDSA public keys",
            str(self.assertRaises(ConfigurationError, self.made, ISSUER, word)),
        )

    def test_key_files(self) -> None:
        """A changed file counts within seconds; a wrong one leaves the keys in use."""
        paths = [Path(self.mktemp()) for _ in range(2)]
        for path, key in zip(paths, (rsa_key(), ec_key()), strict=True):
            path.write_bytes(public_pem(key))
        found = self.made(ISSUER, *(f"--service-account-key-file={path}" for path in paths))
        changes: list[None] = []
        found.on_change = lambda: changes.append(None)
        paths[0].write_bytes(public_pem(rsa_key("second")))
        self.clock.pump([PERIOD] * 2)
        self.assertEqual(len(changes), 1)
        paths[0].write_bytes(b"x")
        self.clock.pump([PERIOD] * 2)
        self.assertEqual(len(changes), 1)
        paths[1].write_bytes(public_pem(rsa_key("third")))
        self.reloads.run()
        self.assertEqual(len(changes), 2)

    def test_published_keys(self) -> None:
        """Without a file, the keys are those that the issuers publish."""
        found = self.made(ISSUER, "--service-account-jwks-uri=https://keys.example/jwks")
        (method,) = found.accounts
        self.assertEqual(method.method, "service-account")
