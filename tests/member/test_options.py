"""Tests of `tower.member.options`: trust in the proxy, and the protocol."""

from __future__ import annotations

import sys
from pathlib import Path

from twisted.python.usage import UsageError
from twisted.trial.unittest import SynchronousTestCase

from tower.member.options import AGENT_KEY, Options
from tower.net.tls.published_authorities import PUBLISHED_AUTHORITIES

HOST_KEY = "--host-key=SHA256:" + "A" * 43
ANYBODY = "--insecure-v1-any-host-key"


def parsed(*arguments: str, token: str | None = "t0ken") -> Options:
    """Return the options that *arguments* make for a cluster and a proxy."""
    options = Options({} if token is None else {"TOWER_TOKEN": token})
    options.parse(["--name=alpha", "--proxy-server=ws://tower.example:8080", *arguments])
    return options


class ProtocolTests(SynchronousTestCase):
    def wrong(self, *arguments: str, token: str | None = "t0ken") -> str:
        """Return the error for invalid arguments; it never contains the token."""
        error = self.assertRaises(UsageError, parsed, *arguments, token=token)
        self.assertNotIn("\n", str(error))
        self.assertNotIn("t0ken", str(error))
        return str(error)

    def test_v2(self) -> None:
        """With a host key there is tower-v2 alone, by default and by name."""
        for arguments in ((HOST_KEY,), (HOST_KEY, "--protocol=auto"), (HOST_KEY, "--protocol=v2")):
            self.assertFalse(parsed(*arguments, token=None).may_speak_v1)

    def test_v1(self) -> None:
        """Old proxies require a pinned key, or the flag that accepts any."""
        for arguments in (
            ("--protocol=v1", HOST_KEY),
            ("--protocol=v1", ANYBODY),
            ("--protocol=auto", ANYBODY),
            (ANYBODY,),
        ):
            self.assertTrue(parsed(*arguments).may_speak_v1)

    def test_key_secret(self) -> None:
        """A Secret replaces the state directory of a v2 agent, which may have joined with its key."""
        options = parsed(HOST_KEY, "--key-secret=tower-system/key", token=None)
        self.assertEqual(str(options["key-secret"]), "tower-system/key")
        self.assertIn("--state-dir", self.wrong(HOST_KEY, "--key-secret=key", "--state-dir=/x"))
        self.assertIn("kubesphere-v1", self.wrong("--key-secret=key", "--protocol=v1", ANYBODY))
        text = self.wrong(HOST_KEY, "--key-secret=a/b/c")
        self.assertIn("--key-secret 'a/b/c' is not the name of a Secret", text)

    def test_policy(self) -> None:
        """The owner's policy is in a file or a ConfigMap, and needs tower-v2."""
        options = parsed(HOST_KEY, "--policy-config-map=tower-system/policy")
        self.assertEqual(str(options["policy-config-map"]), "tower-system/policy")
        file = self.mktemp()
        Path(file).write_text("x")
        self.assertEqual(str(parsed(HOST_KEY, f"--policy-file={file}")["policy-file"]), file)
        text = self.wrong(HOST_KEY, "--policy-config-map=policy", f"--policy-file={file}")
        self.assertIn("mutually exclusive", text)
        self.assertIn("kubesphere-v1", self.wrong("--policy-config-map=policy", "--protocol=v1", ANYBODY))
        self.assertIn("is not the name of a ConfigMap", self.wrong(HOST_KEY, "--policy-config-map=a/b/c"))

    def test_environment(self) -> None:
        """Both can come by the environment."""
        options = Options(
            {"TOWER_PROTOCOL": "v1", "TOWER_INSECURE_V1_ANY_HOST_KEY": "true", "TOWER_TOKEN": "t"}
        )
        options.parse(["--name=alpha", "--proxy-server=http://tower.example:8080"])
        self.assertTrue(options.may_speak_v1)

    def test_nothing_given(self) -> None:
        """The error names --host-key first, and why an old proxy has none."""
        for arguments in ((), ("--protocol=v1",)):
            text = self.wrong(*arguments)
            self.assertLess(text.index("--host-key"), text.index(ANYBODY))
            self.assertIn("new host key at each start", text)
        self.assertNotIn(ANYBODY, self.wrong("--protocol=v2"))

    def test_contradictions(self) -> None:
        """Contradictory options are rejected, with the cure."""
        for arguments, words in (
            ((HOST_KEY, ANYBODY), "mutually exclusive"),
            ((HOST_KEY, ANYBODY, "--protocol=v1"), "mutually exclusive"),
            ((ANYBODY, "--protocol=v2"), "--host-key"),
            (("--protocol=v3", HOST_KEY), "'v3'"),
            ((ANYBODY, "--no-impersonation"), "--no-impersonation"),
            ((ANYBODY, "--allow-system-identities"), "--allow-system-identities"),
            ((ANYBODY, "--allow-system-identity=kube:admin"), "--allow-system-identity has no effect"),
            ((ANYBODY, "--target=db=10.0.0.5:5432"), "--target"),
        ):
            self.assertIn(words, self.wrong(*arguments))

    def test_token(self) -> None:
        """An old proxy requires a token."""
        for token in (None, "", " "):
            self.assertIn("--token", self.wrong(ANYBODY, token=token))

    def test_nothing_at_standard_input(self) -> None:
        """With an empty standard input a key is required, and the error names the directory."""
        state = Path(self.mktemp()).absolute()
        words = (HOST_KEY, "--token-file=-", f"--state-dir={state}")
        self.patch(sys, "stdin", None)
        said = self.wrong(*words, token=None)
        self.assertIn("--token-file - : standard input is empty", said)
        self.assertIn(str(state), said)
        state.mkdir()
        (state / AGENT_KEY).touch()
        self.assertEqual(parsed(*words, token=None).secret("token"), "")
        self.assertIn("--token is missing", self.wrong(ANYBODY, *words[1:], token=None))

    def test_published_hash(self) -> None:
        """Hole 2: a CA with a published key is rejected by its hash, too."""
        for digest in PUBLISHED_AUTHORITIES:
            error = self.assertRaises(
                UsageError,
                parsed,
                HOST_KEY,
                "--proxy-server=wss://tower.example",
                f"--ca-hash=sha256:{digest}",
            )
            self.assertIn("is public", str(error))


