"""Start everything, keep it busy, print a line now and then, and report the result."""

from __future__ import annotations

import argparse
import http.client
import random
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from benchmarks.results import machine
from tests.integration.harness import Agent, Tower
from tests.integration.old_peers import OldAgent
from tests.integration.ports import free_port, is_free
from tests.integration.programs import LOOPBACK, NotInTimeError, Program, wait_for
from tests.integration.relay import Relay
from tests.integration.sshd import Sshd, write_key
from tests.soak.growth import Samples
from tests.soak.users import DEEDS, Deed, Unavailable, User, Wrong
from tower.trust.pki import self_signed

#: The cluster whose tunnel is cut repeatedly, and those in which nothing may fail: one has an old agent,
#: one has no agent, but nodes, and one node comes and goes.
SHAKY, STEADY, OLD, NODES = "shaky", "steady", "old", "nodes"

#: Deeds that do not work with an old agent: it has no targets, and ends both directions at one's end.
NOT_OLD = ("stream", "upgrade")

#: Time between two cuts, s.
CUTS = (5.0, 30.0)

#: Time that users have to end their deeds, s; after that they are cut.
GOODBYE = 5.0

#: Errors that are printed; the rest is counted.
SHOWN = 20


class Soak:
    """The programs and the users.

    :ivar deeds: of the users, and the number of users of each in each cluster.
    :ivar done: deeds that went well.
    :ivar excused: deeds in `SHAKY` that were cut.
    :ivar changes: how often the list of nodes changed.
    :ivar errors: all other failures, in words.
    """

    def __init__(self, folder: Path, seed: int, deeds: dict[Deed, int], rest: float) -> None:
        self._folder = folder
        self._rest = rest
        self.deeds = deeds
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self.done: Counter[str] = Counter()
        self.excused = 0
        self.cuts = 0
        self.changes = 0
        self.errors: list[str] = []
        self.programs: dict[str, Program] = {}

    def start(self, stack: ExitStack) -> None:
        """Start the programs, then the users."""
        stack.callback(shutil.rmtree, self._folder, True)
        kubeconfig, https, echo = self._backend(stack)
        tower = Tower(self._folder)
        stack.callback(tower.stop)
        tower.start()
        relay = Relay(tower.secure_port)
        stack.callback(relay.close)
        options = ("--rekey-bytes=32MiB", f"--target=echo={LOOPBACK}:{echo}")
        agents = [tower.add(STEADY, kubeconfig, *options), tower.agent(STEADY, kubeconfig, *options)]
        agents[1].program.start()
        agents[1].wait_until_ready()
        agents.append(tower.add(SHAKY, kubeconfig, *options, "--max-retry-interval=1s", via=relay.port))
        self.programs = {"proxy": tower.proxy}
        for number, agent in enumerate(agents):
            self.programs[f"agent {number}"] = agent.program
        stack.callback(self._end)
        self._start_old(stack, tower, https)
        self._start_nodes(stack, tower, kubeconfig, echo)
        self._spawn(self._shake, relay, agents[-1])
        for cluster in (STEADY, SHAKY, OLD, NODES):
            self._start_users(tower, cluster)

    def _start_old(self, stack: ExitStack, tower: Tower, https: int) -> None:
        """Start KubeSphere Tower's agent for a separate cluster."""
        tower.tower("cluster", "add", OLD)
        words = shlex.split(tower.tower("join", OLD, "--protocol", "v1"))
        bearer = self._folder / "bearer"
        bearer.write_text("soak")
        agent = OldAgent(
            self._folder,
            f"http://{LOOPBACK}:{tower.port}",
            OLD,
            words[words.index("--token") + 1],
            f"{LOOPBACK}:{https}",
            ca=self._folder / "ca.crt",
            bearer=bearer,
        )
        stack.callback(agent.program.stop)
        agent.program.start()
        wait_for("the old agent", lambda: "KubeSphereV1" in tower.tower("cluster", "show", OLD))

    def _start_nodes(self, stack: ExitStack, tower: Tower, kubeconfig: Path, echo: int) -> None:
        """Start three nodes that accept SSH; the last is not always in the cluster's list."""
        key = tower.node_files / "node-key"
        line = write_key(key)
        nodes = [
            Sshd(self._folder / f"node{number}", authorized=[line], options={"RekeyLimit": "32M"})
            for number in range(3)
        ]
        for node in nodes:
            stack.callback(node.stop)
            node.start()
        known = tower.node_files / "known_hosts"
        known.write_text("".join(node.known_hosts_line() for node in nodes))
        listed = tower.node_files / "nodes"
        addresses = [node.address for node in nodes]
        _write(listed, addresses)
        tower.tower(
            *("cluster", "add", NODES, "--type", "ssh", "--ssh-user", nodes[0].user),
            *("--ssh-keyfile", str(key), "--ssh-known-hosts", str(known), "--nodes-file", str(listed)),
            *("--member-kubeconfig", str(kubeconfig), "--target", f"echo={LOOPBACK}:{echo}"),
        )
        wait_for("the nodes", lambda: tower.tower("cluster", "show", NODES).count(" open ") == len(nodes))
        self._spawn(self._come_and_go, listed, addresses)

    def _come_and_go(self, listed: Path, addresses: list[str]) -> None:
        """Make the last node leave the list, and come back."""
        while not self._ending.wait(self._random.uniform(*CUTS)):
            self.changes += 1
            _write(listed, addresses[:-1] if self.changes % 2 else addresses)

    def _backend(self, stack: ExitStack) -> tuple[Path, int, int]:
        """Start the server behind the agents; return a kubeconfig for it, its port and that which echoes."""
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "soak")])
        authority = self_signed(name, 7 * 86400.0, time.time())
        issued = authority.server_certificate([LOOPBACK], 7 * 86400.0, time.time())
        files = {"ca.crt": authority.pem, "server.crt": issued.certificate_pem, "server.key": issued.key_pem}
        for file, content in files.items():
            (self._folder / file).touch(0o600)
            (self._folder / file).write_bytes(content)
        https, echo = free_port(), free_port()
        words = [str(https), str(echo), str(self._folder / "server.crt"), str(self._folder / "server.key")]
        path = {"PYTHONPATH": str(Path(__file__).resolve().parent.parent.parent)}
        argv = [sys.executable, "-m", "tests.soak.backend", *words]
        backend = Program("backend", argv, self._folder, path)
        stack.callback(backend.stop)
        backend.start()
        wait_for("the backend", lambda: not (is_free(https) or is_free(echo)))
        server = {
            "server": f"https://{LOOPBACK}:{https}",
            "certificate-authority": str(self._folder / "ca.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "soak", "cluster": server}],
            "users": [{"name": "soak", "user": {"token": "soak"}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
            "current-context": "soak",
        }
        kubeconfig = self._folder / "member.kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(yaml.safe_dump(config))
        return kubeconfig, https, echo

    def _start_users(self, tower: Tower, cluster: str) -> None:
        """Start a crowd of users; half of them have tokens, half certificates."""
        crowd = {
            f"{name}-{cluster}": tower.person(cluster, f"{name}-{cluster}", "--group", "dev", "--auth", auth)
            for name, auth in (("jane", "token"), ("joe", "cert"))
        }
        port = tower.cluster_port(cluster)
        for deed, count in self.deeds.items():
            for number in range(0 if cluster == OLD and deed.__name__ in NOT_OLD else count):
                name = sorted(crowd)[number % 2]
                seed = self._random.random()
                user = User(name, crowd[name], random.Random(seed), port if number % 4 > 1 else None)
                self._spawn(self._live, deed, user, cluster)

    def _spawn(self, run: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=run, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _live(self, deed: Deed, user: User, cluster: str) -> None:
        """Do the same repeatedly, and record the results."""
        while not self._ending.is_set():
            try:
                count = deed(user)
            except (Wrong, TimeoutError) as e:
                self._note(f"{cluster}, {deed.__name__}: {e!r}")
            except Exception as e:  # noqa: BLE001 - any exception is recorded
                if cluster != SHAKY:
                    self._note(f"{cluster}, {deed.__name__}: {e!r}")
                else:
                    with self._lock:
                        self.excused += 1
                    self._ending.wait(0.5)
                if not isinstance(e, OSError | http.client.HTTPException | Unavailable):
                    self._note(f"{cluster}, {deed.__name__}: {e!r}")
            else:
                with self._lock:
                    self.done[deed.__name__] += count
            self._ending.wait(user.random.uniform(0, 2 * self._rest))

    def _note(self, text: str) -> None:
        with self._lock:
            self.errors.append(text)

    def _shake(self, relay: Relay, agent: Agent) -> None:
        """Cut the tunnel now and then, or stall it until both sides notice."""
        while not self._ending.wait(self._random.uniform(*CUTS)):
            self.cuts += 1
            if self.cuts % 10 == 0:
                relay.stall()
                self._ending.wait(8)
                relay.flow()
            relay.cut()
            try:
                agent.wait_until_ready()
            except (AssertionError, NotInTimeError) as e:
                self._note(f"the agent of {SHAKY}: {e}")

    def _end(self) -> None:
        self._ending.set()
        until = time.monotonic() + GOODBYE
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))


def _write(listed: Path, addresses: list[str]) -> None:
    """Replace the list of nodes in one step."""
    fresh = listed.with_suffix(".new")
    fresh.write_text("\n".join(addresses) + "\n")
    fresh.rename(listed)


def watch_over(soak: Soak, seconds: float, every: float) -> list[str]:
    """Print a line now and then; return what was wrong when the time is over."""
    samples = {name: Samples(name) for name in soak.programs}
    begin, before, printed = time.monotonic(), 0, 0
    next_line = begin + every
    while (now := time.monotonic()) < begin + seconds:
        for name, program in soak.programs.items():
            if not program.running():
                return [*soak.errors, f"{name} has ended: {program.tail()}"]
            samples[name].take(program)
        if now >= next_line:
            next_line += every
            done = sum(soak.done.values())
            rate = (done - before) / every
            states = "; ".join(each.now() for each in samples.values())
            print(
                f"{now - begin:6.0f} s: {rate:.0f}/s, {len(soak.errors)} errors, {soak.excused} excused by"
                f" {soak.cuts} cuts; {states}",
                flush=True,
            )
            for error in soak.errors[printed : printed + SHOWN]:
                print(f"    {error}", flush=True)
            before, printed = done, len(soak.errors)
        time.sleep(max(0.05, min(1.0, seconds / 100)))
    for each in samples.values():
        print(each.summary(), flush=True)
    print(f"done: {dict(soak.done)}", flush=True)
    missing = [deed.__name__ for deed in soak.deeds if not soak.done[deed.__name__]]
    return [
        *soak.errors,
        *(text for each in samples.values() for text in each.grown()),
        *([f"never went well: {', '.join(missing)}"] if missing else []),
    ]


def main() -> int:
    """Run; 1 when something was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long")
    parser.add_argument("--every", type=float, default=30.0, help="time between lines, s")
    names = [deed.__name__ for deed in DEEDS]
    parser.add_argument("--only", metavar="DEED", choices=names, nargs="*", help=f"of {', '.join(names)}")
    parser.add_argument(
        "--rest", type=float, default=0.1, help="mean pause between deeds, s: more is less load"
    )
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    print(f"seed {options.seed}; {machine()}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with ExitStack() as stack:
        deeds = {deed: count for deed, count in DEEDS.items() if deed.__name__ in (options.only or names)}
        soak = Soak(Path(tempfile.mkdtemp(prefix="tower-soak-")), options.seed, deeds, options.rest)
        soak.start(stack)
        wrong = watch_over(soak, options.seconds, options.every)
    for text in wrong[:SHOWN]:
        print(f"WRONG: {text}")
    print(f"soak: {'failed' if wrong else 'all well'}, {len(wrong)} things wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
