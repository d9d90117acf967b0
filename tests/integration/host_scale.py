"""``python -m tests.integration.host_scale``: many clusters in a real host cluster, and their cost.

Applies clusters, connects an agent to each, cuts every tunnel each 30 s, counts the proxy's writes in the
host's audit log, replaces and deletes the clusters; then measures the start with many clusters, first without
and then with `joinFederation`.  It fails if a number is more than Tower promises.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.integration.fleet import FLEET
from tests.integration.harness import PATIENT
from tests.integration.kubernetes_tower import CRDS, NAMESPACE, KubernetesTower
from tests.integration.member import Running
from tests.integration.programs import Program, script, wait_for
from tests.integration.relay import Relay

GROUPS = 10  # of agents, each behind a relay of its own
RECONNECT = 30.0  # s between two cuts of a tunnel
MINUTES = 10.0
SETTLE = 30.0  # s from the last connection to the measurement
PATIENCE = 1800.0  # s
MOST_WRITES = 5  # for each cluster, in ten minutes
LONGEST_LOAD, MOST_MEMORY = 10.0, 100.0  # s, and MiB more than without clusters, with 2,000 clusters
AFTERWARDS = 10.0  # s from the start to the measurement of the memory
CHUNK = 500  # clusters in a request of kubectl
WRITES = frozenset(("create", "update", "patch", "delete", "deletecollection"))
PROGRAM = "tower-proxy/"
BASE = "/apis/cluster.kubesphere.io/v1alpha1"


def cluster(name: str, *, is_joined: bool = True) -> dict[str, Any]:
    """Return a Cluster as KubeSphere's users apply it."""
    return {
        "apiVersion": "cluster.kubesphere.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"joinFederation": is_joined, "connection": {"type": "proxy"}},
    }