class IdentityTests(SynchronousTestCase):
    """The rule for system identities."""

    def test_none(self) -> None:
        """By default no system identity is allowed."""
        rule = parsed(HOST_KEY).identities
        self.assertEqual((rule.allowed, rule.allow_all), (frozenset(), False))

    def test_some(self) -> None:
        """The flag is repeatable; duplicates count once."""
        names = ("system:cluster-admins", "kubeadm:cluster-admins", "system:cluster-admins")
        options = parsed(HOST_KEY, *(f"--allow-system-identity={name}" for name in names))
        self.assertEqual(options["allowed-identities"], list(names[:2]))
        self.assertEqual(options.identities.allowed, frozenset(names))
        self.assertTrue(options.identities.refuses("system:masters"))

    def test_all(self) -> None:
        """All by one flag."""
        self.assertFalse(parsed(HOST_KEY, "--allow-system-identities").identities.refuses("system:masters"))

    def test_environment(self) -> None:
        """The variable holds several names, separated by commas; a flag overrides it."""
        for flags, names in (((), {"system:admin", "kube:admin"}), (("system:nodes",), {"system:nodes"})):
            options = Options({"TOWER_ALLOW_SYSTEM_IDENTITY": "system:admin, kube:admin"})
            words = (f"--allow-system-identity={name}" for name in flags)
            options.parse(["--name=alpha", "--proxy-server=ws://tower.example:8080", HOST_KEY, *words])
            self.assertEqual(options.identities.allowed, names)

    def test_bad(self) -> None:
        """A name that is not a system identity is an error that names it."""
        for name, text in (
            ("jane", "--allow-system-identity 'jane' is not a system identity"),
            ("system:authenticated", "'system:authenticated' needs no permission"),
            ("system:node:*", "in full"),
            ("", "--allow-system-identity ''"),
        ):
            error = self.assertRaises(UsageError, parsed, HOST_KEY, f"--allow-system-identity={name}")
            self.assertIn(text, str(error))
