"""Each side killed, or stopped and continued, in the middle of downloads, uploads and upgrades."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable

from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.programs import Program, wait_for
from tests.integration.relay import Relay
from tests.integration.uses import ENDLESS, RATE, Download, Upgrade, Upload

GONE = 60.0  # s within which all peers must have noticed a death, after the data in flight
RECOVERY = 60.0  # s for all to be up again
PAUSE = 1.5  # s that a side stands still, shorter than the patience of the others
BETWEEN = 0.3  # s
ATTEMPTS = 5  # for a request on a connection that a busy machine closes before, as it was idle
WHOLE = 300.0  # s for everything in flight to arrive
RECORDS = 50
SHORT = 3 * RATE  # B; moved within the proxy's grace
GROUP = "/apis/cluster.kubesphere.io/v1alpha1"
ALPHA = f"{GROUP}/clusters/alpha"
KUBECONFIG = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Kubeconfig"}


class KilledTests(harness.TowerTestCase):
    """A cluster whose API server is a separate program."""

    def setUp(self) -> None:
        """Start it."""
        super().setUp()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()
        self.way = Relay(self.backend.ports["alpha"]["https"])
        self.addCleanup(self.way.close)
        kubeconfig = self.backend.kubeconfig("alpha")
        text = kubeconfig.read_text().replace(str(self.way.target), str(self.way.port))
        kubeconfig.write_text(text)
        self.agent = self.tower.add("alpha", kubeconfig, harness.PATIENT)
        self.jane = self.tower.person("alpha", "jane")
        self.assertTrue(self.works())

    def new_tower(self) -> harness.Tower:
        """Return one whose keepalives detect nothing within the time of a test."""
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(harness.PATIENT)
        return tower

    def works(self) -> bool:
        """Return whether a request gets through."""
        return self.jane.get("/ping").body == b"pong"

    def restart_backend(self) -> None:
        """Start the API server again, on any port."""
        self.backend.program.log.unlink()
        self.backend.start()
        self.way.target = self.backend.ports["alpha"]["https"]

    def restart_agent(self) -> None:
        """Start the enrolled agent again."""
        self.agent.forget_token()
        self.agent.program.start()

    def refusal(self) -> str:
        """Send a request that must fail; return the message of the Status."""
        answer = self.jane.get("/ping")
        self.assertIn(answer.status, (502, 503, 504))
        status = json.loads(answer.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.status))
        message: str = status["message"]
        return message

    def check_killed(self, victim: Program, restart: Callable[[], None], *others: Program) -> None:
        """Kill a side while everything is used: users get errors, and nothing leaks."""
        wait_for("quiet", lambda: self.way.open <= 1, RECOVERY)
        before = [each.descriptors() for each in others]
        uses = [kind(self.jane, size=ENDLESS) for kind in (Download, Upload, Upgrade)]
        for use in uses:
            use.wait_for_middle(RECOVERY)
        victim.kill()
        for use in uses:
            self.assertRegex(use.result(GONE), "^broken", f"{use} after the death of {victim.name}")
        for program, count in zip(others, before, strict=True):
            self.wait_for_descriptors(program, count)
        restart()
        wait_for(f"requests after the death of {victim.name}", self.recovered, RECOVERY)
        for program in others:
            if program.name != "backend":  # which has reasons of its own when clients go
                self.assertNotIn("Traceback", program.output())

    def wait_for_descriptors(self, program: Program, count: int) -> None:
        """Return when a program has no more open than that."""
        wait_for(f"{count} descriptors of {program.name}", lambda: program.descriptors() <= count, GONE)

    def recovered(self) -> bool:
        """Return whether a request gets through; errors are ignored."""
        try:
            return self.works()
        except OSError:
            return False

    def test_killed(self) -> None:
        """SIGKILL of any side in the middle of a download, an upload and an upgrade."""
        proxy, agent, backend = self.tower.proxy, self.agent.program, self.backend.program
        self.check_killed(agent, self.restart_agent, proxy, backend)
        agent = self.agent.program
        self.check_killed(backend, self.restart_backend, proxy, agent)
        self.check_killed(proxy, self.tower.start, agent, backend)

    def test_all_killed(self) -> None:
        """Everything is killed at once and comes back in the worst order."""
        for program in (self.tower.proxy, self.agent.program, self.backend.program):
            program.kill()
        self.restart_agent()
        self.restart_backend()
        time.sleep(1.0)
        self.tower.start()
        wait_for("requests", self.recovered, RECOVERY)

    def test_terminated(self) -> None:
        """SIGTERM of the proxy lets requests finish, on the front door and on the cluster's own port."""
        own_port = self.tower.person("alpha", "joe", "--via", "port")
        self.assertEqual(own_port.port, self.tower.cluster_port("alpha"))
        uses = [kind(self.jane, size=SHORT) for kind in (Download, Upload)]
        uses += [kind(own_port, "joe", size=SHORT) for kind in (Download, Upload)]
        for use in uses:
            use.wait_for_middle(RECOVERY)
        self.tower.proxy.ask_to_end()
        for use in uses:
            self.assertEqual(use.result(GONE), "whole", str(use))
        self.assertTrue(self.tower.proxy.stop())

    def test_stopped_for_a_while(self) -> None:
        """After SIGSTOP and SIGCONT of any side, transfers continue, and no byte is lost."""
        uses = [Download(self.jane), Upload(self.jane)]
        connections = wait_for(
            "a line about the agent",
            lambda: self.tower.proxy.output().count("agent of alpha connected"),
            GONE,
        )
        for program in (self.tower.proxy, self.agent.program, self.backend.program):
            program.pause()
            time.sleep(PAUSE)
            program.resume()
            time.sleep(BETWEEN)
        for use in uses:
            self.assertEqual(use.result(WHOLE), "whole")
        self.assertTrue(self.works())
        self.assertEqual(self.tower.proxy.output().count("agent of alpha connected"), connections)

    def test_backend_stopped(self) -> None:
        """An API server that stands still is reported; a request that reached it gets its answer later."""
        for _ in range(ATTEMPTS):
            kept = self.jane.connect()
            self.addCleanup(kept.close)
            self.jane.ask(kept, f"{self.jane.prefix}/ping").read()
            self.backend.program.pause()
            kept.request("GET", f"{self.jane.prefix}/ping", headers=self.jane.headers())
            time.sleep(BETWEEN)
            refusal = self.refusal()
            self.assertIn("alpha", refusal)
            self.assertTrue(self.agent.ready())
            self.backend.program.resume()
            answer = kept.getresponse().read()
            wait_for("requests", self.recovered, RECOVERY)
            if answer == b"pong":
                return
            text = refusal.partition(" (request ")[0]
            self.assertTrue(json.loads(answer)["message"].startswith(text), answer)  # it was not sent
        self.fail("no request has reached the API server")

    def test_backend_killed(self) -> None:
        """Without an API server the Status names its address, and the tunnel stays."""
        self.way.target = 1  # nothing listens there
        self.backend.program.kill()
        wait_for("the end of its connections", lambda: self.way.open == 0, GONE)
        self.assertIn("alpha", self.refusal())
        self.assertTrue(self.agent.ready())
        self.restart_backend()
        wait_for("requests", self.recovered, RECOVERY)

    def test_records(self) -> None:
        """Records that the proxy confirmed exist after SIGKILL in the middle of writing."""
        admin = self.tower.admin()
        written: set[str] = set()

        def write() -> None:
            connection = admin.connect()
            body = json.dumps({**KUBECONFIG, "spec": {"user": "joe", "auth": "token"}}).encode()
            headers = {"Content-Type": "application/json"}
            try:
                while True:
                    answer = admin.ask(connection, f"{ALPHA}/kubeconfigs", "POST", body, headers)
                    written.add(json.loads(answer.read())["status"]["credential"])
            except (OSError, http.client.HTTPException):
                connection.close()

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        wait_for("some records", lambda: len(written) >= RECORDS)
        self.tower.proxy.kill()
        writer.join(GONE)
        self.tower.start()
        items = json.loads(self.tower.admin().get(f"{GROUP}/credentials").body)["items"]
        kept = {item["metadata"]["name"] for item in items if item["spec"]["user"] == "joe"}
        self.assertEqual(written - kept, set())
        self.assertLessEqual(len(kept - written), 1)
        wait_for("requests", self.recovered, RECOVERY)