class HostScale:
    """A host cluster, which is also the member of all clusters, the proxy, and a process with all agents.

    :param count: number of clusters at a time.
    :param replaced: number of those that are deleted and followed by others.
    :param loaded: number of clusters of the last starts.
    :param stack: stops everything.
    :ivar used: ports that clusters have had.
    """

    def __init__(self, folder: Path, stack: ExitStack, count: int, replaced: int, loaded: int = 0) -> None:
        self.names = [f"c-{number}" for number in range(count)]
        self.others = [f"d-{number}" for number in range(replaced)]
        self.loaded = [f"l-{number}" for number in range(loaded)]
        self.used: dict[int, str] = {}
        self._folder = folder
        self._running = Running(folder / "host", "--bare")
        (folder / "host").mkdir()
        stack.callback(self._running.halt)
        self._running.start()
        self.host = self._running.member
        self.host.kubectl("apply", "-f", str(CRDS))
        self.host.kubectl("create", "namespace", NAMESPACE)
        self.tower = KubernetesTower(folder, self.host.admin, clusters=count + replaced + loaded)
        stack.callback(self.tower.stop)
        self.tower.start()
        self._relays = [Relay(self.tower.port) for _ in range(min(GROUPS, count))]
        for relay in self._relays:
            stack.callback(relay.close)
        self.fleet: Program | None = None
        stack.callback(lambda: self.fleet and self.fleet.stop())

    def apply(self, names: Iterable[str]) -> float:
        """Apply clusters; return the time until all have their ports, Services and Secrets, s."""
        began, names = time.monotonic(), list(names)
        self._apply([cluster(name) for name in names])
        self._wait_for("Initialized", names)
        took = time.monotonic() - began
        self._check_ports(names)
        return took

    def _apply(self, items: list[dict[str, Any]]) -> None:
        for first in range(0, len(items), CHUNK):
            manifest = {"apiVersion": "v1", "kind": "List", "items": items[first : first + CHUNK]}
            self.host.kubectl("apply", "-f", "-", stdin=json.dumps(manifest).encode())

    def _check_ports(self, names: list[str]) -> None:
        services = {each["metadata"]["name"]: each for each in self._items("services", "-n", NAMESPACE)}
        for item in self._items("clusters"):
            name = item["metadata"]["name"]
            if name not in names:
                continue
            port = item["spec"]["connection"]["kubernetesAPIServerPort"]
            assert port in self.tower.cluster_ports, (name, port)
            assert self.used.setdefault(port, name) == name, f"port {port}: {self.used[port]} and {name}"
            assert services[f"mc-{name}"]["spec"]["ports"][0]["targetPort"] == port, name

    def connect(self) -> float:
        """Start an agent for each cluster; return the time until all are connected, s."""
        arguments = [self._arguments(name, number) for number, name in enumerate(self.names)]
        path = self._folder / "fleet.json"
        path.write_text(json.dumps(arguments))
        argv = [script("twistd"), "-n", "--pidfile=", "-y", str(FLEET)]
        self.fleet = Program("fleet", argv, self._folder, {"FLEET": str(path)})
        began = time.monotonic()
        self.fleet.start()
        self._wait_for("AgentAvailable", self.names)
        took = time.monotonic() - began
        self._wait_for("Available", self.names)  # after the first checks
        return took

    def _arguments(self, name: str, number: int) -> list[str]:
        """Return the arguments of a cluster's agent."""
        body = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "JoinToken", "spec": {}}
        answer = self.tower.admin().request(
            "POST",
            f"{BASE}/clusters/{name}/jointokens",
            body=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        assert answer.status == 201, answer.body
        status = json.loads(answer.body)["status"]
        token = self._folder / f"{name}.token"
        token.touch(0o600)
        token.write_text(status["token"])
        relay = self._relays[number % len(self._relays)]
        return [
            *("--name", name, "--proxy-server", f"ws://127.0.0.1:{relay.port}"),
            *("--host-key", *status["hostKeys"], "--kubeconfig", str(self.host.agent)),
            *(f"--state-dir={self._folder / name}", PATIENT, "--token-file", str(token)),
        ]

    def steady(self, seconds: float, period: float = RECONNECT) -> tuple[Counter[str], int]:
        """Let each agent reconnect once a *period*; return the writes by resource, and the reconnects."""
        since, before = self.host.audit_size(), sum(relay.accepted for relay in self._relays)
        began = time.monotonic()
        turn = 0
        while (due := began + turn * period / len(self._relays)) < began + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            self._relays[turn % len(self._relays)].cut()
            turn += 1
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        accepted = sum(relay.accepted for relay in self._relays) - before
        return self._writes(since), accepted

    def _writes(self, since: int) -> Counter[str]:
        """Return the number of the proxy's writes by verb and resource, from a byte of the audit log on."""
        found: Counter[str] = Counter()
        for event in self.host.audit(since):
            if event["verb"] in WRITES and event.get("userAgent", "").startswith(PROGRAM):
                found[f"{event['verb']} {event['objectRef']['resource']}"] += 1
        return found

    def delete(self, names: Iterable[str]) -> float:
        """Delete clusters; return the time until they and their Services are removed, s."""
        began, names = time.monotonic(), list(names)
        for first in range(0, len(names), 50):
            self.host.kubectl("delete", "cluster", *names[first : first + 50], "--wait=false")
        wait_for("the deletion", lambda: not self._names("clusters") & {*names}, PATIENCE, 0.5)
        took = time.monotonic() - began
        assert not self._names("services", "-n", NAMESPACE) & {f"mc-{name}" for name in names}
        return took

    def _names(self, *arguments: str) -> set[str]:
        return {each["metadata"]["name"] for each in self._items(*arguments)}

    def _items(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.host.kubectl("get", *arguments, "-o", "json"))["items"]
        return found

    def _wait_for(self, kind: str, names: list[str]) -> None:
        def are_true() -> bool:
            true = {
                item["metadata"]["name"]
                for item in self._items("clusters")
                for condition in item.get("status", {}).get("conditions", ())
                if condition["type"] == kind and condition["status"] == "True"
            }
            return true.issuperset(names)

        wait_for(f"{kind} of all clusters", are_true, PATIENCE, max(0.5, len(names) / 200))

    def apply_idle(self) -> None:
        """Apply the clusters of the last starts without `joinFederation`."""
        self._apply([cluster(name, is_joined=False) for name in self.loaded])

    def restart(self) -> tuple[float, float, float]:
        """Start the proxy again; return the time until it serves, its CPU time, s, and its memory, MiB."""
        self.tower.proxy.stop()
        began = time.monotonic()
        self.tower.start()
        took = time.monotonic() - began
        processor = processor_time(self.tower.proxy.pid)
        time.sleep(AFTERWARDS)
        return took, processor, resident(self.tower.proxy.pid)


def resident(pid: int) -> float:
    """Return the resident memory of a process, MiB."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def processor_time(pid: int) -> float:
    """Return the CPU time of a process, s."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(options: argparse.Namespace, show: Callable[[str], None], stack: ExitStack) -> None:
    """Measure, and show a line for each step."""
    count, replaced = options.clusters, options.clusters // 5
    scale = HostScale(options.folder, stack, count, replaced, options.load)
    time.sleep(AFTERWARDS)
    empty = resident(scale.tower.proxy.pid)
    show(f"a proxy without clusters: {empty:.0f} MiB")
    if count:
        live(scale, options, replaced, show)
    if options.load:
        load(scale, empty, show)


def live(scale: HostScale, options: argparse.Namespace, replaced: int, show: Callable[[str], None]) -> None:
    """Apply, connect, replace and delete clusters."""
    count = len(scale.names)
    show(f"{count} clusters applied and reconciled in {scale.apply(scale.names):.1f} s")
    show(f"{count} agents connected in {scale.connect():.1f} s")
    time.sleep(options.settle)
    writes, accepted = scale.steady(options.minutes * 60)
    total = sum(writes.values())
    show(
        f"{options.minutes:g} minutes, {accepted / count:.1f} reconnects per cluster: {total} writes, "
        f"{total / count:.2f} per cluster: {dict(writes)}"
    )
    assert total < MOST_WRITES * count, writes
    assert scale.fleet is not None
    scale.fleet.stop()
    show(f"{replaced} clusters deleted in {scale.delete(scale.names[:replaced]):.1f} s")
    show(f"{replaced} others applied and reconciled in {scale.apply(scale.others):.1f} s")
    rest = scale.names[replaced:] + scale.others
    show(f"{len(rest)} clusters deleted in {scale.delete(rest):.1f} s; {len(scale.used)} ports, none twice")


def load(scale: HostScale, empty: float, show: Callable[[str], None]) -> None:
    """Start the proxy with many clusters: that it does not serve, and then that it serves."""
    count = len(scale.loaded)
    scale.apply_idle()
    started = []
    for kind in ("that are not joined", "that are joined"):
        took, processor, memory = scale.restart()
        started.append((took, memory - empty))
        show(f"start with {count} clusters {kind}: {took:.1f} s ({processor:.1f} s CPU), {memory:.0f} MiB")
        if len(started) == 1:
            show(f"{count} clusters joined and reconciled in {scale.apply(scale.loaded):.1f} s")
    for took, more in started:
        assert took < LONGEST_LOAD, f"{took:.1f} s"
        assert more < MOST_MEMORY, f"{more:.0f} MiB more than without clusters"


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.host_scale", description=__doc__)
    parser.add_argument(
        "--clusters", type=int, default=300, help="number of clusters; 0: only the starts (default: 300)"
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="steady state (default: 10)")
    parser.add_argument("--load", type=int, default=2000, help="clusters of the last starts (default: 2000)")
    parser.add_argument("--settle", type=float, default=SETTLE, help="time before that, s (default: 30)")
    options = parser.parse_args()
    options.folder = folder = Path(tempfile.mkdtemp(prefix="tower-scale-"))
    try:
        with ExitStack() as stack:
            measure(options, lambda line: print(line, flush=True), stack)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
