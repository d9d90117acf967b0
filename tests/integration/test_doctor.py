"""``tower doctor`` names the failure of each broken set-up in one line."""

from __future__ import annotations

import json
import os
import shlex
import tarfile
from pathlib import Path

from tests.integration import harness
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, script
from tower.conch.transport.keys import KeyPair

#: A name without an address (RFC 6761).
NO_NAME = "tower.invalid"


class DoctorTests(harness.TowerTestCase):
    """The doctor against a running proxy."""

    def doctor(self, *words: str, environment: dict[str, str] | None = None) -> tuple[int, list[str]]:
        """Return the exit code and the lines."""
        done = run([script("tower"), "doctor", *words], folder=self.tower.folder, environment=environment)
        self.assertEqual(done.stderr, b"")
        lines = done.stdout.decode().splitlines()
        for line in lines:
            self.assertRegex(line, r"^(ok   |warn |FAIL |skip ) \S[^:]*: \S")
        return done.returncode, lines

    def failure(self, *words: str, environment: dict[str, str] | None = None) -> str:
        """Return the only line of a failure, which has a cure."""
        code, lines = self.doctor(*words, environment=environment)
        (line,) = (line for line in lines if line.startswith("FAIL"))
        self.assertEqual(code, 1)
        self.assertIn(" -> ", line)
        return line

    def sound(self, *words: str) -> list[str]:
        """Return the lines of a doctor that finds no failure."""
        code, lines = self.doctor(*words)
        self.assertEqual(
            (code, [line for line in lines if line.startswith(("FAIL", "skip"))]), (0, []), lines
        )
        return lines

    def joined(self) -> dict[str, str]:
        """Return the options of an agent of alpha whose key is enrolled."""
        self.tower.tower("cluster", "add", "alpha")
        words = shlex.split(self.tower.tower("join", "alpha", "--format", "env"))
        flags = words[words.index("--name") :]
        self.token = dict(word.split("=", 1) for word in words if word.startswith("TOWER_"))
        admin = self.tower.folder / "admin"
        self.tower.tower("admin-kubeconfig", "--user", "ops", "--output", str(admin))
        options = dict(zip(flags[::2], flags[1::2], strict=True))
        return {**options, "--kubeconfig": str(admin), "--state-dir": str(self.tower.folder / "agent")}

    def agent(self, options: dict[str, str], **changes: str) -> list[str]:
        """Return the doctor's words for an agent with changed options; Tower's API is its API server."""
        changed = {**options, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
        return [
            "--agent",
            "--no-impersonation",
            *(word for pair in changed.items() if pair[1] for word in pair),
        ]

    def test_agents(self) -> None:
        """An agent's machine: each broken part up to the API server is named."""
        options = self.joined()
        code, lines = self.doctor(*self.agent(options), environment=self.token)
        self.assertEqual(code, 0, lines)
        for check in ("WebSocket", "host key", "enrollment", "API server"):
            self.assertTrue(any(line.startswith(f"ok    {check}: ") for line in lines), lines)
        front, plain = f"{LOOPBACK}:{self.tower.secure_port}", f"{LOOPBACK}:{self.tower.port}"
        dead = f"http://{LOOPBACK}:{free_port()}"
        for changes, environment, texts in (
            ({"name": ""}, {}, ("options: --name is missing",)),
            (
                {"proxy_server": f"ws://{front}", "ca_hash": ""},
                {},
                ("TLS: ", f"-> --proxy-server wss://{front}"),
            ),
            (
                {"proxy_server": f"wss://{plain}"},
                {},
                ("TLS: ", "no TLS", "--secure-port", f"ws://{plain} without --ca-hash"),
            ),
            ({"proxy_server": f"wss://{LOOPBACK}:{free_port()}"}, {}, ("connection: ", "refused")),
            ({"proxy_server": f"wss://{NO_NAME}:1"}, {}, ("name: ", NO_NAME, "no address")),
            (
                {"proxy_server": f"wss://{NO_NAME}:1"},
                {"HTTPS_PROXY": dead},
                ("HTTP proxy: ", "HTTPS_PROXY", "NO_PROXY"),
            ),
            ({"ca_hash": "sha256:" + "0" * 64}, {}, ("CA: ", "tower join alpha")),
            ({"host_key": "SHA256:" + "A" * 43}, {}, ("host key: ", "--host-key SHA256:")),
            ({"kubeconfig": str(self.tower.folder / "none")}, {}, ("none", "No such file")),
        ):
            words = self.agent(options, **changes)
            line = self.failure(*words, environment={**self.token, **environment})
            for text in texts:
                self.assertIn(text, line)
        self.assertIn("enrollment: ", self.failure(*self.agent(options), environment={}))
        agent = Path(options["--state-dir"])
        agent.mkdir(mode=0o700)
        (agent / "agent-key").write_bytes(KeyPair.generate().to_openssh())
        (agent / "agent-key").chmod(0o600)
        line = self.failure(*self.agent(options), environment={})
        self.assertIn("is not enrolled for cluster alpha", line)
        self.assertIn("tower join alpha", line)

    def test_proxy(self) -> None:
        """A proxy's machine, with the proxy running and stopped."""
        state = ("--state-dir", str(self.tower.state))
        lines = self.sound(*state)
        self.assertTrue(any("tower-proxy is running" in line for line in lines))
        self.tower.proxy.stop()
        lines = self.sound(*state)
        self.assertTrue(any(line.startswith("warn  proxy: tower-proxy is not running -> ") for line in lines))
        key = self.tower.state / "ssh_host_ed25519_key"
        for damage, repair, texts in (
            (lambda: self.tower.state.chmod(0o755), lambda: self.tower.state.chmod(0o700), ("chmod 700",)),
            (lambda: key.write_text("x"), lambda: None, ("host key: ", "every agent has to join again")),
        ):
            damage()
            line = self.failure(*state)
            repair()
            for text in texts:
                self.assertIn(text, line)

    def test_cluster(self) -> None:
        """A cluster end to end: its record, its agent, and a user's access."""
        state = ("--state-dir", str(self.tower.state))
        self.assertIn("tower cluster list", self.failure("alpha", *state))
        self.tower.tower("cluster", "add", "alpha")
        self.assertIn("tower join alpha", self.failure("alpha", *state))
        self.tower.tower("cluster", "disable", "alpha")
        self.assertIn("tower cluster enable alpha", self.failure("alpha", *state))
        self.tower.tower("cluster", "enable", "alpha")
        user = self.tower.folder / "jane"
        self.tower.tower("kubeconfig", "alpha", "--user", "jane", "--output", str(user))
        line = self.failure("--kubeconfig", str(user))
        self.assertIn("cluster: HTTP status 503", line)
        self.assertIn("tower doctor alpha", line)
        self.assertIn("no agent of cluster alpha", line)
        (credential,) = self.tower.tower("credential", "list", "--cluster", "alpha", "-o", "name").split()
        self.tower.tower("credential", "revoke", credential)
        self.assertIn("tower kubeconfig", self.failure("--kubeconfig", str(user)))

    def test_usage(self) -> None:
        """An invalid command line is one line, and exit code 2."""
        for words in (
            ["--kubeconfg", "f"],
            ["--log", "f", "--state-dir", "/"],
            ["a", "--agent", "--name", "b"],
        ):
            done = run([script("tower"), "doctor", *words])
            self.assertEqual((done.returncode, done.stdout), (2, b""), done.stderr)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)

    def test_bundle(self) -> None:
        """The bundle is private and has the findings, but no secret of the state directory."""
        bundle, log = self.tower.folder / "bundle.tar.gz", self.tower.folder / "log"
        log.write_bytes((self.tower.state / "admin.kubeconfig").read_bytes())
        words = (
            "--state-dir",
            str(self.tower.state),
            "--bundle",
            str(bundle),
            "--log",
            str(log),
            "-o",
            "json",
        )
        done = run([script("tower"), "doctor", *words])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertTrue(json.loads(done.stdout)["ok"])
        self.assertIn(f"bundle written to {bundle}\n", done.stderr.decode())
        self.assertEqual(os.stat(bundle).st_mode & 0o777, 0o600)
        with tarfile.open(bundle) as archive:
            parts = {name: archive.extractfile(name).read().decode() for name in archive.getnames()}  # type: ignore[union-attr]
        self.assertEqual(json.loads(parts["tower-doctor/doctor.json"]), json.loads(done.stdout))
        self.assertIn("client-key-data: [removed]", parts["tower-doctor/logs/1-log"])
        for text in parts.values():
            self.assertNotIn("PRIVATE KEY", text)
        again = run([script("tower"), "doctor", *words])
        self.assertIn(b"exists: choose another name", again.stderr)
