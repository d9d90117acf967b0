"""Wrong uses of the two programs: each gives one line, with the cause and the cure."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
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
from tests.integration.programs import LOOPBACK, PATIENCE, Program, run, script, wait_for
from tower import agent, proxy
from tower.trust.statedir import StateDir

HOST_KEY = "SHA256:" + "A" * 43
CLOCKWORK = Path(__file__).parent / "clockwork"
HOUR = 3600
MINUTE = 60.0  # s


#: Parts of expected lines that differ from run to run.
VARIABLE = {
    "time": r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC",
    "span": r"\d+[hm]\d+[ms]|\d+[hms]",
    "key": r"SHA256:[A-Za-z0-9+/]{43}",
    "hash": r"sha256:[0-9a-f]{64}",
    "id": r"[0-9a-f-]{36}",
}


@frozen
class Wrong:
    """A wrong use.

    :ivar options: of the program; ``{folder}`` and ``{taken}`` are replaced.
    :ivar line: the whole line after the program's name.
    """

    options: str
    line: str
    environ: dict[str, str] = field(factory=dict)


PROXY = [
    Wrong("--secure-prot 8443", "--secure-prot is not an option of tower-proxy: did you mean --secure-port?"),
    Wrong("start", "'start' is not an option, and tower-proxy has no subcommands: --help lists the options"),
    Wrong(
        "--proxy-server wss://x",
        "--proxy-server is not an option of tower-proxy: it is an option of tower-agent",
    ),
    Wrong("--port", "--port requires a value: --help describes it"),
    Wrong(
        "--keepalive 10",
        "--keepalive '10' is not a duration: give numbers with units, such as 10s, 1h30m, 500ms or 1d",
    ),
    Wrong(
        "--buffer-budget 32",
        "--buffer-budget '32' is 32 B, and the minimum is 1MiB: give a unit, such as 32MiB",
    ),
    Wrong(
        "--cluster-ports 7000-6000",
        "--cluster-ports '7000-6000' is not a port range: give the first and the last port, such as "
        "6000-7000, or none",
    ),
    Wrong("--port 8443 --secure-port 8443", "--port '8443' is the same as --secure-port: change one of them"),
    Wrong(
        "--host 203.0.113.7",
        "--host '203.0.113.7' is not an address of this machine (Cannot assign requested address): set one "
        "of its addresses, or 0.0.0.0 for all",
    ),
    Wrong(
        "--port {taken}",
        "--port '{taken}' is not available at 127.0.0.1 (address already in use by process {process}): stop "
        "process {process}, or choose another port",
    ),
    Wrong("--ca-cert {folder}/a-file", "--ca-cert and --ca-key require each other: give both, or neither"),
    Wrong(
        "--log-file {folder}/none/log",
        "--log-file '{folder}/none/log' cannot be written (no such file or directory): name a file in a "
        "directory that Tower owns",
    ),
    Wrong(
        "--log-levels {folder}/a-file",
        "--log-levels '{folder}/a-file' has the line 'rubbish', which is not a log level: give v=N or "
        "vmodule=MODULE=N",
    ),
    Wrong("--log-format xml", "--log-format 'xml' is not a log format: give text or json"),
    Wrong(
        "--state-dir {folder}/open",
        "state directory {folder}/open: accessible to other users (mode 755): chmod 700 {folder}/open, or "
        "set another directory",
    ),
    Wrong(
        "--state-dir {folder}/a-file",
        "state directory {folder}/a-file: is a file: set the path of a directory",
    ),
    Wrong(
        "--state-dir {folder}/locked --port {taken}",
        "state directory {folder}/locked: in use by another Tower process: stop that process, or set another "
        "directory",
    ),
    Wrong(
        "--kubeconfig k",
        "--kubeconfig 'k' cannot be read (No such file or directory): name a readable file",
    ),
    Wrong(
        "",
        "TOWER_SECURE_PROT is not a variable of Tower: did you mean TOWER_SECURE_PORT?",
        {"TOWER_SECURE_PROT": "1"},
    ),
]

AGENT = [
    Wrong(
        "--proxy-server wss://x:1 --host-key {key}",
        "--name is missing: name of the cluster, as in 'tower cluster add NAME'",
    ),
    Wrong(
        "--name alpha --host-key {key}",
        "--proxy-server is missing: URL of the proxy, such as wss://tower.example.com:8443",
    ),
    Wrong(
        "--name alpha --host-key {key} --proxy-server x:8443",
        "--proxy-server 'x:8443' is not a URL with scheme and host: give one such as "
        "wss://tower.example.com:8443",
    ),
    Wrong(
        "--name alpha --proxy-server wss://x:1",
        "--host-key is missing: copy it from the line that 'tower join' prints; for a KubeSphere Tower "
        "proxy, which creates a new host key at each start, set --insecure-v1-any-host-key",
    ),
    Wrong(
        "--name alpha --proxy-server wss://x:1 --host-key {key} --token-file {folder}/no",
        "--token-file '{folder}/no' cannot be read (No such file or directory): name a readable file",
    ),
    Wrong(
        "--name alpha --proxy-server wss://x:1 --host-key {key} --secure-port 1",
        "--secure-port is not an option of tower-agent: it is an option of tower-proxy",
    ),
]


def matches(expected: str, line: str) -> bool:
    """Return whether *line* is *expected*, in which ``<time>`` and the like stand for `VARIABLE` parts."""
    parts = re.split(r"<(\w+)>", expected)
    pattern = "".join(
        f"(?:{VARIABLE[part]})" if number % 2 else re.escape(part) for number, part in enumerate(parts)
    )
    return re.fullmatch(pattern, line) is not None


class OptionTable(SynchronousTestCase):
    """Programs that end with one line, and exit code 1."""

    def test_table(self) -> None:
        """Each wrong option gives one line with its name, the value and the cure."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        (folder / "a-file").write_text("rubbish")
        (folder / "open").mkdir()
        (folder / "open").chmod(0o755)
        locked = StateDir(folder / "locked")
        locked.lock()
        self.addCleanup(locked.close)
        taken = socket.create_server((LOOPBACK, 0))
        self.addCleanup(taken.close)
        own = f"{os.getpid()} ({Path('/proc/self/comm').read_text().strip()})"
        port = str(taken.getsockname()[1])
        names = {"folder": str(folder), "taken": port, "key": HOST_KEY, "process": own}
        base = ["--host", LOOPBACK, "--cluster-ports", "none", "--state-dir", str(folder / "state")]
        base += ["--port", str(free_port()), "--secure-port", str(free_port())]
        for program, before, table in (("tower-proxy", base, PROXY), ("tower-agent", [], AGENT)):
            for wrong in table:
                words = [word.format(**names) for word in wrong.options.split()]
                text = self.refusal(program, [*before, *words], wrong.environ)
                self.assertEqual(text, f"{program}: {wrong.line.format(**names)}")

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

    def test_all_at_once(self) -> None:
        """Options that do not go together, wrong files and the state directory: a line each at one start."""
        folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, folder, True)
        (folder / "a-file").write_text("rubbish")
        words = ["--host=127.0.0.1", f"--state-dir={folder}/a-file", "--secure-port=8080"]
        words += [f"--client-ca-file={folder}/none", f"--token-auth-file={folder}/a-file"]
        lines = self.refusal("tower-proxy", words, {}).splitlines()
        expected = (
            "--port '8080' is the same as --secure-port: change one of them",
            f"--client-ca-file: open {folder}/none: no such file or directory: name a readable file",
            (
                f"--token-auth-file {folder}/a-file: token file '{folder}/a-file' must have at least 3 "
                "columns (token, user name, user uid), found 1: correct record 1"
            ),
            f"state directory {folder}/a-file: is a file: set the path of a directory",
        )
        self.assertEqual(lines, [f"tower-proxy: {line}" for line in expected])

    def test_together(self) -> None:
        """An unknown option and an invalid value are reported by the same start, a line each."""
        done = run([script("tower-proxy"), "--secure-prot", "1", "--keepalive", "soon", "--port", "x"])
        self.assertEqual(
            done.stderr.decode().splitlines(),
            [
                f"tower-proxy: {line}"
                for line in (
                    "--secure-prot is not an option of tower-proxy: did you mean --secure-port?",
                    "--port 'x' is not a port: give a number from 1 to 65535, or none",
                    (
                        "--keepalive 'soon' is not a duration: give numbers with units, such as 10s, 1h30m, "
                        "500ms or 1d"
                    ),
                )
            ],
        )
        self.assertEqual(done.returncode, 1)


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
        late = tower.tower("join", "alpha", "--format", "env", "--ttl", "0.1s").split()
        rejected = (
            "the proxy rejected this agent for cluster '{0}': its join token is unknown, expired or used up, "
            "and its key <key> is not enrolled; or the cluster was removed or disabled: run 'tower join {0}' "
            "for a join line"
        )
        table: list[tuple[Program, str]] = [
            (
                self.wrong("wss", (secure, f"wss://{LOOPBACK}:{tower.port}")),
                (
                    f"cannot reach wss://{LOOPBACK}:{tower.port}: the TLS handshake failed: wrong version "
                    "number: this port does not use TLS: use the port in the proxy's --secure-port, or, for "
                    f"a connection without TLS, {plain} without --ca-hash and --ca-cert"
                ),
            ),
            (
                self.wrong("ws", (secure, f"ws://{LOOPBACK}:{tower.secure_port}"), drop="--ca-hash"),
                (
                    f"cannot open a tunnel to ws://{LOOPBACK}:{tower.secure_port}: closed the connection "
                    f"during the WebSocket handshake: if this is a TLS port, use {secure}"
                ),
            ),
            (
                self.wrong("no-hash", drop="--ca-hash"),
                (
                    f"cannot reach {secure}: certificate verify failed: self-signed certificate in "
                    "certificate chain: set --ca-hash, which 'tower join' prints, or --ca-cert to the "
                    "CA of this proxy"
                ),
            ),
            (
                self.wrong("other-hash", (ca, "sha256:" + "0" * 64)),
                (
                    f"cannot reach {secure}: no CA of the proxy has the hash in --ca-hash; its CAs have "
                    "<hash>; if its CA was changed on purpose, take the hash from a new join line"
                ),
            ),
            (
                self.wrong("other-key", (key, HOST_KEY)),
                (
                    f"the proxy's host key is {key}, not {HOST_KEY}: either this is not your proxy, or its "
                    "key was changed: then set --host-key to the new one, which 'tower join' prints"
                ),
            ),
            (
                early,
                (
                    f"cannot reach wss://{LOOPBACK}:{self.ahead.secure_port}: certificate verify failed: "
                    "certificate is not yet valid: its certificate is valid from <time>, but this machine's "
                    "clock shows <time>, <span> earlier: set the clock of this machine, or that of the "
                    "server if it is wrong"
                ),
            ),
            (self.wrong("spent"), rejected.format("alpha")),
            (
                self.wrong("expired", TOWER_TOKEN=next(word[12:] for word in late if "TOWER_TOKEN=" in word)),
                rejected.format("alpha"),
            ),
            (other_cluster, rejected.format("omega")),
            (
                self.wrong("closed", (str(tower.secure_port), str(free))),
                (
                    f"cannot reach wss://{LOOPBACK}:{free}: connection refused: check --proxy-server, and "
                    "that the proxy runs there"
                ),
            ),
            (
                self.wrong(
                    "dead-proxy",
                    (secure, "wss://tower.example:8443"),
                    HTTPS_PROXY=f"http://{LOOPBACK}:{free}",
                ),
                (
                    f"cannot reach wss://tower.example:8443: the HTTP proxy {LOOPBACK}:{free} (HTTPS_PROXY) "
                    "cannot be reached: connection refused: correct or unset HTTPS_PROXY, or add "
                    "tower.example to NO_PROXY"
                ),
            ),
        ]
        began = time.monotonic()
        for program, _ in table:
            program.start()
        for program, expected in table:
            wait_for(f"a line of {program.name}", partial(has_failed, program))
            line = next(line for line in program.output().splitlines() if "failed:" in line)
            self.assertTrue(
                matches(f"warn member: attempt 1 to connect failed: {expected}", line.partition(" ")[2]), line
            )
            self.assertTrue(program.running(), line)
            self.assertNotIn("Traceback", program.output())
        for program, _ in table:
            if program.name not in ("closed", "dead-proxy"):  # may end without an operator
                self.check_lines(program, 1, began)

    def check_lines(self, program: Program, count: int, began: float) -> None:
        """Check that an agent has logged *count* different failures, and repeated one each minute."""
        logged = program.output()
        repeated = int((time.monotonic() - began) / MINUTE)
        self.assertIn(logged.count("to connect failed:") - count, range(repeated + 1), logged)

    def test_rejected(self) -> None:
        """A disabled cluster and a revoked key are named by agent, proxy, doctor and condition."""
        tower, agent, proxy, began = self.tower, self.good, self.tower.proxy, time.monotonic()
        key = re.findall(r"key (SHA256:\S+),", proxy.output())[-1]
        doctor = [script("tower"), "doctor", "--agent", *agent.argv[1:]]

        def failure() -> str:
            """Return the doctor's failure; its other connections are not rejected agents."""
            before = proxy.output().count("agent at")
            done = run(doctor, folder=self.folder).stdout.decode()
            (line,) = (line for line in done.splitlines() if line.startswith("FAIL  enrollment"))
            wait_for("the proxy's line", lambda: proxy.output().count("agent at") > before)
            self.assertNotIn("before it was authenticated", proxy.output())
            self.assertNotIn("0.0.0.0:0", proxy.output())
            return line

        sound = run(doctor, folder=self.folder).stdout.decode()
        self.assertIn(f"ok    enrollment: key {key} is enrolled", sound)
        self.assertNotIn("was rejected", proxy.output())
        tower.tower("cluster", "disable", "alpha")
        expected = "rejected this agent for cluster 'alpha': {}: run 'tower {} alpha'"
        text = expected.format("the cluster is disabled", "cluster enable")
        wait_for("the agent's line", lambda: text in agent.program.output())
        self.assertIn("was rejected: for cluster 'alpha': the cluster is disabled", proxy.output())
        self.assertNotIn("is not enrolled", proxy.output())
        self.assertIn("cluster alpha is disabled -> run 'tower cluster enable alpha'", failure())
        tower.tower("cluster", "enable", "alpha")
        agent.program.signal(signal.SIGHUP)
        agent.wait_until_ready()
        tower.tower("cluster", "revoke", "alpha", key)
        text = expected.format(f"its key {key} was revoked, and it has no join token", "join")
        wait_for("the agent's line", lambda: text in agent.program.output())
        self.assertIn(f"the key {key} was revoked", proxy.output())
        self.assertIn(f"key {key} was revoked for cluster alpha -> run 'tower join alpha'", failure())
        show = partial(tower.tower, "cluster", "show", "alpha")
        wait_for("the condition", lambda: f"{key} is rejected, because that key was revoked" in show())
        self.check_lines(agent.program, 2, began)

    def test_frozen_server(self) -> None:
        """An API server that accepts connections and never answers is named by the agent, with the cure."""
        mute = socket.create_server((LOOPBACK, 0))
        self.addCleanup(mute.close)
        server = f"{LOOPBACK}:{mute.getsockname()[1]}"
        file = self.folder / "frozen.kubeconfig"
        file.write_text(re.sub(rf"{LOOPBACK}:\d+", server, self.backend.kubeconfig("alpha").read_text()))
        program = self.tower.agent("alpha", file).program
        program.start()
        wait_for("the line", lambda: "warn member: " in program.output())
        (line,) = (line for line in program.output().splitlines() if "warn" in line)
        self.assertEqual(
            line.partition(" ")[2],
            f"warn member: api-server: API server {server} did not answer the agent in time: restart the "
            f"API server if it is frozen, check firewalls, or correct the server in {file}, or set "
            "--kubernetes-service (Timeout)",
        )
        self.assertIn("connected to", program.output())


