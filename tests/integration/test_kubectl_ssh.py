"""The main job without an agent: kubectl by SSH to nodes that die and hang, while list and key change."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.integration import harness
from tests.integration.disturbance import Disturbance
from tests.integration.matrix import Matrix
from tests.integration.member import kubectls, member
from tests.integration.node_fleet_kit import CLUSTER, NodeFleet, addresses, wait_until_open, works
from tests.integration.person import Person
from tests.integration.programs import Program, wait_for

#: Tries of an operation whose own node dies or hangs; others have one.
TRIES = 8
LOST = 0.4  # fraction of the operations that may fail because of that at the first try
#: What to do to the nodes meanwhile, each twice: on a slow machine all operations are repeated until then, at
#: most so often.
DISTURBANCES = ("killed", "hung", "key", "listed")
ROUNDS = 4
HANG = "not done within"
#: The lines that sshd logs for each stream, at this level of its log.
STREAM = "server_request_direct_tcpip: originator"
#: Streams that every node has at least; a node that is down for most of a round has few.
STREAMS = 10
COUNTER = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.1; done"
CONFIGMAP = "unaffected"
WATCH = f"/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3D{CONFIGMAP}"


class Unaffected:
    """Streams through a node to which nothing happens: each has to be whole from beginning to end."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        kubectl = [str(kubectls()[-1]), f"--kubeconfig={kubeconfig}"]
        self._member = member()
        self._changes = 0
        self.change()
        self._streams = {
            "logs": Program("logs", [*kubectl, "logs", "-f", "shell", "-c", "sidecar"], folder),
            "exec": Program(
                "exec", [*kubectl, "exec", "shell", "-c", "main", "--", "sh", "-c", COUNTER], folder
            ),
            "watch": Program("watch", [*kubectl, "get", "--raw", WATCH], folder),
        }

    def start(self) -> None:
        """Start them; return when each has printed something."""
        for stream in self._streams.values():
            stream.start()
        wait_for("the streams", lambda: all(stream.output() for stream in self._streams.values()))

    def stop(self) -> None:
        """End them."""
        for stream in self._streams.values():
            stream.kill()

    def change(self) -> None:
        """Change, not through Tower, what is watched."""
        self._changes += 1
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": CONFIGMAP, "namespace": "default"},
            "data": {"number": str(self._changes)},
        }
        self._member.kubectl("apply", "-f", "-", stdin=json.dumps(manifest).encode())

    def check(self) -> None:
        """Raise an error if something is wrong with them.

        :raise AssertionError: one has ended, stands still or has a gap.
        """
        self.change()
        seen = {name: len(stream.output()) for name, stream in self._streams.items() if name != "watch"}
        wait_for("the last change", lambda: f'"number":"{self._changes}"' in self._streams["watch"].output())
        for name, size in seen.items():
            stream = self._streams[name]
            wait_for(f"more of {name}", lambda: len(stream.output()) > size)  # noqa: B023 - called at once
            assert stream.running(), f"{name} ended: {stream.tail()}"
        check_counting(self._streams["exec"].output(), first=1)
        check_counting(self._streams["logs"].output())
        changes = [
            int(number) for number in re.findall(r'"number":"(\d+)"}', self._streams["watch"].output())
        ]
        assert changes == list(range(1, self._changes + 1)), changes


def check_counting(text: str, first: int | None = None) -> None:
    """Find a number in each whole line, each one more than the one before.

    :raise AssertionError: there is a gap.
    """
    numbers = [int(re.findall(r"\d+", line)[-1]) for line in text.splitlines()[:-1]]
    assert numbers, text
    begin = numbers[0] if first is None else first
    assert numbers == list(range(begin, begin + len(numbers))), numbers


class NodesTests(harness.TowerTestCase):
    """Three nodes: one dies, one hangs, one is spared."""

    def setUp(self) -> None:
        """Put the real cluster behind the spared node, open streams there, then add the others."""
        super().setUp()
        self.member = member()
        self.fleet = NodeFleet(self.folder / "fleet", options={"LogLevel": "DEBUG1"})
        self.addCleanup(self.fleet.stop)
        self.fleet.start()
        spared = self.fleet.nodes[-1:]
        self.fleet.add_to(self.tower, self.member.agent, nodes=spared)
        dev = self.tower.kubeconfig(CLUSTER, "dev", "--group", "dev")
        wait_for("a request through a node", lambda: works(Person(dev), "/version"))
        self.unaffected = Unaffected(self.folder, dev)
        self.addCleanup(self.unaffected.stop)
        self.unaffected.start()
        self.tower.tower("cluster", "set", CLUSTER, "--nodes", addresses(self.fleet.nodes))
        wait_until_open(self.tower, self.fleet.nodes)

    def matrix(self, kubectl: Path, via: str, auth: str) -> None:
        """Run every kubectl operation while nodes come and go.

        A stream dies with its node, so an operation with a stream there fails; then it is tried again at
        once, under the same conditions, and none may hang.
        """
        options = ("--via", via, "--auth", auth)
        jane = self.tower.kubeconfig(CLUSTER, "jane", "--group", "dev", *options)
        weak = self.tower.kubeconfig(CLUSTER, "jane", "--group", "team", *options)
        since = self.member.audit_size()
        disturbance = Disturbance(self.tower, self.fleet)
        disturbance.start()
        self.addCleanup(disturbance.stop)
        for _ in range(ROUNDS):
            self.operations(kubectl, jane, weak)
            disturbed = all(disturbance.happened.get(what, 0) > 1 for what in DISTURBANCES)
            if disturbed and all(node.log().count(STREAM) > STREAMS for node in self.fleet.nodes):
                break
        else:
            self.fail(f"too little happened to the nodes meanwhile: {disturbance.happened}")
        disturbance.stop()
        self.unaffected.check()
        for node in self.fleet.nodes:
            self.assertGreater(node.log().count(STREAM), STREAMS, node.address)
        wait_until_open(self.tower, self.fleet.nodes)
        self.assertLessEqual(self.member.acted(self.member.least, since), {"jane", "dev"})
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def operations(self, kubectl: Path, jane: Path, weak: Path) -> None:
        """Run all of them; those that fail are tried again at once."""
        lost: list[tuple[str, str]] = []
        only: set[str] = set()
        for _ in range(TRIES):
            matrix = Matrix(self.folder, self.member, kubectl, jane, weak, only=only)
            matrix.start()
            self.addCleanup(matrix.stop)
            failures = matrix.failures()
            self.unaffected.check()
            self.assertEqual([pair for pair in failures if HANG in pair[1]], [], "an operation hung")
            only = {re.sub(r" \[\w+\]$", "", operation) for operation, _ in failures}
            lost += failures
            if not failures:
                break
        self.assertEqual(only, set(), lost)
        self.assertLessEqual(len(lost), 60 * LOST, lost)

    def test_oldest(self) -> None:
        """The oldest kubectl here works, through the front door."""
        self.matrix(kubectls()[0], "front-door", "cert")

    def test_newest(self) -> None:
        """The newest kubectl here works, through the cluster's own port."""
        self.matrix(kubectls()[-1], "port", "token")
