"""Invalid starts fail with one line and exit code 1; the `tower` commands, without a member cluster."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, is_ready, run, script, wait_for
from tower.net.addresses import join_address
from tower.net.own_address import default_address

TINY = 256 * 1024  # B, of a disk that is soon full


class WrongOptionTests(SynchronousTestCase):
    """``tower-proxy`` and ``tower-agent`` with invalid options."""

    def setUp(self) -> None:
        """Make an empty folder."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)

    def proxy(self, *options: str, state: Path | None = None) -> list[str]:
        """Return a proxy's command line with these options and good ones for the rest."""
        given = {option.split("=")[0] for option in options}
        defaults = {
            "--state-dir": str(state or self.folder / "state"),
            "--host": LOOPBACK,
            "--port": str(free_port()),
            "--secure-port": str(free_port()),
            "--cluster-ports": "none",
        }
        kept = [f"{name}={value}" for name, value in defaults.items() if name not in given]
        return [script("tower-proxy"), *kept, *options]

    def refusal(
        self, argv: list[str], *words: str, environment: dict[str, str] | None = None, count: int = 1
    ) -> str:
        """Run a command that must fail: exit code 1, a line for each of *count* errors, no traceback."""
        done = run(argv, folder=self.folder, environment=environment)
        text = (done.stderr + done.stdout).decode()
        self.assertEqual(done.returncode, 1, text)
        self.assertNotIn("Traceback", text)
        lines = [line for line in text.splitlines() if line.strip()]
        for word in words:
            self.assertIn(word, text)
        self.assertEqual(len(lines), count, text)
        return lines[0]

    def test_taken_port(self) -> None:
        """A port that another process listens on is named with its option."""
        with socket.create_server((LOOPBACK, 0)) as taken:
            port = str(taken.getsockname()[1])
            self.refusal(self.proxy(f"--port={port}"), "--port", port)
            self.refusal(self.proxy(f"--secure-port={port}"), "--secure-port", port)

    def test_host_of_another_machine(self) -> None:
        """An address of another machine is named by its own option."""
        self.refusal(self.proxy("--host=203.0.113.7"), "--host '203.0.113.7'", "of this machine")

    def test_port_not_a_number(self) -> None:
        """A port that is not a number is named with its option."""
        for option in ("--port", "--secure-port"):
            self.refusal(self.proxy(f"{option}=xyz"), option, "xyz")
            self.refusal(self.proxy(f"{option}=70000"), option, "70000")

    def test_cluster_ports(self) -> None:
        """An invalid range is named with its option."""
        self.refusal(self.proxy("--cluster-ports=7000-6000"), "--cluster-ports", "7000-6000")

    def test_duration(self) -> None:
        """An invalid duration is named with its option."""
        self.refusal(self.proxy("--keepalive=soon"), "--keepalive", "soon")

    def test_later_options(self) -> None:
        """Known options that are not available yet are refused by name."""
        self.refusal(self.proxy("--kubeconfig=/etc/kubeconfig"), "--kubeconfig")
        self.refusal(self.proxy("--leader-elect"), "--leader-elect")

    def test_unreadable_key(self) -> None:
        """A CA whose key cannot be read is named with its file."""
        missing = self.folder / "missing.key"
        ca = self.folder / "ca.crt"
        ca.write_text("no certificate")
        self.refusal(self.proxy(f"--ca-cert={ca}", f"--ca-key={missing}"), str(missing))
        missing.write_text("no key")
        self.refusal(self.proxy(f"--ca-cert={ca}", f"--ca-key={missing}"), str(self.folder))

    def test_forbidden_key(self) -> None:
        """A key that this user cannot read is named, without a traceback."""
        argv: list[str] = []
        if os.geteuid() == 0:  # root reads everything, unless these capabilities are dropped
            argv = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]
            if not shutil.which("setpriv") or run([*argv, "true"]).returncode:
                self.skipTest("root cannot be kept from reading a file here")
        key = self.folder / "ca.key"
        key.write_text("secret")
        key.chmod(0)
        self.refusal(
            [*argv, *self.proxy(f"--ca-cert={key}", f"--ca-key={key}")], str(key), "ermission", count=2
        )

    def test_state_that_others_can_read(self) -> None:
        """A state directory that others can read is refused with the fix."""
        state = self.folder / "open"
        state.mkdir()
        state.chmod(0o755)
        self.refusal(self.proxy(state=state), str(state), "chmod")

    def test_second_proxy(self) -> None:
        """Two proxies never share a state directory."""
        tower = harness.Tower(self.folder)
        self.addCleanup(tower.stop)
        tower.start()
        self.refusal(self.proxy(state=tower.state), str(tower.state))

    def stopped_state(self) -> tuple[Path, Path]:
        """Return the state directory of a proxy that ran, and the database in it."""
        tower = harness.Tower(self.folder)
        self.addCleanup(tower.stop)
        tower.start()
        tower.tower("cluster", "add", "alpha")
        self.assertTrue(tower.proxy.stop())
        (database,) = (path for path in tower.state.iterdir() if is_database(path))
        return tower.state, database

    def test_corrupt_state(self) -> None:
        """A damaged database is named with the fix."""
        state, database = self.stopped_state()
        size = database.stat().st_size
        database.write_bytes(b"SQLite format 3\0" + os.urandom(size))
        self.refusal(self.proxy(state=state), str(database))

    def test_newer_state(self) -> None:
        """A database of a newer Tower is not changed."""
        state, database = self.stopped_state()
        with sqlite3.connect(database) as connection:
            connection.execute("PRAGMA user_version = 1000")
        connection.close()
        before = database.read_bytes()
        self.refusal(self.proxy(state=state), str(database), "newer")
        self.assertEqual(database.read_bytes(), before)

    def test_full_disk(self) -> None:
        """A full disk is reported at the start, not later."""
        mount = self.folder / "tiny"
        mount.mkdir()
        proxy = shlex.join(self.proxy(state=mount / "state"))
        tiny = (
            f"mount -t tmpfs -o size={TINY} tmpfs {mount}; "
            f"head -c {TINY} /dev/zero >{mount}/filler 2>/dev/null; exec {proxy}"
        )
        own = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
        if run([*own, "mount", "-t", "tmpfs", "tmpfs", str(mount)]).returncode:
            self.skipTest("this machine lets us mount nothing")
        self.refusal([*own, "sh", "-c", tiny], str(mount))

    def test_unread_help(self) -> None:
        """Help that is not read to its end is not an error."""
        for name in ("tower-proxy", "tower-agent"):
            reader, writer = os.pipe()
            os.close(reader)
            with os.fdopen(writer) as output:
                done = subprocess.run(
                    [script(name), "--help"], stdout=output, stderr=subprocess.PIPE, timeout=100, check=False
                )
            self.assertEqual((done.returncode, done.stderr), (0, b""), name)

    def test_environment(self) -> None:
        """Both programs take all options from the environment, and report bad ones in one line."""
        tower = harness.Tower(self.folder)
        self.addCleanup(tower.stop)
        given = {
            "TOWER_STATE_DIR": str(tower.state),
            "TOWER_HOST": LOOPBACK,
            "TOWER_PORT": str(tower.port),
            "TOWER_SECURE_PORT": str(tower.secure_port),
            "TOWER_CLUSTER_PORTS": "none",
        }
        argv = [script("twistd"), "-n", "--pidfile="]
        self.refusal([*argv, "tower-proxy"], "xyz", environment={**given, "TOWER_PORT": "xyz"})
        required = ("--name", "--proxy-server", "--host-key")
        self.refusal([*argv, "tower-agent"], *required, environment={}, count=len(required))
        tower.proxy = Program("tower-proxy", [*argv, "tower-proxy"], self.folder, given)
        tower.start()
        tower.tower("cluster", "add", "alpha")
        words = shlex.split(tower.tower("join", "alpha", "--format", "env"))
        flags = dict(
            zip(
                words[words.index("tower-agent") + 1 :: 2], words[words.index("--name") + 1 :: 2], strict=True
            )
        )
        environment = {f"TOWER_{flag[2:].upper().replace('-', '_')}": value for flag, value in flags.items()}
        environment |= dict(word.split("=", 1) for word in words if word.startswith("TOWER_"))
        health = free_port()
        environment |= {
            "TOWER_STATE_DIR": str(self.folder / "agent"),
            "TOWER_KUBECONFIG": str(tower.state / "admin.kubeconfig"),
            "TOWER_HEALTH_ADDRESS": f"{LOOPBACK}:{health}",
        }
        agent = harness.Agent(tower, "agent", [], environment, [])
        agent.health_port = health
        agent.program = Program("agent", [*argv, "tower-agent"], self.folder, environment)
        tower.agents.append(agent)
        agent.program.start()
        agent.wait_until_ready()

    def test_agent_options(self) -> None:
        """An agent without a name, a server or a fingerprint names the missing option."""
        base = [script("tower-agent"), f"--state-dir={self.folder / 'agent'}"]
        good = {
            "--name": "alpha",
            "--proxy-server": "wss://127.0.0.1:1",
            "--host-key": "SHA256:" + "A" * 43,
            "--ca-hash": "sha256:" + "0" * 64,
        }
        for left_out in ("--name", "--proxy-server", "--host-key"):
            rest = [f"{name}={value}" for name, value in good.items() if name != left_out]
            self.refusal([*base, *rest], left_out)
        everything = [f"{name}={value}" for name, value in good.items()]
        missing = str(self.folder / "none")
        self.refusal([*base, *everything, "--kubeconfig", missing], "--kubeconfig", missing)
        self.refusal([*base, *everything, "--proxy-server=gopher://x"], "--proxy-server", "gopher")