class CommandTable(harness.TowerTestCase):
    """Wrong uses of the ``tower`` command with a running proxy."""

    def test_table(self) -> None:
        """Each wrong use ends with one line; exit code 2 if the command line is wrong."""
        tower = self.tower
        tower.tower("cluster", "add", "alpha")
        file = self.folder / "jane"
        tower.tower("kubeconfig", "alpha", "--user", "jane", "-o", str(file))
        user, off = str(file), f"{LOOPBACK}:{free_port()}"
        moved = self.folder / "moved"
        moved.write_text(re.sub(rf"{LOOPBACK}:\d+", off, (tower.state / "admin.kubeconfig").read_text()))
        moved.chmod(0o600)
        table = (
            (
                ("--kubeconfig", user, "cluster", "list"),
                2,
                (
                    f"tower: this kubeconfig is for cluster alpha only: {user}: use --state-dir or an "
                    "administrator's kubeconfig"
                ),
            ),
            (
                ("clustr", "list"),
                2,
                "tower: unknown command 'clustr': did you mean cluster?; see 'tower --help'",
            ),
            (
                ("cluster", "lsit"),
                2,
                "tower cluster: unknown command 'lsit': did you mean list?; see 'tower cluster --help'",
            ),
            (
                ("cluster", "show", "omega"),
                1,
                "tower: there is no cluster omega: 'tower cluster list' lists all clusters",
            ),
            (
                ("join", "alpha", "--ttl", "soon"),
                2,
                (
                    "tower join: argument --ttl: 'soon' is not a duration: give numbers with units, such as "
                    "10s, 1h30m, 500ms or 1d; see 'tower join --help'"
                ),
            ),
            (
                ("cluster", "list", "-l", "a=("),
                2,
                "tower: unable to parse the label selector 'a=(' at 'a=(' (request <id>)",
            ),
            (
                ("--kubeconfig", str(moved), "cluster", "list"),
                1,
                f"tower: cannot reach https://{off}: Connection refused: check that tower-proxy runs there",
            ),
            (
                ("forward", "alpha", "pg", "--listen", "pg"),
                2,
                (
                    "tower forward: argument --listen: 'pg' has no port from 0 to 65535: give one, as in "
                    "127.0.0.1:5432; see 'tower forward --help'"
                ),
            ),
        )
        for words, code, expected in table:
            argv = [script("tower"), "--state-dir", str(tower.state), *words]
            done = run(argv, folder=self.folder)
            self.assertEqual((done.returncode, done.stdout), (code, b""), words)
            line = done.stderr.decode()
            self.assertTrue(matches(expected + "\n", line), line)

    def test_removal(self) -> None:
        """On a terminal, the removal of a cluster is confirmed; Enter alone keeps it."""
        self.tower.tower("cluster", "add", "alpha")
        argv = [script("tower"), "--state-dir", str(self.tower.state), "cluster", "remove", "alpha"]
        for answer, code, last in (
            (b"\n", 1, b"tower: cluster alpha not removed: answer y, or add --yes"),
            (b"y\n", 0, b"cluster alpha removed"),
        ):
            master, terminal = os.openpty()
            self.addCleanup(os.close, master)
            os.write(master, answer)
            done = subprocess.run(
                argv, check=False, stdin=terminal, capture_output=True, timeout=PATIENCE, cwd=self.folder
            )
            os.close(terminal)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(b"Continue? [y/N] ", done.stderr)
            self.assertIn(last, done.stderr + done.stdout)


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
        for content, expected in (
            (
                None,
                (
                    "missing, and 1 enrolled agent accepts no other one: restore it from a backup; without "
                    "a backup, set --new-host-key, and every agent has to join again"
                ),
            ),
            (
                b"",
                (
                    "damaged (not an unencrypted OpenSSH private key): restore it from a backup; if you "
                    "delete it, every agent has to join again"
                ),
            ),
        ):
            path.unlink()
            if content is not None:
                path.write_bytes(content)
            refused = self.tower.proxy_program(name=f"refused-{content is None}")
            refused.start()
            self.assertEqual(refused.wait(), 1)
            self.assertEqual(refused.output().strip(), f"tower-proxy: SSH host key {path} is {expected}")
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
