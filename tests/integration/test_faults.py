"""Programs that are killed or stopped, a pulled cable, and a reader who does not read."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from tests.integration import harness
from tests.integration.member import kubectls, member
from tests.integration.person import Person
from tests.integration.programs import NotInTimeError, Program, clean_environment, wait_for
from tests.integration.relay import Relay

PODS = "/api/v1/namespaces/default/pods"
LOG = f"{PODS}/shell/log?container=sidecar&follow=true&tailLines=1"
NOTICE = 60.0  # s within which a dead peer must have been noticed: after three keepalives
RECOVERY = 60.0  # s for the agent to come back afterwards
BOUNDED = 30.0  # s within which a request has an answer; it waits 5 s for an agent that reconnects
SILENT = "the peer sent nothing during three keepalive intervals"
MIB = 2**20
GIB = 2**30
BUDGET = 32 * MIB  # for the buffers of one program
RECONNECTS = 2000
ATTEMPTS = 5  # for a pause that a busy machine may make longer
AT_REST = 3.0  # s for the other sides to close
LOADED = 600.0  # s for anything that moves much, among all the rest
STREAM = "openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c {size}"


class FaultTests(harness.TowerTestCase):
    """One cluster, its agent behind a relay with faults."""

    def setUp(self) -> None:
        """Put the real cluster behind the proxy as alpha."""
        super().setUp()
        self.relay = Relay(self.tower.secure_port)
        self.addCleanup(self.relay.close)
        self.agent = self.tower.add("alpha", member().agent, via=self.relay.port)
        self.jane = self.tower.person("alpha", "jane", "--group", "dev")

    def works(self) -> bool:
        """Return whether a request of jane's gets through."""
        return self.jane.get("/version").status == 200

    def recovered(self) -> None:
        """Return once requests get through again."""
        wait_for("requests to alpha", self.works, RECOVERY)
        self.assertEqual(self.jane.get(PODS).status, 200)

    def wait_for_reason(self, program: Program) -> None:
        """Return once a program has logged that its keepalives were not answered."""
        wait_for(f"{program.name} to log the reason", lambda: SILENT in program.output())

    def check_bounded(self) -> float:
        """Send a request while there is no tunnel: a Status is returned in time; return the time, s."""
        began = time.monotonic()
        answer = self.jane.get(PODS)
        seconds = time.monotonic() - began
        self.assertIn(answer.status, (502, 503, 504))
        status = json.loads(answer.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.status))
        self.assertIn("alpha", status["message"])
        return seconds

    def test_agent_killed(self) -> None:
        """An agent that dies leaves a clear answer, and a new one restores the service."""
        self.agent.program.kill()
        self.assertLess(self.check_bounded(), BOUNDED)
        self.agent.program.start()
        self.recovered()

    def test_agent_restarts_within_the_wait(self) -> None:
        """A request during an agent's reconnection waits for it and succeeds."""
        self.agent.program.kill()
        wait_for("the end of its tunnel", lambda: not self.relay.open)
        self.relay.stall()
        before = self.relay.accepted
        self.agent.program.start()
        wait_for("the agent to dial", lambda: self.relay.accepted > before)
        statuses: list[int] = []
        asking = threading.Thread(target=lambda: statuses.append(self.jane.get(PODS).status), daemon=True)
        asking.start()
        time.sleep(0.5)
        self.assertEqual(statuses, [])
        self.relay.flow()
        asking.join(RECOVERY)
        self.assertEqual(statuses, [200])

    def test_proxy_killed(self) -> None:
        """After kill -9 of the proxy the agent comes back by itself and credentials still work."""
        self.tower.proxy.kill()
        self.tower.start()
        self.recovered()

    def test_agent_stopped(self) -> None:
        """An agent that hangs is noticed within three keepalives."""
        with Following(self.jane) as log:
            log.lines(1)
            self.agent.program.pause()
            log.seconds_until_over(NOTICE)
        self.wait_for_reason(self.tower.proxy)
        self.assertLess(self.check_bounded(), BOUNDED)
        self.agent.program.resume()
        self.recovered()

    def test_proxy_stopped(self) -> None:
        """A proxy that hangs is noticed by the agent, which is back when the proxy is."""
        self.tower.proxy.pause()
        wait_for("the agent to notice", lambda: not self.agent.ready(), NOTICE)
        self.wait_for_reason(self.agent.program)
        self.tower.proxy.resume()
        self.recovered()

    def test_cable_pulled(self) -> None:
        """If nothing is forwarded any more, and nothing closed, both sides notice and recover."""
        with Following(self.jane) as log:
            log.lines(1)
            self.relay.stall()
            log.seconds_until_over(NOTICE)
        wait_for("the agent to notice", lambda: not self.agent.ready(), NOTICE)
        for program in (self.tower.proxy, self.agent.program):
            self.wait_for_reason(program)
        self.assertLess(self.check_bounded(), BOUNDED)
        self.relay.flow()
        self.recovered()

    def test_short_pause(self) -> None:
        """A pause shorter than three keepalives breaks nothing."""
        for _ in range(ATTEMPTS):
            before = self.relay.accepted
            with Following(self.jane) as log:
                log.lines(1)
                began = time.monotonic()
                self.relay.stall()
                time.sleep(harness.KEEPALIVE)
                self.relay.flow()
                if time.monotonic() - began < 1.5 * harness.KEEPALIVE:
                    log.lines(20)
                    self.assertEqual(self.relay.accepted, before)
                    return
            self.recovered()
        self.fail("this machine is too slow")

    def test_handover(self) -> None:
        """One of two replicas is stopped while requests run, and none of them fails."""
        second = self.tower.agent("alpha", member().agent)
        second.program.start()
        second.wait_until_ready()
        statuses: list[int] = []
        ending = threading.Event()

        def ask() -> None:
            connection = self.jane.connect()
            while not ending.is_set():
                response = self.jane.ask(connection, self.jane.prefix + PODS)
                response.read()
                statuses.append(response.status)
            connection.close()

        threads = [threading.Thread(target=ask, daemon=True) for _ in range(4)]
        for each in threads:
            each.start()
        wait_for("requests", lambda: len(statuses) > 100)
        self.assertTrue(self.agent.program.stop())
        seen = len(statuses)
        wait_for("more requests", lambda: len(statuses) > seen + 100)
        ending.set()
        for each in threads:
            each.join(RECOVERY)
        self.assertEqual(set(statuses), {200})

    def test_reconnects(self) -> None:
        """Descriptors and memory are the same after 2,000 reconnects as after 1,000."""
        self.reconnect(RECONNECTS // 2)
        programs = (self.tower.proxy, self.agent.program)
        halfway = [(each.descriptors(), each.memory()) for each in programs]
        self.reconnect(RECONNECTS // 2)
        for program, (descriptors, memory) in zip(programs, halfway, strict=True):
            wait_for(
                f"{program.name} to have {descriptors} descriptors, not {program.descriptors()}",
                lambda: program.descriptors() <= descriptors,  # noqa: B023 (called at once)
            )
            self.assertLess(program.memory() - memory, 2 * MIB, program.name)

    test_reconnects.timeout = LOADED  # type: ignore[attr-defined]

    def reconnect(self, times: int) -> None:
        """Cut the tunnel *times* times, and wait until all is idle."""
        for _ in range(times):
            before = self.relay.accepted
            self.relay.cut()
            self.come_back(before)
        self.recovered()
        wait_for("the end of the cut connection", lambda: self.relay.open == 1)
        time.sleep(AT_REST)

    def come_back(self, before: int) -> None:
        """Make the agent dial at once, and wait until its tunnel is up again."""

        def dialed() -> bool:
            self.agent.program.signal(signal.SIGHUP)
            return self.relay.accepted > before

        wait_for("the agent to dial", dialed, every=0.01)
        wait_for("the tunnel", self.agent.ready, every=0.005)


class LoadTests(harness.TowerTestCase):
    """Everything at once, while one reader does not read."""

    def setUp(self) -> None:
        """Put the real cluster behind the proxy as alpha."""
        super().setUp()
        self.agent = self.tower.add("alpha", member().agent)
        self.jane = self.tower.person("alpha", "jane", "--group", "dev")

    def test_stopped_reader(self) -> None:
        """20 logs, 20 watches, an upload and an exec go on while a 1 GiB download's reader is stopped."""
        programs = (self.tower.proxy, self.agent.program)
        warm = Exec(self.jane.kubeconfig, STREAM.format(size=64 * MIB))
        self.assertEqual(warm.digest(LOADED), digest_of(64 * MIB))
        before = [each.memory() for each in programs]

        logs = [Following(self.jane) for _ in range(20)]
        watches = [Following(self.jane, f"{PODS}?watch=1") for _ in range(20)]
        for each in logs + watches:
            each.__enter__()
            self.addCleanup(each.__exit__)
            each.lines(1)

        download = Exec(self.jane.kubeconfig, STREAM.format(size=GIB))
        self.addCleanup(download.close)
        wait_for("some of the download", lambda: download.size > 64 * MIB, LOADED)
        download.pause()
        wait_for("the download to stand still", lambda: still(download), LOADED, 0)
        try:
            upload = Exec(self.jane.kubeconfig, "sha256sum", STREAM.format(size=128 * MIB))
            self.assertEqual(upload.text(LOADED).split()[0], digest_of(128 * MIB))
            echo = Exec(self.jane.kubeconfig, "cat", "echo through")
            self.assertEqual(echo.text(LOADED), "through\n")
            for log in logs:
                log.lines(10)
            name = f"seen-{os.getpid()}"
            pod = {"metadata": {"name": name}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
            made = self.jane.request(
                "POST",
                self.jane.prefix + PODS,
                body=json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}).encode(),
                headers={"Content-Type": "application/json"},
            )
            self.assertEqual(made.status, 201, made.body)
            self.addCleanup(self.jane.request, "DELETE", f"{self.jane.prefix}{PODS}/{name}")
            for watch in watches:
                watch.line_with(name)
            for program, size in zip(programs, before, strict=True):
                self.assertLess(program.memory() - size, BUDGET, program.name)
        finally:
            download.resume()
        self.assertEqual(download.digest(LOADED), digest_of(GIB))
        for log in logs:
            log.lines(1)


class Following:
    """An endless response: a log that is followed, or a watch."""

    def __init__(self, person: Person, path: str = LOG) -> None:
        self._person = person
        self._path = path
        self._connection = person.connect()

    def __enter__(self) -> Following:  # noqa: PYI034 (there are no subclasses)
        """Send the request."""
        self._response = self._person.ask(self._connection, self._person.prefix + self._path)
        assert self._response.status == 200, self._response.read()
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        self._connection.close()

    def lines(self, count: int) -> None:
        """Read some lines; each comes in time."""
        for _ in range(count):
            if not self._response.readline():
                raise AssertionError(f"{self._path} has ended")

    def line_with(self, word: str) -> None:
        """Read up to a line with *word*."""
        while line := self._response.readline():
            if word.encode() in line:
                return
        raise AssertionError(f"{self._path} has ended")

    def seconds_until_over(self, limit: float) -> float:
        """Return the time until the response ends or breaks; raise after *limit* s."""
        began = time.monotonic()
        if self._connection.sock is not None:
            self._connection.sock.settimeout(limit)
        try:
            while self._response.readline():
                if time.monotonic() - began > limit:
                    raise NotInTimeError(f"{self._path} goes on")
        except TimeoutError:
            raise NotInTimeError(f"{self._path} hangs") from None
        except (OSError, ValueError):
            pass
        return time.monotonic() - began


class Exec:
    """``kubectl exec -i`` of a shell command in the real cluster; counts and hashes its output.

    :ivar size: bytes read so far.
    """

    def __init__(self, kubeconfig: Path, command: str, source: str = "true") -> None:
        argv = [str(kubectls()[-1]), f"--kubeconfig={kubeconfig}", "exec", "-i", "shell", "-c", "main", "--"]
        self._source = subprocess.Popen(["sh", "-c", source], stdout=subprocess.PIPE)
        self._process = subprocess.Popen(
            [*argv, "sh", "-c", command],
            stdin=self._source.stdout,
            stdout=subprocess.PIPE,
            env=clean_environment({"KUBECACHEDIR": str(kubeconfig.parent / "cache")}),
            bufsize=0,
        )
        assert self._source.stdout is not None
        self._source.stdout.close()
        self.size = 0
        self._hash = hashlib.sha256()
        self._start = b""
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            while data := output.read(MIB):
                self._hash.update(data)
                self.size += len(data)
                if len(self._start) < MIB:
                    self._start += data

    def pause(self) -> None:
        """Suspend kubectl."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue kubectl."""
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End both processes if they still run."""
        for process in (self._process, self._source):
            process.kill()
            process.wait()

    def _end(self, timeout: float) -> None:
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.close()
            raise NotInTimeError(f"kubectl exec did not end within {timeout:g} s, after {self.size} B")
        code = self._process.wait(5)
        self._source.wait(5)
        if code:
            raise AssertionError(f"kubectl exec: exit code {code}")

    def digest(self, timeout: float) -> str:
        """Return the SHA-256 of its output, once it has ended."""
        self._end(timeout)
        return self._hash.hexdigest()

    def text(self, timeout: float) -> str:
        """Return its output, once it has ended."""
        self._end(timeout)
        return self._start.decode()


def still(download: Exec) -> bool:
    """Return whether a download does not grow for a second."""
    before = download.size
    time.sleep(1.0)
    return download.size == before


def digest_of(size: int) -> str:
    """Return the SHA-256 of the first *size* bytes of the stream that the tests send."""
    done = subprocess.run(
        ["sh", "-c", f"{STREAM.format(size=size)} | sha256sum"],
        check=True,
        capture_output=True,
        timeout=LOADED,
    )
    return done.stdout.split()[0].decode()
