"""Kills, suspends and freezes the leader of two real proxies, and checks that no two of them ever wrote.

Usage: ``python -m tests.integration.leader_kills [FAULTS] [--lease S] [--seed N]``.  The result is a table of
the faults with the times until a proxy served again (without waits for a processor), and the number of writes
in the API server's audit log.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import signal
import ssl
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from attrs import define, field, frozen

from tests.integration.leader_terms import (
    audited_writes,
    changes_of_leader,
    is_of_lease,
    late_writes,
    lease_times,
)
from tests.integration.member import Member, Running
from tests.integration.own_time import OwnTime
from tests.integration.ports import free_port, free_ports
from tests.integration.process_clock import ProcessClock
from tests.integration.programs import Program, script, wait_for

CRDS = Path(__file__).parent.parent.parent / "deploy" / "crds"
NAMESPACE = "kubesphere-system"
CLUSTERS = 3  # that change all the time
PAUSE = 0.2  # s between changes of a cluster
PATIENCE = 120.0  # s for a loaded machine
KINDS = ("kill", "terminate", "suspend", "freeze", "stutter", "jump")  # methods of `Kills`
SOONEST, LATEST = 0.2, 5.0  # s from a settled pair to the next fault


@frozen
class Times:
    """Times of the election, s."""

    lease: float = 8.0
    renew: float = 5.0
    retry: float = 1.0


class Candidate:
    """One of the two proxies; each has another address and another user at the API server.

    :ivar user: name of that user.
    """

    def __init__(self, number: int, folder: Path, member: Member, ports: list[int], times: Times) -> None:
        self.number, self._folder = number, folder
        self.host = f"127.0.0.{number + 1}"
        self.health_port = ports[-1]
        account = f"proxy-{number}"
        self.user = f"system:serviceaccount:{NAMESPACE}:{account}"
        self._argv = [
            script("tower-proxy"),
            f"--kubeconfig={self._kubeconfig(member, account)}",
            f"--host={self.host}",
            f"--publish-service-address={self.host}",
            "--port=none",
            f"--secure-port={ports[-2]}",
            f"--cluster-ports={ports[0]}-{ports[-3]}",
            f"--health-port={self.health_port}",
            f"--leader-elect-lease-duration={times.lease:g}s",
            f"--leader-elect-renew-deadline={times.renew:g}s",
            f"--leader-elect-retry-period={times.retry:g}s",
        ]
        self._starts = 0
        self.programs: list[Program] = []

    def _kubeconfig(self, member: Member, account: str) -> Path:
        member.kubectl("-n", NAMESPACE, "create", "serviceaccount", account)
        member.kubectl(
            *("create", "clusterrolebinding", account, "--clusterrole=cluster-admin"),
            f"--serviceaccount={NAMESPACE}:{account}",
        )
        token = member.kubectl("-n", NAMESPACE, "create", "token", account, "--duration=24h").strip()
        path = self._folder / f"{account}.kubeconfig"
        cluster = {"server": member.info["server"], "certificate-authority": str(member.ca)}
        config = {
            "clusters": [{"name": "host", "cluster": cluster}],
            "users": [{"name": account, "user": {"token": token}}],
            "contexts": [{"name": "host", "context": {"cluster": "host", "user": account}}],
            "current-context": "host",
        }
        path.touch(0o600)
        path.write_text(json.dumps(config))
        return path

    @property
    def program(self) -> Program:
        """The current process."""
        return self.programs[-1]

    def start(self) -> None:
        """Start with an empty state directory, as a new pod."""
        self._starts += 1
        name = f"proxy-{self.number}-{self._starts}"
        argv = [*self._argv, f"--state-dir={self._folder / name}"]
        self.programs.append(Program(name, argv, self._folder))
        self.program.start()

    def role(self) -> str:
        """Return ``leader`` while it serves, ``standby`` while it waits, else nothing."""
        connection = http.client.HTTPConnection(self.host, self.health_port, timeout=2.0)
        try:
            connection.request("GET", "/readyz?verbose")
            answer = connection.getresponse()
            text = answer.read().decode()
            return text.partition(":")[0] if answer.status == 200 else ""
        except OSError:
            return ""
        finally:
            connection.close()


class Changes(threading.Thread):
    """Another program that changes clusters in the host cluster all the time, so that the leader writes."""

    def __init__(self, member: Member) -> None:
        super().__init__(daemon=True)
        self._member, self._ended = member, threading.Event()
        context = ssl.create_default_context(cafile=str(member.ca))
        context.load_cert_chain(*member.admin_pair)
        host, _, port = member.service.rpartition(":")
        self._connect = lambda: http.client.HTTPSConnection(host, int(port), timeout=30, context=context)

    def run(self) -> None:
        """Toggle one cluster after the other."""
        path = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
        connection, step = self._connect(), 0
        while not self._ended.wait(PAUSE):
            step += 1
            patch = {"spec": {"joinFederation": step // CLUSTERS % 2 == 0}}
            headers = {"content-type": "application/merge-patch+json"}
            try:
                connection.request("PATCH", f"{path}/c{step % CLUSTERS}", json.dumps(patch), headers)
                connection.getresponse().read()
            except (OSError, http.client.HTTPException):
                connection.close()
                connection = self._connect()
        connection.close()

    def end(self) -> None:
        """End it."""
        self._ended.set()
        self.join()


@define
class Report:
    """Results of a run.

    :ivar passed: times until a proxy served again by kind of fault, s, as `OwnTime` measures them.
    :ivar expired: ages of the Leases of killed leaders when another proxy took them, s.
    :ivar late: writes that must not be.
    """

    writes: dict[str, int] = field(factory=dict)
    changes: int = 0
    faults: int = 0
    late: list[str] = field(factory=list)
    expired: list[float] = field(factory=list)
    passed: dict[str, list[float]] = field(factory=lambda: defaultdict(list))
    tracebacks: list[str] = field(factory=list)

    def __str__(self) -> str:
        lines = [f"{'fault':24} {'count':>5} {'median':>8} {'longest':>8}   until a proxy served, s"]
        for kind, times in sorted(self.passed.items()):
            middle = sorted(times)[len(times) // 2]
            lines.append(f"{kind:24} {len(times):5} {middle:8.2f} {max(times):8.2f}")
        writes = ", ".join(f"{count} of {user.rpartition(':')[2]}" for user, count in self.writes.items())
        lines.append(f"{self.faults} faults, {self.changes} changes of the leader, writes: {writes}")
        lines += [f"late: {text}" for text in self.late] or ["no write of a proxy that was not the leader"]
        lines += [f"traceback: {name}" for name in self.tracebacks]
        return "\n".join(lines)


class Kills:
    """Two proxies, and the faults.

    :param folder: for the files of the proxies.
    :param chance: chooses faults and their times.
    """

    _own: OwnTime  # since the last fault

    def __init__(self, folder: Path, member: Member, times: Times, chance: random.Random) -> None:
        self._folder, self._member, self._times, self._chance = folder, member, times, chance
        self._report = Report()
        self._candidates: list[Candidate] = []

    def run(self, faults: int, kinds: Sequence[str] = KINDS) -> Report:
        """Cause faults, one after the other; each kind in turn, in a random order."""
        since = self._member.audit_size()
        self._prepare()
        changes = Changes(self._member)
        changes.start()
        try:
            self._start()
            left: list[str] = []
            for _ in range(faults):
                if not left:
                    left = [*kinds]
                    self._chance.shuffle(left)
                self._one(left.pop())
        except AssertionError as e:
            tails = "\n".join(f"{each.program.name}: {each.program.tail()}" for each in self._candidates)
            raise AssertionError(f"{e}\n{tails}") from e
        finally:
            changes.end()
            for each in self._candidates:
                each.program.ask_to_end()
            for each in self._candidates:
                each.program.stop()
        self._check(since)
        return self._report

    def _prepare(self) -> None:
        member = self._member
        member.kubectl("apply", "-f", str(CRDS))
        member.kubectl("create", "namespace", NAMESPACE)
        for number in range(CLUSTERS):
            cluster = {
                "apiVersion": "cluster.kubesphere.io/v1alpha1",
                "kind": "Cluster",
                "metadata": {"name": f"c{number}"},
                "spec": {"joinFederation": True, "connection": {"type": "proxy"}},
            }
            member.kubectl("apply", "-f", "-", stdin=json.dumps(cluster).encode())
        ports = [*free_ports(CLUSTERS + 1), free_port(), free_port()]
        for number in (1, 2):
            self._candidates.append(Candidate(number, self._folder, member, ports, self._times))

    def _start(self) -> None:
        for each in self._candidates:
            each.start()
            wait_for(f"proxy {each.number}", each.role, PATIENCE)

    def _one(self, kind: str) -> None:
        """Cause a fault; its method returns when a proxy serves again."""
        fault: Callable[[Candidate, Candidate], None] = getattr(self, kind)
        leader, standby = self._pair()
        time.sleep(self._chance.uniform(SOONEST, LATEST))
        self._report.faults += 1
        self._own = OwnTime(leader.program, standby.program, servers=self._member.info["pids"].values())
        fault(leader, standby)
        self._report.passed[kind].append(self._own.passed())
        self._restart(self._candidates)

    def _restart(self, candidates: list[Candidate]) -> None:
        """Start those that have ended, as a service manager."""
        for each in candidates:
            if not each.program.running():
                each.program.stop()
                each.start()

    def _pair(self) -> tuple[Candidate, Candidate]:
        """Wait until one proxy serves and one waits."""

        def pair() -> tuple[Candidate, Candidate] | None:
            self._restart(self._candidates)
            roles = {each.role(): each for each in self._candidates}
            return (roles["leader"], roles["standby"]) if {"leader", "standby"} <= roles.keys() else None

        found = wait_for("a leader and a standby", pair, PATIENCE)
        assert found is not None
        return found

    def _served(self, without: Candidate | None = None) -> None:
        """Wait until a proxy, other than *without*, serves."""

        def serves() -> bool:
            self._own.passed()
            others = [each for each in self._candidates if each is not without]
            self._restart(others)
            return any(each.role() == "leader" for each in others)

        wait_for("a leader", serves, PATIENCE, 0.02)

    # Kinds of faults

    def kill(self, leader: Candidate, standby: Candidate) -> None:
        """End the leader with SIGKILL."""
        _, renewed = lease_times(self._member, NAMESPACE)
        leader.program.kill()
        time.sleep(self._times.lease - self._times.retry)
        self._own.skip()
        self._served(leader)
        acquired, _ = lease_times(self._member, NAMESPACE)
        self._report.expired.append(acquired - renewed)

    def terminate(self, leader: Candidate, standby: Candidate) -> None:
        """End the leader with SIGTERM."""
        leader.program.ask_to_end()
        self._served(leader)

    def suspend(self, leader: Candidate, standby: Candidate) -> None:
        """Suspend the leader until the standby serves; then it must end."""
        leader.program.pause()
        try:
            self._served(leader)
        finally:
            leader.program.resume()
        leader.program.wait(PATIENCE)

    def stutter(self, leader: Candidate, standby: Candidate) -> None:
        """Suspend the leader and the API server in turn for random times."""
        server = self._server
        for _ in range(3):
            leader.program.pause()
            time.sleep(self._chance.uniform(0.0, self._times.renew))
            os.kill(server, signal.SIGSTOP)
            leader.program.resume()
            time.sleep(self._chance.uniform(0.0, self._times.renew))
            os.kill(server, signal.SIGCONT)
        self._served()

    def freeze(self, leader: Candidate, standby: Candidate) -> None:
        """Freeze the API server until the leader ends, which is within the renew deadline."""
        os.kill(self._server, signal.SIGSTOP)
        try:
            leader.program.wait(PATIENCE)
        finally:
            os.kill(self._server, signal.SIGCONT)
        self._served()

    def jump(self, leader: Candidate, standby: Candidate) -> None:
        """Set the time of day of each an hour forth, and back again; nothing happens."""
        for each in (leader, standby):
            clock = ProcessClock(each.program.pid)
            for seconds in (3600, 0):
                clock.set(seconds)
                time.sleep(2 * self._times.retry)
        self._served()

    @property
    def _server(self) -> int:
        pid: int = self._member.info["pids"]["kube-apiserver"]
        return pid

    def _check(self, since: int) -> None:
        writes = audited_writes(self._member.audit(since), [each.user for each in self._candidates])
        report = self._report
        report.changes = len(changes_of_leader(writes))
        for each in self._candidates:
            count = sum(write.user == each.user and not is_of_lease(write) for write in writes)
            report.writes[each.user] = count
            for program in each.programs:
                before, found, text = program.output().partition("Traceback")
                if found:
                    report.tracebacks.append(f"{program.name}: {before[-300:]}{found}{text[:1500]}")
        report.late = late_writes(writes, self._times.renew, 1.0)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.leader_kills", description=__doc__)
    parser.add_argument("faults", type=int, nargs="?", default=50)
    parser.add_argument("--lease", type=float, default=Times().lease, help="lease duration, s")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    lease = options.lease
    times = Times(lease, lease / 2, max(1.0, lease / 6))
    with tempfile.TemporaryDirectory(prefix="tower-kills-") as folder, suppress(KeyboardInterrupt):
        print(f"seed {options.seed}, lease duration {lease:g} s", flush=True)
        place = Path(folder) / "host"
        place.mkdir()
        running = Running(place, "--bare")
        running.start()
        try:
            kills = Kills(Path(folder), running.member, times, random.Random(options.seed))
            report = kills.run(options.faults)
        finally:
            running.halt()
        print(report)
        return bool(report.late or report.tracebacks)
    return 1


if __name__ == "__main__":
    sys.exit(main())
