"""KubeSphere Tower's agent, unchanged, with our proxy: traffic, connections and disconnections."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import random
import shutil
import tempfile
import threading
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.exchanges import Client
from tests.integration.old_peers import OldAgent, gopeer
from tests.integration.old_tower import OldTower
from tests.integration.person import Person
from tests.integration.programs import NotInTimeError, run, wait_for

MIB = 2**20
NOTICE = 60.0  # s within which a dead peer must have been noticed
RECOVERY = 60.0  # s for the agent to come back afterwards
BOUNDED = 30.0  # s within which a request has an answer; it waits 5 s for an agent that reconnects


class OldAgentTestCase(SynchronousTestCase):
    """One proxy and one old agent, of alpha."""

    def setUp(self) -> None:
        """Start them."""
        folder = Path(tempfile.mkdtemp(prefix="tower-old-"))
        self.addCleanup(shutil.rmtree, folder, True)
        self.old = OldTower(folder)
        self.addCleanup(self.old.stop)
        self.old.start()
        self.addCleanup(self.assertNoLeak)
        self.tower = self.old.tower
        self.agent = self.started()
        self.jane = self.tower.person("alpha", "jane", "--via", "port")

    def started(self, rekey: int | None = None) -> OldAgent:
        """Return one more agent of alpha, connected."""
        agent = self.old.agent(rekey=rekey)
        agent.program.start()
        agent.wait_until_ready()
        return agent

    def assertNoLeak(self) -> None:
        """No secret is in the log or on the disk (hole 24), and nothing went wrong in the proxy."""
        self.assertEqual(self.old.leaks(), [])
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def works(self) -> bool:
        """Return whether a request gets through."""
        return self.jane.get("/ping").status == 200

    def recovered(self) -> None:
        """Return once requests get through again."""
        wait_for("requests to alpha", self.works, RECOVERY)

    def check_bounded(self) -> None:
        """Send a request while there is no tunnel: a Status is returned, in bounded time."""
        began = time.monotonic()
        answer = self.jane.get("/ping")
        self.assertLess(time.monotonic() - began, BOUNDED)
        self.assertIn(answer.status, (502, 503, 504))
        status = json.loads(answer.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.status))
        self.assertIn("alpha", status["message"])

    def agents(self) -> int:
        """Return how many agents alpha has."""
        count: int = self.tower.status("alpha")["status"]["agents"]
        return count

    def condition(self, kind: str) -> str:
        """Return the status and the reason of a condition of alpha."""
        found = {each["type"]: each for each in self.tower.status("alpha")["status"]["conditions"]}
        return f"{found[kind]['status']} {found[kind]['reason']}"


class TrafficTests(OldAgentTestCase):
    """Its traffic."""

    def test_exchanges(self) -> None:
        """Many users at once, many of them break off: no byte is another's, missing or too many."""
        users = {user: self.tower.person("alpha", user, "--via", "port") for user in ("joe", "jane", "jill")}

        async def exchange() -> None:
            everybody = [
                Client(person, user, "alpha", 1000 * place, place, lossy=True)
                for place, (user, person) in enumerate([*users.items()] * 3)
            ]
            await asyncio.gather(*(marked.run(40) for marked in everybody))

        asyncio.run(exchange())
        self.assertEqual(self.old.backend.report()["faults"], [])

    def test_credential(self) -> None:
        """The user is impersonated, and no other; the newline after the bearer does no harm (hole 31)."""
        self.assertEqual(self.jane.get("/marks/jane@alpha/1?size=10").status, 200)
        self.assertEqual(self.jane.request("GET", "/ping", headers={"Impersonate-User": "joe"}).status, 403)
        self.assertEqual(self.old.backend.report()["faults"], [])

    def test_keys_changed_by_the_agent(self) -> None:
        """Keys that the agent changes all the time in the middle of bulk change no byte."""
        self.agent.program.stop()
        self.agent = self.started(rekey=MIB)
        self.check_stored(24)

    def test_keys_changed_by_the_proxy(self) -> None:
        """After a GiB the proxy changes them."""
        self.check_stored(64, 18)

    def check_stored(self, size: int, times: int = 1) -> None:
        """Send and fetch so many MiB."""
        data = random.Random(size).randbytes(size * MIB)
        digest = hashlib.sha256(data).hexdigest()
        self.assertEqual(self.jane.request("PUT", "/stored", body=data).body.decode(), digest)
        connection = self.jane.connect()
        for _ in range(times):
            body = self.jane.ask(connection, "/stored").read()
            self.assertEqual(hashlib.sha256(body).hexdigest(), digest)
        connection.close()

    def test_slow_reader(self) -> None:
        """A slow reader stops the backend, through an agent of Go, and costs no memory."""
        before = self.tower.proxy.memory()
        connection = self.jane.connect()
        self.jane.ask(connection, "/flood").read(1000)
        flooded = [0]
        wait_for("the flood to stand still", lambda: self._same(flooded), every=0.5)
        self.assertLess(self.tower.proxy.memory() - before, 32 * MIB)
        self.assertTrue(self.works())
        connection.close()

    def _same(self, counts: list[int]) -> bool:
        counts.append(self.old.backend.report()["flooded"])
        return counts[-1] == counts[-2]

    def test_no_other_target(self) -> None:
        """An old agent leads to the two addresses that it named, and no user can name another."""
        admin = self.tower.person("alpha", "jane")
        self.assertEqual(admin.get("/targets/kubesphere/ping").body, b"pong")
        answer = admin.get("/targets/database/ping")
        self.assertEqual(answer.status, 404)
        self.assertIn("database", json.loads(answer.body)["message"])


