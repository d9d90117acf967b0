"""The reason of a failure in the output of kubectl without a discovery cache: once, and soon."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import socket
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.integration import harness
from tests.integration.member import member, oldest_and_newest
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, run, wait_for
from tests.integration.relay import Relay
from tests.integration.threaded import ThreadedServer
from tower.web.gateway.upstream.late_servers import LATE

GROUP = "/apis/cluster.kubesphere.io/v1alpha1"
PODS = ("get", "pods")
COMMANDS = (PODS, ("version",), ("api-resources",), ("apply", "-f", "-"), ("logs", "shell"))
CONFIG_MAP = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first-line}\n"
SOON = 8.0  # s, for a command and all of its requests
LONG = 30.0  # s, for commands that may take longer
FREEZE = 30.0  # s until a frozen agent shows
PAUSE = 3.0  # s that an agent is slow
BACK = 10.0  # s until an agent that answers again shows
ROUNDS = 3  # for what must be complete within `LATE`

# The words of kubectl for each status of an answer to a request for discovery, whose text it drops.
LATE_WORDS = (
    "the server was unable to return a response in the time allotted, but may still be processing the request"
)
WORDS = {
    401: ("Unauthorized", "the server has asked for the client to provide credentials"),
    403: ("Forbidden", "unknown"),
    404: ("NotFound", "the server could not find the requested resource"),
    502: ("InternalError", 'an error on the server ("unknown") has prevented the request from succeeding'),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", LATE_WORDS),
}
VALIDATION = (
    'error: error validating "STDIN": error validating data: failed to download openapi: {}; '
    "if you choose to ignore these errors, turn validation off with --validate=false"
)
DISCOVERY = re.compile(
    r"E\d{4} [\d:.]+ +\d+ memcache\.go:\d+\] "
    r"""(?:"Unhandled Error" err=")?couldn't get current server API group list: (.*?)"?"""
)
DEPRECATION = "WARNING: This version information is deprecated and will be replaced"


class Output(NamedTuple):
    """The end of one command; times are in s."""

    code: int
    out: str
    error: str
    took: float


def last_line(code: int, command: tuple[str, ...], *, newest: bool) -> str:
    """Return the line in which kubectl gives up because of an answer to a request for discovery."""
    reason, words = WORDS[code]
    if command[0] == "apply" and newest:
        return VALIDATION.format(words)
    if (command[0], code) == ("logs", 404) and newest:
        return f'error: error from server ({reason}): {words} in namespace "default"'
    return failure(code, words)


def failure(code: int, text: str) -> str:
    """Return the line for an error of the API."""
    if code == 401:
        return f"error: You must be logged in to the server ({text})"
    return f"Error from server ({WORDS[code][0]}): {text}"


class FirstLineTests(harness.TowerTestCase):
    """Real kubectl, the oldest and the newest, with an empty cache directory for each command."""

    def setUp(self) -> None:
        """Find both versions."""
        super().setUp()
        self.kubectls = oldest_and_newest()

    def new_tower(self) -> harness.Tower:
        """Return one whose keepalives detect nothing within the time of a test."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT)
        return tower

    def kubectl(self, kubectl: Path, kubeconfig: Path, *arguments: str, cache: Path | None = None) -> Output:
        """Run one command; without *cache* with an empty one."""
        folder = cache or Path(tempfile.mkdtemp(prefix="cache-", dir=self.folder))
        argv = [str(kubectl), f"--kubeconfig={kubeconfig}", f"--cache-dir={folder}", *arguments]
        began = time.monotonic()
        done = run(argv, stdin=CONFIG_MAP, timeout=LONG)
        took = time.monotonic() - began
        if cache is None:
            shutil.rmtree(folder, ignore_errors=True)
        return Output(done.returncode, done.stdout.decode(), done.stderr.decode(), took)

    def assert_failure(
        self,
        code: int,
        kubeconfig: Path,
        *parts: str,
        commands: tuple[tuple[str, ...], ...] = COMMANDS,
        within: float = LONG,
    ) -> None:
        """Compare the whole output of both versions with the answer of the API, whose text has *parts*.

        kubectl prints the reason once, with the cure and without the request's ID.
        """
        text = self.message(code, kubeconfig)
        for part in parts:
            self.assertIn(part, text)
        pairs = [(kubectl, command) for kubectl in self.kubectls for command in commands]
        with ThreadPoolExecutor(2) as threads:
            results = list(threads.map(lambda pair: self.kubectl(pair[0], kubeconfig, *pair[1]), pairs))
        for (kubectl, command), output in zip(pairs, results, strict=True):
            context = f"{kubectl} {command}: {output}{self.tower.proxy.tail()}"
            self.assertEqual(output.code, 1, context)
            self.assertLess(output.took, within, context)
            newest = kubectl == self.kubectls[-1]
            self.assertEqual(
                self.lines(output, code),
                [f"Warning: {text}", last_line(code, command, newest=newest)],
                context,
            )

    def message(self, code: int, kubeconfig: Path) -> str:
        """Return the text of Tower's answer to a request for discovery, without the request's ID."""
        answer = Person(kubeconfig).get("/api")
        message = json.loads(answer.body)["message"]
        self.assertEqual(answer.status, code, message)
        text, _, end = message.partition(" (request ")
        self.assertEqual(end, f"{answer.headers['X-Request-Id']})")
        return str(text)

    def lines(self, output: Output, code: int) -> list[str]:
        """Return the lines of standard error, without those of kubectl alone that repeat its own words."""
        kept = []
        for line in output.error.splitlines():
            match = DISCOVERY.fullmatch(line)
            if match is not None:
                self.assertEqual(match[1].replace('\\"', '"'), WORDS[code][1])
            elif not line.startswith(DEPRECATION):
                kept.append(line)
        return kept

    def assert_cached(self, code: int, kubeconfig: Path, cache: Path, *parts: str) -> None:
        """Compare the whole output of both versions with a discovery cache: the reason, and one ID."""
        text = self.message(code, kubeconfig)
        for part in parts:
            self.assertIn(part, text)
        for kubectl in self.kubectls:
            for command in (PODS, ("logs", "shell")):
                output = self.kubectl(kubectl, kubeconfig, *command, cache=cache / kubectl.name)
                error, _, request = output.error.partition(" (request ")
                self.assertEqual(error, failure(code, text).removesuffix(")" if code == 401 else ""))
                self.assertRegex(request, r"\A[0-9a-f-]{36}\){1,2}\n\Z")

    def filled(self, kubeconfig: Path) -> Path:
        """Return a directory of discovery caches, one for each version, of a cluster that works."""
        cache = Path(tempfile.mkdtemp(prefix="filled-", dir=self.folder))
        for kubectl in self.kubectls:
            output = self.kubectl(kubectl, kubeconfig, *PODS, cache=cache / kubectl.name)
            self.assertEqual(output.code, 0, output)
        return cache

    def moved(self, kubeconfig: Path, path: str) -> Path:
        """Return a copy of *kubeconfig* for another path of the front door."""
        config = yaml.safe_load(kubeconfig.read_text())
        server = config["clusters"][0]["cluster"]["server"]
        config["clusters"][0]["cluster"]["server"] = server.partition("/clusters/")[0] + path
        copy = kubeconfig.with_name(f"moved-{kubeconfig.name}")
        copy.touch(0o600)
        copy.write_text(json.dumps(config))
        return copy

    def test_rejected(self) -> None:
        """401, 403, 404 and 503 of the proxy, without a discovery cache and with it."""
        self.tower.add("alpha", member().agent)
        self.tower.tower("cluster", "add", "beta")
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        cache = self.filled(jane)
        self.assert_failure(
            403,
            self.moved(jane, "/clusters/beta"),
            "is for cluster alpha and is not valid for cluster beta: request a kubeconfig for cluster beta",
        )
        (admin,) = self.tower.state.glob("admin*.kubeconfig")
        copied = self.folder / "admin.kubeconfig"
        shutil.copy(admin, copied)
        missing = self.moved(copied, "/clusters/gamma")
        self.assert_failure(404, missing, "cluster gamma not found: 'tower cluster list' shows all")
        self.tower.tower("cluster", "disable", "alpha")
        disabled = "cluster alpha is disabled: ask an administrator ('tower cluster enable alpha')"
        self.assert_failure(503, jane, disabled, within=SOON)
        self.assert_cached(503, jane, cache, disabled)
        self.tower.tower("cluster", "enable", "alpha")
        answer = self.tower.admin().request("GET", f"{GROUP}/credentials")
        (issued,) = [item for item in json.loads(answer.body)["items"] if item["spec"]["cluster"] == "alpha"]
        self.tower.tower("credential", "revoke", issued["metadata"]["name"])
        revoked = "the credential of jane for cluster alpha was revoked: request a new kubeconfig"
        self.assert_failure(401, jane, revoked)
        self.assert_cached(401, jane, cache, revoked)

    def test_unreachable(self) -> None:
        """503 of an agent that cannot connect, and 502 of an API server that answers nonsense."""
        nonsense = Nonsense()
        self.addCleanup(nonsense.close)
        closed = free_port()
        for name, port, code, parts in (
            (
                "alpha",
                closed,
                503,
                (
                    f'cannot reach the API server: the agent of alpha reports: "{LOOPBACK}:{closed}: ',
                    "check that the API server runs, and its address in the kubeconfig of the agent",
                ),
            ),
            (
                "beta",
                nonsense.port,
                502,
                (
                    "sent an invalid HTTP answer: ",
                    "check that the kubeconfig of its agent has the address of an API server",
                ),
            ),
        ):
            self.tower.add(name, self.plain(port))
            self.assert_failure(code, self.tower.kubeconfig(name, "jane"), *parts, within=SOON)

    def test_frozen_api_server(self) -> None:
        """504 of an API server that begins to be silent, the same for all requests of a command."""
        relay = Relay(int(member().service.rpartition(":")[2]))
        self.addCleanup(relay.close)
        kubeconfig = self.folder / "relayed.kubeconfig"
        kubeconfig.touch(0o600)
        text = member().agent.read_text()
        kubeconfig.write_text(text.replace(member().service, f"{LOOPBACK}:{relay.port}"))
        self.tower.add("alpha", kubeconfig)
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        cache = self.filled(jane)
        text = "the API server did not answer the agent: "
        cure = "check that the API server runs, and its address in the kubeconfig of the agent"
        for _ in range(ROUNDS):
            relay.cut()  # unused connections
            wait_for("their end", lambda: not relay.open)
            relay.stall()
            wait_for("a 504", lambda: Person(jane).get("/api").status == 504)
            began = time.monotonic()
            try:
                self.assert_failure(504, jane, text, cure, within=SOON)
                self.assert_cached(504, jane, cache, text, cure)
            except AssertionError:
                if time.monotonic() - began < LATE:
                    raise
            else:
                break
            finally:
                relay.flow()
            wait_for("an answer", lambda: Person(jane).get("/api").status == 200)
        else:
            self.fail("this machine is too slow")

    def test_rejected_agent(self) -> None:
        """502 with the cure if the API server rejects the agent's token, or its right to impersonate."""
        cluster = member()
        cluster.kubectl("-n", "tower-system", "create", "serviceaccount", "weak-agent")
        self.addCleanup(cluster.kubectl, "-n", "tower-system", "delete", "serviceaccount", "weak-agent")
        token = cluster.kubectl("-n", "tower-system", "create", "token", "weak-agent").strip()
        renew = "renew the agent's token or client certificate; the agent's log has the command"
        secret = cluster.least.token
        for name, old, new, cure in (
            ("alpha", secret, token, "tower rbac agent | kubectl apply -f -"),
            ("beta", secret, "wrong", renew),
            ("gamma", '"token"', '"toke"', renew),
        ):
            kubeconfig = self.folder / f"{name}.kubeconfig"
            kubeconfig.touch(0o600)
            kubeconfig.write_text(cluster.agent.read_text().replace(old, new))
            self.tower.tower("cluster", "add", name)
            self.tower.agent(name, kubeconfig).program.start()
            jane = self.tower.person(name, "jane", "--group", "dev")
            parts = f"cluster {name} cannot be used: ", cure
            wait_for("the rejection", partial(self.is_rejected, jane, parts))
            self.assert_failure(502, jane.kubeconfig, *parts)

    def is_rejected(self, user: Person, parts: tuple[str, ...]) -> bool:
        """Return whether the user gets a 502 whose text has all *parts*."""
        answer = user.get("/api")
        return answer.status == 502 and all(part in json.loads(answer.body)["message"] for part in parts)

    def plain(self, port: int) -> Path:
        """Return the kubeconfig of an agent whose API server listens on *port* without TLS."""
        path = self.folder / f"plain-{port}.kubeconfig"
        cluster = {"name": "c", "cluster": {"server": f"http://{LOOPBACK}:{port}"}}
        user: dict[str, object] = {"name": "u", "user": {}}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        parts = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
        path.touch(0o600)
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
        return path

    def test_frozen_and_absent_agent(self) -> None:
        """The first command fails within 8 s while the agent is stopped, and once it is killed."""
        agent = self.tower.add("alpha", member().agent)
        jane = self.tower.kubeconfig("alpha", "jane", "--group", "dev")
        cache = self.filled(jane)
        frozen = "cluster alpha: its agent is connected but does not answer: check the agent's process"
        absent = (
            "no agent of cluster alpha is connected; one was last seen at ",
            "check whether an agent runs",
        )
        for text, begin in (((frozen,), agent.program.pause), (absent, agent.program.kill)):
            for number, kubectl in enumerate(self.kubectls):
                if number or begin == agent.program.kill:
                    agent.program.start() if not agent.program.running() else agent.program.resume()
                    wait_for("an answer", lambda: Person(jane).get("/api").status == 200)
                begin()
                output = self.kubectl(kubectl, jane, *PODS)
                self.assertLess(output.took, SOON, output)
                self.assertEqual(output.error.count(text[0]), 1, output)
            self.assert_failure(503, jane, *text, within=SOON)
            self.assert_cached(503, jane, cache, *text)


class SilentAgentTests(harness.TowerTestCase):
    """The condition, the list and the log of a cluster whose agent is stopped, without requests to it."""

    def new_tower(self) -> harness.Tower:
        """Return one whose keepalives detect nothing within the time of a test."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT)
        return tower

    def available(self, cluster: str) -> tuple[str, str]:
        """Return status and reason of the condition ``Available``."""
        conditions = self.tower.status(cluster)["status"]["conditions"]
        (found,) = (each for each in conditions if each["type"] == "Available")
        return found["status"], found["reason"]

    def is_ready(self, cluster: str) -> bool:
        """Return whether users can use *cluster*."""
        return self.available(cluster) == ("True", "Ready")

    def seen(self) -> dict[str, str]:
        """Return the column ``LAST SEEN`` of `tower cluster list`."""
        lines = self.tower.tower("cluster", "list").splitlines()
        column = slice(lines[0].index("LAST SEEN"), lines[0].index("AGE"))
        return {line.split()[0]: line[column].strip() for line in lines[1:]}

    def test_frozen(self) -> None:
        """A frozen agent shows soon, and its next byte ends it; short pauses of an agent never show."""
        frozen, slow = (self.tower.add(name, member().agent).program for name in ("alpha", "beta"))
        for name in ("alpha", "beta"):
            wait_for("the first check", partial(self.is_ready, name))
        shown = ("False", "AgentNotResponding")
        turns = cycle((slow.pause, slow.resume))

        def is_shown() -> bool:
            next(turns)()
            return self.available("alpha") == shown

        frozen.pause()
        wait_for("the reason", is_shown, FREEZE, PAUSE)
        slow.resume()
        self.assertRegex(self.seen()["alpha"], r"\A\d+s ago\Z")
        line = (
            "cluster alpha is not available: AgentNotResponding: An agent is connected, but has not answered"
        )
        self.assertIn(line, self.tower.proxy.output())
        answer = self.tower.person("alpha", "jane").get("/version")
        self.assertEqual(answer.status, 503)
        frozen.resume()
        wait_for("the end", partial(self.is_ready, "alpha"), BACK)
        self.assertEqual(self.seen(), {"alpha": "now", "beta": "now"})
        self.assertNotIn("cluster beta is not available: AgentNotResponding", self.tower.proxy.output())


class Nonsense(ThreadedServer):
    """An API server that does not speak HTTP."""

    def serve(self, connection: socket.socket) -> None:
        """See `ThreadedServer.serve`."""
        with connection, contextlib.suppress(OSError):
            while connection.recv(65536):
                connection.sendall(b"220 mail.example.org ESMTP\r\n\r\n")