def is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database."""
    return path.is_file() and path.read_bytes()[:15] == b"SQLite format 3"


class CommandTests(harness.TowerTestCase):
    """The ``tower`` command against a running proxy that no agent has joined."""

    def refusal(self, *arguments: str, expected: int = 1) -> str:
        """Run a command that must fail: exit code *expected*, nothing on standard output, no traceback."""
        code, out, error = self.tower.try_tower(*arguments)
        self.assertEqual((code, out), (expected, ""), error)
        self.assertNotIn("Traceback", error)
        return error

    def test_clusters(self) -> None:
        """Clusters are added, listed, shown, disabled, enabled and removed."""
        self.tower.tower("cluster", "add", "alpha")
        self.tower.tower("cluster", "add", "beta")
        listed = self.tower.tower("cluster", "list")
        self.assertIn("alpha", listed)
        self.assertIn("beta", listed)
        self.tower.tower("cluster", "disable", "alpha")
        self.assertFalse(self.tower.status("alpha")["spec"]["enable"])
        self.tower.tower("cluster", "enable", "alpha")
        self.assertTrue(self.tower.status("alpha")["spec"]["enable"])
        self.assertIn("alpha", self.tower.tower("cluster", "show", "alpha"))
        self.tower.tower("cluster", "agents", "alpha")
        self.tower.tower("cluster", "remove", "alpha")
        self.assertNotIn("alpha", self.tower.tower("cluster", "list"))

    def test_what_is_and_what_is_not(self) -> None:
        """Adding an existing object and changing a missing one: exit 1 and the name."""
        self.tower.tower("cluster", "add", "alpha")
        self.assertIn("alpha", self.refusal("cluster", "add", "alpha"))
        for words in (
            ("cluster", "remove"),
            ("cluster", "show"),
            ("cluster", "enable"),
            ("cluster", "disable"),
            ("cluster", "agents"),
            ("join",),
        ):
            self.assertIn("omega", self.refusal(*words, "omega"))
        self.assertIn("omega", self.refusal("kubeconfig", "omega", "--user", "jane"))
        self.assertIn("Not_A_Name", self.refusal("cluster", "add", "Not_A_Name", expected=2))

    def test_join_line(self) -> None:
        """The join line is one line in the agreed form."""
        self.tower.tower("cluster", "add", "alpha")
        agent = (
            r"tower-agent --name alpha "
            rf"--proxy-server wss://{LOOPBACK}:{self.tower.secure_port} "
            r"--host-key SHA256:[A-Za-z0-9+/]{43} --ca-hash sha256:[0-9a-f]{64}"
        )
        self.assertRegex(
            self.tower.tower("join", "alpha"), rf"^printf %s tower-\S+ \| {agent} --token-file -\n$"
        )
        self.assertRegex(
            self.tower.tower("join", "alpha", "--format", "env"), rf"^env TOWER_TOKEN=tower-\S+ {agent}\n$"
        )

    def test_limits(self) -> None:
        """A user of the system, and a lifetime that is too long, are refused."""
        self.tower.tower("cluster", "add", "alpha")
        self.assertIn("system:", self.refusal("kubeconfig", "alpha", "--user", "system:admin", expected=2))
        refused = self.refusal("kubeconfig", "alpha", "--user", "jane", "--ttl", "25h", expected=2)
        self.assertIn("--max-credential-ttl", refused)

    def test_from_elsewhere(self) -> None:
        """The administrator's kubeconfig works without the state directory."""
        (admin,) = self.tower.state.glob("admin*.kubeconfig")
        done = run([script("tower"), "--kubeconfig", str(admin), "cluster", "add", "alpha"])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("alpha", self.tower.tower("cluster", "list"))

    def test_no_proxy(self) -> None:
        """Without a running proxy the command names the address that it tried."""
        self.tower.proxy.stop()
        self.assertIn(str(self.tower.secure_port), self.refusal("cluster", "list"))

    def test_state_survives(self) -> None:
        """The answered objects exist after kill -9."""
        self.tower.tower("cluster", "add", "alpha")
        port = self.tower.cluster_port("alpha")
        self.tower.proxy.kill()
        self.tower.start()
        self.assertEqual(self.tower.cluster_port("alpha"), port)

    def test_graceful_stop(self) -> None:
        """SIGTERM ends the proxy in time and without errors."""
        self.assertTrue(self.tower.proxy.stop())
        self.assertNotIn("Traceback", self.tower.proxy.output())