class LifeTests(OldAgentTestCase):
    """How it comes and goes."""

    def test_killed(self) -> None:
        """An agent that dies leaves a clear answer, and a new one restores the service."""
        self.assertEqual(self.condition("AgentProtocol"), "False KubeSphereV1")
        self.agent.program.kill()
        wait_for("the proxy to notice", lambda: self.agents() == 0, NOTICE)
        self.check_bounded()
        self.agent.program.start()
        self.recovered()

    def test_stopped(self) -> None:
        """One that stands still is noticed within three keepalives (hole 11), and comes back."""
        self.assertTrue(self.works())
        time.sleep(2 * harness.KEEPALIVE)  # it refuses the probes: that is a sign of life
        self.assertTrue(self.works())
        self.assertEqual(self.agent.connections(), 1)
        self.agent.program.pause()
        wait_for("the proxy to notice", lambda: self.agents() == 0, NOTICE)
        self.check_bounded()
        self.agent.program.resume()
        self.recovered()

    def test_proxy_killed(self) -> None:
        """After kill -9 of the proxy the agent comes back by itself, and its credential with it."""
        self.tower.proxy.kill()
        self.tower.start()
        self.recovered()
        self.assertEqual(self.agent.connections(), 2)

    def test_proxy_restarted(self) -> None:
        """After an orderly restart the first attempt that gets through succeeds (hole 28)."""
        self.assertTrue(self.tower.proxy.stop())
        self.tower.start()
        self.recovered()
        self.assertNotIn("Unauthorized", self.agent.program.output())

    def test_https(self) -> None:
        """It comes in by the front door too, whose certificate it verifies."""
        self.agent.program.stop()
        authority = self.old.folder / "tower-ca.crt"
        authority.write_text(self.jane.ca)
        rejected = self.old.agent(trusts=self.old.authority)
        rejected.program.start()
        wait_for("it to refuse the proxy", lambda: "x509: " in rejected.program.output())
        rejected.program.stop()
        agent = self.old.agent(trusts=authority)
        agent.program.start()
        agent.wait_until_ready()
        self.assertTrue(self.works())
        before, _, last = self.tower.proxy.output().rpartition("speaks kubesphere-v1: ")
        self.assertIn("it has verified this proxy's TLS certificate", last)
        self.assertIn("without TLS, so without verifying this proxy", before)

    def test_no_credential(self) -> None:
        """Without a credential, an agent is accepted; its users, the log and the condition get the reason."""
        self.agent.program.stop()
        bare = self.old.agent(credential=False)
        bare.program.start()
        bare.wait_until_ready()
        answer = self.jane.get("/ping")
        self.assertEqual(answer.status, 502)
        self.assertIn("sent no credential for the API server", json.loads(answer.body)["message"])
        logged = self.tower.proxy.output().rpartition("speaks kubesphere-v1: ")[2]
        self.assertIn("it has sent no credential", logged.splitlines()[0])
        self.assertIn("sent no credential", self.tower.tower("cluster", "show", "alpha"))

    def test_one_of_two_without_credential(self) -> None:
        """Requests use the agent with a credential; without it, they get the reason."""
        bare = self.old.agent(credential=False)
        bare.program.start()
        bare.wait_until_ready()
        answers = [self.jane.get("/ping").status for _ in range(20)]
        self.assertEqual(answers, [200] * 20)
        self.agent.program.stop()
        wait_for("the reason", lambda: self.jane.get("/ping").status == 502)

    def test_two(self) -> None:
        """If two agents share a name, losing the first one during requests fails at most one request."""
        second = self.started()
        statuses: list[int] = []
        ending = threading.Event()
        asking = threading.Thread(target=self._ask, args=(self.jane, statuses, ending), daemon=True)
        asking.start()
        wait_for("requests", lambda: len(statuses) > 50)
        self.agent.program.kill()
        seen = len(statuses)
        wait_for("more requests", lambda: len(statuses) > seen + 100)
        ending.set()
        asking.join(RECOVERY)
        failed = [status for status in statuses if status != 200]
        self.assertLessEqual(len(failed), 1)  # the request in progress on the lost tunnel
        self.assertTrue(second.ready())
        self.assertEqual(self.condition("AgentAvailable"), "True AgentConnected")

    @staticmethod
    def _ask(person: Person, statuses: list[int], ending: threading.Event) -> None:
        connection = person.connect()
        while not ending.is_set():
            response = person.ask(connection, "/ping")
            response.read()
            statuses.append(response.status)
        connection.close()

    def test_revoked(self) -> None:
        """Revoking a token cuts its tunnels at once and rejects new ones; another token works (hole 5)."""
        (line,) = self.tower.tower("cluster", "agents", "alpha").splitlines()[1:]
        connection = self.jane.connect()
        flood = self.jane.ask(connection, "/flood")
        flood.read(MIB)
        self.tower.tower("cluster", "revoke", "alpha", line.split()[0])
        self.assertTrue(self._ends(flood, BOUNDED))
        wait_for("the agent to be refused", lambda: "Unauthorized agent" in self.agent.program.output())
        self.assertEqual(self.agent.connections(), 1)
        self.old.agent(token=self.old.mint("alpha")).program.start()
        self.recovered()

    def _ends(self, answer: http.client.HTTPResponse, seconds: float) -> bool:
        """Return whether an answer is cut within some seconds."""
        deadline = time.monotonic() + seconds
        try:
            while answer.read(MIB) and time.monotonic() < deadline:
                pass
        except (OSError, http.client.HTTPException):
            pass
        return time.monotonic() < deadline

    def test_require_v2(self) -> None:
        """With --require-v2 it is rejected, and the log has the reason."""
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program("--require-v2")
        self.tower.start()
        wait_for("the agent to be refused", lambda: "HTTP status 400" in self.agent.program.output())
        logged = self.tower.proxy.output()
        self.assertIn("rejected: this endpoint accepts the subprotocol tower-v2, not 'kubesphere-v1'", logged)
        self.check_bounded()


