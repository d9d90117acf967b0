"""A credential works for its own cluster, until it expires or is revoked, and not a moment longer."""

from __future__ import annotations

import atexit
import functools
import http.client
import json
import math
import os
import shutil
import ssl
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from twisted.trial.unittest import SynchronousTestCase

from tests.integration import harness
from tests.integration.member import member
from tests.integration.person import Person
from tests.integration.programs import wait_for

PODS = "/api/v1/namespaces/default/pods"
WATCH = f"{PODS}?watch=1"
GROUP = "/apis/cluster.kubesphere.io/v1alpha1"
CLUSTERS = f"{GROUP}/clusters"
BOUND = 5.0  # s within which an expired or revoked credential stops working
SLACK = 10.0  # s that this test itself may take to notice; enough to notice a user who is still served
TTL = 6.0  # s that a credential lives, without the time until its user has it


def put_behind(tower: harness.Tower) -> None:
    """Put the real cluster behind a proxy twice, with one agent each."""
    for cluster in ("alpha", "beta"):
        tower.tower("cluster", "add", cluster)
        tower.agent(cluster, member().agent).program.start()
    for agent in tower.agents:
        agent.wait_until_ready()


@functools.cache
def shared_tower() -> harness.Tower:
    """Return the one for all tests that leave clusters and agents alone; it ends with the process."""
    folder = Path(tempfile.mkdtemp(prefix="tower-isolation-"))
    tower, owner = harness.Tower(folder), os.getpid()

    def end() -> None:
        if os.getpid() == owner:
            tower.stop()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    tower.start()
    put_behind(tower)
    return tower


