"""Tests of `tower.control.front_door.authorization_options`."""

from __future__ import annotations

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tower.control.proxy_options import Options


class AuthorizationOptionsTests(SynchronousTestCase):
    """Values, and which go together."""

    def parse(self, *arguments: str) -> Options:
        """Return the options of a command line."""
        options = Options({})
        options.parse([*arguments, "--publish-service-address=127.0.0.1"])
        return options

    def error(self, *arguments: str) -> str:
        """Return the error for a command line."""
        return str(self.assertRaises(UsageError, self.parse, *arguments))

    def test_values(self) -> None:
        """The defaults are upstream's; times may be 0."""
        options = self.parse()
        names = ("mode", "webhook-version", "webhook-cache-authorized-ttl", "webhook-cache-unauthorized-ttl")
        found = [options[f"authorization-{name}"] for name in names]
        self.assertEqual(found, [("AlwaysAllow",), "v1beta1", 300.0, 30.0])
        options = self.parse("--authorization-mode=AlwaysDeny, AlwaysAllow")
        self.assertEqual(options["authorization-mode"], ("AlwaysDeny", "AlwaysAllow"))
        options = self.parse("--authorization-webhook-cache-authorized-ttl=0s")
        self.assertEqual(options["authorization-webhook-cache-authorized-ttl"], 0.0)

    def test_own_roles(self) -> None:
        """The mode RBAC needs no other cluster."""
        self.assertIsNone(self.parse("--authorization-mode=RBAC")["authorization-kubeconfig"])

    def test_errors(self) -> None:
        """All errors are reported, with upstream's texts."""
        text = self.error("--authorization-mode=ABAC,Foo,ABAC", "--authorization-webhook-config-file=x")
        for part in (
            "authorization-mode ABAC's authorization policy file not passed: set --authorization-policy-file",
            'authorization-mode "Foo" is not a valid mode: use AlwaysAllow, AlwaysDeny, ABAC, RBAC, Webhook',
            "cannot specify --authorization-webhook-config-file without mode Webhook",
            'authorization-mode ["ABAC" "Foo" "ABAC"] has mode specified more than once',
        ):
            self.assertEqual(text.count(part), 1, text)
        for arguments, part in (
            (["--authorization-mode="], 'authorization-mode "" is not a valid mode'),
            (["--authorization-mode=Webhook"], "Webhook's authorization config file not passed"),
            (
                ["--authorization-policy-file=x"],
                "cannot specify --authorization-policy-file without mode ABAC",
            ),
            (["--authorization-webhook-version=v2"], 'unsupported webhook authorizer version "v2"'),
            (
                ["--authorization-webhook-cache-authorized-ttl=-1s"],
                "authorization-webhook-cache-authorized-ttl",
            ),
        ):
            self.assertIn(part, self.error(*arguments), arguments)