class StormTests(OldAgentTestCase):
    """Many of them."""

    def test_refused(self) -> None:
        """A thousand refused connections leave nothing behind (hole 12)."""
        proxy = self.tower.proxy
        self.storm(300)
        before, memory = self.settled(), proxy.memory()
        for cluster in ("alpha", "nobody's"):
            self.storm(500, cluster)
        wait_for("the descriptors to be closed", lambda: proxy.descriptors() <= before)
        self.assertLess(proxy.memory() - memory, 2 * MIB)
        self.assertTrue(self.works())
        self.assertTrue(self.agent.ready())

    def storm(self, count: int, cluster: str = "alpha") -> None:
        """Send *count* agents that are refused."""
        argv = [gopeer(), "storm", f"-url={self.old.url}", f"-n={count}", f"-name={cluster}", "-token=wrong"]
        done = run(argv, timeout=300)
        self.assertIn(b'refused: "Unauthorized agent"', done.stderr)
        self.assertIn(b"no agent connected", done.stderr)

    def settled(self) -> int:
        """Return how many descriptors the proxy has when nothing is closed any more."""
        counts = [self.tower.proxy.descriptors()]
        try:
            wait_for("it to settle", lambda: self._same(counts), every=0.3)
        except NotInTimeError:
            self.fail(f"it does not settle: {counts}")
        return counts[-1]

    def _same(self, counts: list[int]) -> bool:
        counts.append(self.tower.proxy.descriptors())
        return counts[-1] == counts[-2]