class AddressTests(SynchronousTestCase):
    """Addresses of the proxy that need care."""

    def test_no_plain_port(self) -> None:
        """With ``--port none`` the proxy serves all but unencrypted agents, and old agents use https."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        tower = harness.Tower(folder)
        self.addCleanup(tower.stop)
        tower.proxy = tower.proxy_program("--port=none")
        tower.proxy.start()
        wait_for("the proxy", lambda: "listening on" in tower.proxy.output())
        self.assertFalse(is_ready(tower.port, "/health"))
        tower.tower("cluster", "add", "alpha")
        self.assertIn(f"wss://{LOOPBACK}:{tower.secure_port}", tower.tower("join", "alpha"))
        line, note = tower.try_tower("join", "alpha", "--protocol", "v1")[1:]
        self.assertIn(f"https://{LOOPBACK}:{tower.secure_port}", line)
        self.assertIn("no plain port", note)
        self.assertTrue(tower.proxy.stop())
        self.assertNotIn("--publish-service-address", tower.proxy.output())

    def test_no_address(self) -> None:
        """The start names the flag; ``join`` and ``kubeconfig`` have the address of the default route."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        tower = harness.Tower(folder)
        self.addCleanup(tower.stop)
        tower.proxy = tower.proxy_program("--host=0.0.0.0")
        tower.start()
        wait_for("the warning", lambda: " warn " in tower.proxy.output())  # the log is written by a thread
        (warning,) = (line for line in tower.proxy.output().splitlines() if " warn " in line)
        self.assertIn("--publish-service-address is not set", warning)
        address = default_address("0.0.0.0")
        if address is not None:
            self.assertIn(f"users and agents connect to {address},", warning)
        tower.tower("cluster", "add", "alpha")
        for words in (("join", "alpha"), ("kubeconfig", "alpha", "--user", "jane")):
            code, out, error = tower.try_tower(*words)
            self.assertNotIn("0.0.0.0", out + error)
            if address is None:
                self.assertEqual((code, out), (1, ""), error)
                self.assertIn("--publish-service-address", error)
            else:
                self.assertIn(f"//{join_address(address, tower.secure_port)}", out)
