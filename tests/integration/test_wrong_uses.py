"""Wrong uses of the two programs: each gives one line, with the cause and the cure."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any, cast

from attrs import field, frozen
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, Program, run, script, wait_for
from tower import agent, proxy

HOST_KEY = "SHA256:" + "A" * 43
CLOCKWORK = Path(__file__).parent / "clockwork"
HOUR = 3600


@frozen
class Wrong:
    """A wrong use.

    :ivar options: of the program; ``{folder}`` and ``{taken}`` are replaced.
    :ivar words: of the line.
    """

    options: str
    words: tuple[str, ...]
    environ: dict[str, str] = field(factory=dict)


PROXY = [
    Wrong("--secure-prot 8443", ("--secure-prot is not an option", "did you mean --secure-port?")),
    Wrong("start", ("'start'", "no subcommands", "--help")),
    Wrong("--proxy-server wss://x", ("--proxy-server", "it is an option of tower-agent")),
    Wrong("--port", ("--port requires a value",)),
    Wrong("--keepalive 10", ("--keepalive '10'", "units", "10s")),
    Wrong("--buffer-budget 32", ("--buffer-budget '32' is 32 B", "give a unit, such as 32MiB")),
    Wrong("--cluster-ports 7000-6000", ("--cluster-ports '7000-6000'", "the first and the last port")),
    Wrong("--port 8443 --secure-port 8443", ("--port '8443'", "is the same as --secure-port")),
    Wrong("--host 203.0.113.7", ("--host '203.0.113.7'", "is not an address of this machine", "0.0.0.0")),
    Wrong("--port {taken}", ("--port '{taken}'", "already in use by process", "choose another port")),
    Wrong("--ca-cert {folder}/a-file", ("--ca-cert and --ca-key require each other",)),
    Wrong("--log-file {folder}/none/log", ("--log-file", "no such file or directory", "name a file")),
    Wrong("--log-levels {folder}/a-file", ("--log-levels", "has the line 'rubbish'", "give v=N")),
    Wrong("--log-format xml", ("--log-format 'xml'", "give text or json")),
    Wrong("--state-dir {folder}/open", ("{folder}/open", "accessible to other users", "chmod 700")),
    Wrong("", ("TOWER_SECURE_PROT", "did you mean TOWER_SECURE_PORT?"), {"TOWER_SECURE_PROT": "1"}),
]

AGENT = [
    Wrong("--proxy-server wss://x:1 --host-key {key}", ("--name is missing", "tower cluster add")),
    Wrong("--name alpha --host-key {key}", ("--proxy-server is missing", "wss://")),
    Wrong("--name alpha --host-key {key} --proxy-server x:8443", ("--proxy-server 'x:8443'", "wss://")),
    Wrong("--name alpha --proxy-server wss://x:1", ("--host-key is missing", "tower join")),
    Wrong(
        "--name alpha --proxy-server wss://x:1 --host-key {key} --token-file {folder}/no", ("cannot be read",)
    ),
    Wrong("--name alpha --proxy-server wss://x:1 --host-key {key} --secure-port 1", ("of tower-proxy",)),
]


class OptionTable(SynchronousTestCase):
    """Programs that end with one line, and exit code 1."""

    def test_table(self) -> None:
        """Each wrong option gives one line with its name, the value and the cure."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        (folder / "a-file").write_text("rubbish")
        (folder / "open").mkdir(mode=0o755)
        taken = socket.create_server((LOOPBACK, 0))
        self.addCleanup(taken.close)
        names = {"folder": str(folder), "taken": str(taken.getsockname()[1]), "key": HOST_KEY}
        base = ["--host", LOOPBACK, "--cluster-ports", "none", "--state-dir", str(folder / "state")]
        base += ["--port", str(free_port()), "--secure-port", str(free_port())]
        for program, before, table in (("tower-proxy", base, PROXY), ("tower-agent", [], AGENT)):
            for wrong in table:
                words = [word.format(**names) for word in wrong.options.split()]
                text = self.refusal(program, [*before, *words], wrong.environ)
                self.assertEqual(text.count("\n"), 0, text)
                self.assertTrue(text.startswith(f"{program}: "), text)
                for word in wrong.words:
                    self.assertIn(word.format(**names), text)

    def refusal(self, program: str, arguments: list[str], environ: dict[str, str]) -> str:
        """Return the text with which a program ends; it is started in this process."""
        options: Any = (proxy if program == "tower-proxy" else agent).Options(environ)
        make = proxy.makeService if program == "tower-proxy" else agent.makeService
        try:
            options.parseOptions(arguments)
            options.log_observer()
            make(options, cast(Any, MemoryReactorClock()))
        except SystemExit as e:
            return str(e.code)
        raise AssertionError(f"{program} {arguments} started")

    def test_together(self) -> None:
        """An unknown option and an invalid value are reported by the same start, a line each."""
        done = run([script("tower-proxy"), "--secure-prot", "1", "--keepalive", "soon", "--port", "x"])
        lines = done.stderr.decode().splitlines()
        self.assertEqual((done.returncode, len(lines)), (1, 3), lines)