class IsolationTests(SynchronousTestCase):
    """Two clusters with one deployed agent each; jane may use alpha, joe beta."""

    def setUp(self) -> None:
        """Start them."""
        self.tower = shared_tower()

    def assertRefused(self, person: Person, path: str, port: int | None = None) -> None:
        """Both 401 and 403 are refusals; the answer is a Status with the reason."""
        answer = person.request("GET", path, port=port)
        self.assertIn(answer.status, (401, 403), path)
        status = json.loads(answer.body)
        self.assertEqual((status["kind"], status["code"]), ("Status", answer.status))
        self.assertTrue(status["message"])

    def test_one_cluster_only(self) -> None:
        """Jane's credential for alpha opens neither beta, nor beta's port, nor Tower's API."""
        ports = {name: self.tower.cluster_port(name) for name in ("alpha", "beta")}
        for auth in ("cert", "token"):
            jane = self.tower.person("alpha", "jane", "--group", "dev", "--auth", auth)
            self.assertEqual(jane.get(PODS).status, 200)
            self.assertEqual(jane.request("GET", PODS, port=ports["alpha"]).status, 200)
            self.assertRefused(jane, f"/clusters/beta{PODS}")
            self.assertRefused(jane, PODS, ports["beta"])
            self.assertRefused(jane, CLUSTERS)
            self.assertRefused(jane, f"{CLUSTERS}/alpha/jointokens")

    def test_without_a_path(self) -> None:
        """A request without the front door's path is only served by the user's own cluster."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        joe = self.tower.person("beta", "joe", "--group", "dev", "--auth", "token")
        for person in (jane, joe):
            self.assertEqual(person.request("GET", "/version").body, person.get("/version").body)
            self.assertEqual(person.request("GET", PODS).status, 200)
        self.addCleanup(self.enable, jane)
        self.tower.tower("cluster", "disable", "alpha")
        self.assertEqual(jane.request("GET", PODS).status, 503)
        self.assertEqual(joe.request("GET", PODS).status, 200)

    def enable(self, jane: Person) -> None:
        """Restore alpha."""
        self.tower.tower("cluster", "enable", "alpha")
        wait_for("alpha again", lambda: jane.get(PODS).status == 200)

    def test_path_tricks(self) -> None:
        """No spelling of the path leads from alpha's door into beta."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        for path in (
            f"/clusters/alpha/../beta{PODS}",
            f"/clusters/alpha/%2e%2e/beta{PODS}",
            f"/clusters/alpha/..%2fbeta{PODS}",
            f"/clusters/alpha%2f..%2fbeta{PODS}",
            f"//clusters/beta{PODS}",
            f"/clusters//beta{PODS}",
        ):
            self.assertIn(jane.request("GET", path).status, (400, 401, 403, 404), path)

    def test_admin_has_no_access_to_members(self) -> None:
        """Tower's administrator cannot access a cluster without a credential for it."""
        admin = self.tower.admin()
        self.assertEqual(admin.request("GET", CLUSTERS).status, 200)
        self.assertRefused(admin, f"/clusters/alpha{PODS}")

    def test_anonymous(self) -> None:
        """Without a credential there is 401, on the front door and on the cluster's port."""
        jane = self.tower.person("alpha", "jane")
        context = ssl.create_default_context(cadata=jane.ca)
        for port, path in (
            (self.tower.secure_port, f"/clusters/alpha{PODS}"),
            (self.tower.secure_port, CLUSTERS),
            (self.tower.cluster_port("alpha"), PODS),
        ):
            connection = http.client.HTTPSConnection(jane.host, port, context=context, timeout=60)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, 401, path)
            connection.close()

    def test_plain_port_has_no_users(self) -> None:
        """The plain port is for agents: it serves neither clusters nor the API."""
        for path, wanted in (
            ("/health", 200),
            ("/version", 200),
            (f"/clusters/alpha{PODS}", 404),
            (CLUSTERS, 404),
        ):
            connection = http.client.HTTPConnection("127.0.0.1", self.tower.port, timeout=60)
            connection.request("GET", path)
            self.assertEqual(connection.getresponse().status, wanted, path)
            connection.close()

    def test_foreign_identity_headers(self) -> None:
        """Identity headers from outside are refused, never dropped."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        user, group, extra = "Impersonate-User", "impersonate-group", "Impersonate-Extra-x"
        for wanted, *names in (
            (403, user),
            (403, user, group, extra),
            (400, group),  # without a user
            (400, extra),
            (403, "X-Remote-User"),
        ):
            answer = jane.request("GET", jane.prefix + PODS, headers=dict.fromkeys(names, "weak"))
            self.assertEqual(answer.status, wanted, names)

    def test_expired(self) -> None:
        """When a credential expires, its watch, its kept-alive connection and its TLS session are over."""
        ways = [(auth, via) for auth in ("cert", "token") for via in ("front-door", "port")]
        with ThreadPoolExecutor(len(ways)) as pool:
            for way, seen in zip(ways, pool.map(self.expired, ways), strict=True):
                late, again, resumed = seen
                self.assertLess(late, BOUND + SLACK, way)
                self.assertIn(again, (401, None), way)
                self.assertIn(resumed, (401, None), way)

    def expired(self, way: tuple[str, str]) -> tuple[float, int | None, int | None]:
        """Hold a watch of jane's open until the credential expires.

        :return: how late it ended, s; and what the kept-alive connection and a resumed session still give.
        """
        auth, via = way
        began = time.monotonic()
        options = ("--group", "dev", "--auth", auth, "--via", via)
        with Open(self.tower.person("alpha", "jane", *options)):  # to see how long that takes just now
            ttl = math.ceil(TTL + 2 * (time.monotonic() - began))
        jane = self.tower.person("alpha", "jane", *options, "--ttl", f"{ttl}s")
        issued = time.monotonic()
        with Open(jane) as held:
            held.seconds_until_over()
            late = time.monotonic() - (issued + ttl)
            return late, held.ask_again(), held.ask_resumed()


class ChangeTests(harness.TowerTestCase):
    """The same two clusters, for tests that change something about them."""

    def setUp(self) -> None:
        """Put the real cluster behind the proxy twice."""
        super().setUp()
        put_behind(self.tower)

    def test_removed_cluster(self) -> None:
        """Removing a cluster cuts its users' watches and its tunnels, and frees its port."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        with Open(jane) as held:
            self.tower.tower("cluster", "remove", "alpha")
            self.assertLess(held.seconds_until_over(), BOUND + SLACK)
        self.assertIn(jane.get(PODS).status, (401, 403, 404))

    def test_disabled_and_enabled(self) -> None:
        """Disabling cuts everything at once and enabling brings it back, agent included."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        port = self.tower.cluster_port("alpha")
        with Open(jane) as held:
            self.tower.tower("cluster", "disable", "alpha")
            self.assertLess(held.seconds_until_over(), BOUND + SLACK)
        self.assertNotEqual(jane.get(PODS).status, 200)
        with self.assertRaises(OSError):
            jane.request("GET", PODS, port=port)
        self.tower.tower("cluster", "enable", "alpha")
        wait_for("alpha again", lambda: jane.get(PODS).status == 200)
        self.assertEqual(jane.request("GET", PODS, port=port).status, 200)

    def test_revoked(self) -> None:
        """When a credential is revoked, the same ends, at once."""
        for auth in ("cert", "token"):
            jane = self.tower.person("alpha", "jane", "--group", "dev", "--auth", auth)
            with Open(jane) as held:
                self.revoke_all("alpha")
                self.assertLess(held.seconds_until_over(), BOUND + SLACK)
                self.assertIn(held.ask_again(), (401, None))
                self.assertIn(held.ask_resumed(), (401, None))

    def revoke_all(self, cluster: str) -> None:
        """Revoke every credential for a cluster."""
        answer = self.tower.admin().request("GET", f"{GROUP}/credentials")
        issued = [item for item in json.loads(answer.body)["items"] if item["spec"]["cluster"] == cluster]
        self.assertTrue(issued)
        for item in issued:
            self.tower.tower("credential", "revoke", item["metadata"]["name"])

    def test_revoked_agent_key(self) -> None:
        """A revoked agent loses its tunnel and cannot come back with its key."""
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        listed = self.tower.tower("cluster", "agents", "alpha")
        (fingerprint,) = {word for word in listed.split() if word.startswith("SHA256:")}
        self.tower.tower("cluster", "revoke", "alpha", fingerprint)
        wait_for("the tunnel to go", lambda: not self.tower.agents[0].ready())
        self.assertIn(jane.get(PODS).status, (503, 504))


class Open:
    """Jane's open connections: a watch, a kept-alive connection, and a TLS session to resume."""

    def __init__(self, jane: Person) -> None:
        self.jane = jane
        self.watching = jane.connect()
        self.kept = jane.connect()

    def __enter__(self) -> Self:
        """Open all of it; each answers once."""
        self.watch = self.jane.ask(self.watching, self.jane.prefix + WATCH)
        assert self.watch.status == 200, self.watch.read()
        assert self.watch.readline(), "no event"
        answer = self.jane.ask(self.kept, self.jane.prefix + PODS)
        assert answer.status == 200, answer.read()
        answer.read()
        sock = self.kept.sock
        assert isinstance(sock, ssl.SSLSocket)
        self.session = sock.session
        return self

    def __exit__(self, *_: object) -> None:
        """Close what is left."""
        self.watching.close()
        self.kept.close()

    def seconds_until_over(self) -> float:
        """Return how long it takes until the watch ends."""
        began = time.monotonic()
        try:
            while self.watch.readline():
                pass
        except (OSError, http.client.HTTPException):
            pass
        return time.monotonic() - began

    def ask_again(self) -> int | None:
        """Return the status that the kept-alive connection still gives, None when it is closed."""
        try:
            return self.jane.ask(self.kept, self.jane.prefix + PODS).status
        except (OSError, http.client.HTTPException):
            return None

    def ask_resumed(self) -> int | None:
        """Return the status of a request over a resumed TLS session, None when there is no connection."""
        try:
            connection = self.jane.connect(session=self.session)
            try:
                return self.jane.ask(connection, self.jane.prefix + PODS).status
            finally:
                connection.close()
        except (OSError, http.client.HTTPException):
            return None