class AgentTable(harness.TowerTestCase):
    """Agents that cannot connect: they go on trying, and log the cause and the cure."""

    def setUp(self) -> None:
        """Add a cluster; let an agent join with a token, which is spent then."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.good = self.tower.add("alpha", self.backend.kubeconfig("alpha"))
        self.ahead = harness.Tower(self.folder / "ahead")
        self.ahead.folder.mkdir()
        self.addCleanup(self.ahead.stop)
        step = self.folder / "step"
        step.write_text(str(2 * HOUR))
        path = os.pathsep.join([str(CLOCKWORK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        environment = {"PYTHONPATH": path, "CLOCK_STEP": str(step)}
        self.ahead.proxy = Program("ahead", self.ahead.proxy.argv, self.folder, environment)
        self.ahead.start()

    def wrong(self, name: str, *changes: tuple[str, str], drop: str = "", **environ: str) -> Program:
        """Return an agent with its own state whose join line is changed.

        :param changes: texts to replace.
        :param drop: an option to leave out, with its value.
        """
        words = list(self.good.argv)
        if drop:
            at = words.index(drop)
            del words[at : at + 2]
        for old, new in changes:
            words = [word.replace(old, new) for word in words]
        words = [word for word in words if not word.startswith(("--state-dir=", "--health-address="))]
        words.append(f"--state-dir={self.folder / name}-state")
        made = Program(name, words, self.folder, {**self.good.environment, **environ})
        self.addCleanup(made.kill)
        return made

    def test_table(self) -> None:
        """Each wrong setting gives one line a minute with the cause and the cure."""
        tower = self.tower
        secure, plain = f"wss://{LOOPBACK}:{tower.secure_port}", f"ws://{LOOPBACK}:{tower.port}"
        free = free_port()
        key = next(word for word in self.good.argv if word.startswith("SHA256:"))
        ca = next(word for word in self.good.argv if word.startswith("sha256:"))
        early = self.wrong("clock", (secure, f"wss://{LOOPBACK}:{self.ahead.secure_port}"), drop="--ca-hash")
        early.argv.append(f"--ca-cert={self.ahead.state / 'serving-ca.pem'}")
        other_cluster = self.wrong("other-cluster", drop="--name")
        other_cluster.argv.append("--name=omega")
        line = self.tower.tower("join", "alpha", "--ttl=1s", "--format=env")
        expired = next(word for word in line.split() if word.startswith("TOWER_TOKEN=")).partition("=")[2]
        time.sleep(1.5)
        table: list[tuple[Program, tuple[str, ...]]] = [
            (
                self.wrong("wss", (secure, f"wss://{LOOPBACK}:{tower.port}")),
                ("this port does not use TLS", f"use {plain}"),
            ),
            (
                self.wrong("ws", (secure, f"ws://{LOOPBACK}:{tower.secure_port}"), drop="--ca-hash"),
                ("if this is a TLS port", f"use {secure}"),
            ),
            (
                self.wrong("no-hash", drop="--ca-hash"),
                ("certificate verify failed", "set --ca-hash, which 'tower join' prints"),
            ),
            (
                self.wrong("other-hash", (ca, "sha256:" + "0" * 64)),
                ("no CA of the proxy has the hash in --ca-hash", "new join line"),
            ),
            (
                self.wrong("other-key", (key, HOST_KEY)),
                ("the proxy's host key is", "set --host-key to the new one"),
            ),
            (
                early,
                ("valid from", "this machine's clock shows", "earlier: set the clock of this machine"),
            ),
            (
                self.wrong("spent"),
                ("its join token is missing, unknown, expired or used up", "run 'tower join alpha'"),
            ),
            (
                self.wrong("expired", TOWER_TOKEN=expired),
                ("its join token is missing, unknown, expired or used up", "run 'tower join alpha'"),
            ),
            (
                other_cluster,
                ("the cluster was removed", "run 'tower join omega'"),
            ),
            (
                self.wrong("closed", (str(tower.secure_port), str(free))),
                (f"{LOOPBACK}:{free}: connection refused",),
            ),
            (
                self.wrong(
                    "dead-proxy",
                    (secure, "wss://tower.example:8443"),
                    HTTPS_PROXY=f"http://{LOOPBACK}:{free}",
                ),
                (f"the HTTP proxy {LOOPBACK}:{free} (HTTPS_PROXY) cannot be reached", "unset HTTPS_PROXY"),
            ),
        ]
        for program, _ in table:
            program.start()
        for program, words in table:
            wait_for(f"a line of {program.name}", partial(has_failed, program))
            line = next(line for line in program.output().splitlines() if "failed:" in line)
            for word in words:
                self.assertIn(word, line)
            self.assertIn(" warn ", line)
            self.assertTrue(program.running(), line)
            self.assertNotIn("Traceback", program.output())


class HostKeyTests(harness.TowerTestCase):
    """The proxy's host key, once an agent has joined."""

    def test_start(self) -> None:
        """A missing or damaged key ends the start with one line, and is not replaced."""
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        agent = self.tower.add("alpha", backend.kubeconfig("alpha"))
        self.tower.proxy.stop()
        path = self.tower.state / "ssh_host_ed25519_key"
        kept = path.read_bytes()
        for content, words in ((None, ("is missing", "--new-host-key")), (b"", ("is damaged", "backup"))):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            refused = self.tower.proxy_program(name=f"refused-{words[0]}")
            refused.start()
            self.assertEqual(refused.wait(), 1)
            (line,) = refused.output().splitlines()
            for word in (str(path), *words, "join again"):
                self.assertIn(word, line)
            self.assertEqual(path.exists(), content is not None)
            path.touch()
        path.write_bytes(kept)
        self.tower.start()
        agent.wait_until_ready()

    def test_single_port(self) -> None:
        """A range of one port is accepted, with a warning."""
        self.tower.proxy.stop()
        port = self.tower.cluster_ports[0]
        self.tower.proxy = self.tower.proxy_program(f"--cluster-ports={port}")
        self.tower.start()
        warning = f"--cluster-ports {port} is a single port, so only one cluster gets a port"
        wait_for("the warning", lambda: warning in self.tower.proxy.output())


def has_failed(program: Program) -> bool:
    """Return whether an agent has logged a failed attempt."""
    if not program.running():
        raise AssertionError(f"{program.name} ended: {program.output()}")
    return "failed:" in program.output()
