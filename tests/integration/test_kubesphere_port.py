"""KubeSphere behind old and new agents: its port, its path at the front door, and unauthenticated ports."""

from __future__ import annotations

import http.client
import json
import shlex
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.integration import harness
from tests.integration.member import Member, member
from tests.integration.old_peers import OldAgent
from tests.integration.person import Answer, Person
from tests.integration.plain_service import COOKIE, WEBSOCKET, PlainService
from tests.integration.ports import PARTNER as OFFSET
from tests.integration.ports import is_free
from tests.integration.programs import LOOPBACK, wait_for

TARGET = "/clusters/alpha/targets/kubesphere"
NAMESPACES = "/api/v1/namespaces"

#: A browser's own header fields, and claims that Tower checks elsewhere.
HEAD = (
    b"Host: ks.example:30880\r\nUser-Agent: browser\r\naccept: text/html, */*;q=0.1\r\n"
    b"X-Forwarded-For: 1.2.3.4\r\nAuthorization: Basic YWRtaW46UEBzc3cwcmQ=\r\n"
    b"Cookie: a=b; %b\r\nImpersonate-User: root\r\n\r\n" % COOKIE.encode()
)


class KubeSphereTestCase(harness.TowerTestCase):
    """A proxy with options, and a KubeSphere for its agents.

    :cvar options: of the proxy, in addition to the usual.
    """

    options: tuple[str, ...] = ()

    def setUp(self) -> None:
        """Start both."""
        super().setUp()
        self.kubesphere = PlainService()
        self.addCleanup(self.kubesphere.close)
        self.tower.tower("cluster", "add", "alpha")
        self.port = self.tower.cluster_port("alpha")

    def new_tower(self) -> harness.Tower:
        """Return one with the options."""
        tower = super().new_tower()
        ports = tower.cluster_ports
        first, last = ports[0] + OFFSET, ports[-1] + OFFSET
        tower.proxy = tower.proxy_program(*(each.format(first=first, last=last) for each in self.options))
        return tower

    def restart_without_options(self) -> None:
        """Restart the proxy."""
        self.tower.proxy.stop()
        self.tower.proxy = self.tower.proxy_program()
        self.tower.start()

    def old_agent(self, service: str, ca: Path, pair: tuple[Path, Path] | None = None) -> OldAgent:
        """Start an old agent of alpha; return when it is in."""
        words = shlex.split(self.tower.tower("join", "alpha", "--protocol", "v1"))
        flags = dict(zip(words[1::2], words[2::2], strict=True))
        bearer = self.folder / "bearer"
        bearer.write_text("of-no-meaning")
        agent = OldAgent(
            self.folder,
            flags["--proxy-server"],
            flags["--name"],
            flags["--token"],
            service,
            ca=ca,
            bearer=None if pair else bearer,
            pair=pair,
            kubesphere_service=f"{LOOPBACK}:{self.kubesphere.port}",
        )
        agent.program.start()
        self.addCleanup(agent.program.stop)
        agent.wait_until_ready()
        return agent

    def agents(self) -> Iterator[Any]:
        """Start an old agent, then a Tower agent, each alone; yield each."""
        ca = self.folder / "any-ca.crt"
        ca.write_text(self.tower.admin().ca)
        old = self.old_agent(f"{LOOPBACK}:{self.tower.secure_port}", ca)
        yield old
        old.program.stop()
        (ours,) = self.tower.state.glob("admin*.kubeconfig")
        service = f"--kubesphere-service={LOOPBACK}:{self.kubesphere.port}"
        agent = self.tower.agent("alpha", ours, service)
        agent.program.start()
        agent.wait_until_ready()
        yield agent

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Return status, reason and message of a condition of alpha."""
        for condition in self.tower.status("alpha")["status"]["conditions"]:
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def wait_for_condition(self, kind: str, status: str, reason: str) -> str:
        """Wait until a condition is so; return its message."""
        wait_for(f"{kind} {reason}", lambda: self.condition(kind)[:2] == (status, reason))
        return self.condition(kind)[2]


def ask(
    port: int, method: str, path: str, body: str | None = None, cookie: str = ""
) -> tuple[int, dict[str, str], bytes]:
    """Send one request to a KubeSphere port; return status, header and body of the answer."""
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=20)
    try:
        connection.request(method, path, body, {"Cookie": cookie} if cookie else {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


def get(person: Person, headers: dict[str, str]) -> Answer:
    """Ask alpha's own port for the namespaces."""
    return person.request("GET", NAMESPACES, headers=headers)


def upgraded(connection: socket.socket, path: str, *fields: str) -> bytes:
    """Open a WebSocket and send through it; return all data until the echo is complete."""
    lines = [f"GET {path} HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket", *fields]
    connection.sendall("\r\n".join(lines).encode() + b"\r\n\r\n")
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        data = connection.recv(65536)
        if not data:
            return answer
        answer += data
    connection.sendall(b"ping")
    while not answer.endswith(b"ping"):
        data = connection.recv(65536)
        assert data, answer
        answer += data
    return answer


class KubeSpherePortTests(KubeSphereTestCase):
    """The cluster's own KubeSphere port."""

    options = ("--kubesphere-ports={first}-{last}",)

    def test_login(self) -> None:
        """Through either agent KubeSphere's own login works, without any other authentication."""
        message = self.wait_for_condition("KubeSpherePortOpen", "True", "PortOpen")
        self.assertIn(f"port {self.port + OFFSET} of {LOOPBACK}", message)
        self.assertIn("clients are not authenticated", message)
        self.assertIn("clients are not authenticated", self.tower.proxy.output())
        for _ in self.agents():
            port = self.port + OFFSET
            self.assertEqual(ask(port, "GET", "/home")[0], 401)
            self.assertEqual(ask(port, "POST", "/login", "password=wrong")[0], 401)
            status, fields, _body = ask(port, "POST", "/login", "password=right")
            self.assertEqual((status, fields["Location"]), (302, "/home"))
            cookie = fields["Set-Cookie"].partition(";")[0]
            self.assertEqual(ask(port, "GET", "/home", cookie=cookie)[::2], (200, b"welcome"))
            self.assertEqual(len(ask(port, "GET", "/big")[2]), PlainService.BIG)

    def test_untouched(self) -> None:
        """A header arrives byte for byte, with the client's address at the end, and a WebSocket works."""
        for _ in self.agents():
            with socket.create_connection((LOOPBACK, self.port + OFFSET), 20) as connection:
                sent = b"GET /home?x=%2F HTTP/1.1\r\n" + HEAD
                connection.sendall(sent)
                came = b""
                while not came.endswith(b"welcome"):
                    came += connection.recv(65536) or self.fail(f"it ends behind {came!r}")
                forwarded = b"X-Forwarded-For: 1.2.3.4"
                expected = sent.replace(forwarded + b"\r\n", b"")[:-2] + forwarded + b", 127.0.0.1\r\n\r\n"
                self.assertEqual(self.kubesphere.heads[-1], expected)
                self.assertEqual(upgraded(connection, "/ws", f"Cookie: {COOKIE}"), WEBSOCKET + b"ping")

    def test_without_kubesphere(self) -> None:
        """An unreachable service gives a Status too, never an empty answer (holes 9 and 18)."""
        self.kubesphere.close()
        expected = ((502, "was lost before its answer"), (503, "connection refused"))
        for _, (code, text) in zip(self.agents(), expected, strict=True):
            status, _, body = ask(self.port + OFFSET, "GET", "/home")
            self.assertEqual(status, code)
            self.assertIn(text, json.loads(body)["message"])

    def test_without_an_agent(self) -> None:
        """Without an agent, and with one without a KubeSphere, a Status gives the reason."""
        status, _, body = ask(self.port + OFFSET, "GET", "/home")
        self.assertEqual((status, json.loads(body)["kind"]), (503, "Status"))
        self.assertIn("no agent of cluster alpha", json.loads(body)["message"])
        (ours,) = self.tower.state.glob("admin*.kubeconfig")
        agent = self.tower.agent("alpha", ours)
        agent.program.start()
        agent.wait_until_ready()
        status, _, body = ask(self.port + OFFSET, "GET", "/home")
        self.assertEqual(status, 404)
        self.assertIn(r"no target \"kubesphere\"", json.loads(body)["message"])

    def test_follows_the_cluster(self) -> None:
        """The port is closed with its cluster, at once and with its connections, and opened again."""
        for _ in self.agents():
            break
        connection = http.client.HTTPConnection(LOOPBACK, self.port + OFFSET, timeout=20)
        connection.request("GET", "/home")
        connection.getresponse().read()
        self.tower.tower("cluster", "disable", "alpha")
        self.wait_for_condition("KubeSpherePortOpen", "False", "ClusterDisabled")
        wait_for("the end of the connection", lambda: connection.sock.recv(1) == b"")
        wait_for("the port", lambda: is_free(self.port + OFFSET))
        self.tower.tower("cluster", "enable", "alpha")
        self.wait_for_condition("KubeSpherePortOpen", "True", "PortOpen")
        self.assertFalse(is_free(self.port + OFFSET))
        self.restart_without_options()
        self.wait_for_condition("KubeSpherePortOpen", "False", "Off")
        self.assertTrue(is_free(self.port + OFFSET))


class FrontDoorTests(KubeSphereTestCase):
    """KubeSphere through the front door, where Tower authenticates the user."""

    def fields(self) -> dict[str, str]:
        """Return the fields of the last request that KubeSphere got."""
        lines = self.kubesphere.heads[-1].decode().split("\r\n")[1:-2]
        return dict(line.split(": ", 1) for line in lines)

    def test_login(self) -> None:
        """Tower's credential opens the door and is not forwarded; KubeSphere's own login works as well."""
        for _ in self.agents():
            for auth in ("token", "cert"):
                jane = self.tower.person("alpha", "jane", "--auth", auth)
                self.assertEqual(jane.request("GET", f"{TARGET}/home").status, 401)
                login = jane.request("POST", f"{TARGET}/login", body=b"password=right")
                self.assertEqual((login.status, login.headers["Location"]), (302, f"{TARGET}/home"))
                cookie = login.headers["Set-Cookie"].partition(";")[0]
                home = jane.request("GET", f"{TARGET}/home", headers={"Cookie": cookie})
                self.assertEqual((home.status, home.body), (200, b"welcome"))
                self.assertEqual(set(self.fields()), {"Host", "Accept-Encoding", "Cookie"})
                away = jane.request("GET", f"{TARGET}/away").headers["Location"]
                self.assertEqual(away, f"{TARGET}/home")
                own = {"Authorization": "Basic YTpi", "X-Forwarded-For": "1.2.3.4"}
                if auth == "cert":
                    jane.request("GET", f"{TARGET}/home", headers=own)
                    self.assertEqual({name: self.fields()[name] for name in own}, own)

    def test_websocket(self) -> None:
        """A WebSocket works."""
        jane = self.tower.person("alpha", "jane", "--auth", "token")
        for _ in self.agents():
            connection = jane.connect()
            connection.connect()
            echoed = upgraded(connection.sock, f"{TARGET}/ws", f"Authorization: Bearer {jane.token}")
            connection.close()
            self.assertEqual(echoed, WEBSOCKET + b"ping")
            self.assertNotIn(b"towerk-", self.kubesphere.heads[-1])

    def refused(self, person: Person, path: str, status: int, **headers: str) -> None:
        """Expect a request to be refused with a Status, and not to have come to KubeSphere."""
        answer = person.request("GET", path, headers=headers)
        self.assertEqual((answer.status, json.loads(answer.body)["kind"]), (status, "Status"), path)
        self.assertEqual(self.kubesphere.heads, [])

    def test_refusals(self) -> None:
        """Other users, other identities and other paths are denied."""
        self.tower.tower("cluster", "add", "beta")
        jane, joe = self.tower.person("alpha", "jane"), self.tower.person("beta", "joe")
        unknown = Person(jane.kubeconfig)
        unknown.tls, unknown.token = self.without_certificate(unknown), None
        for _ in self.agents():
            self.refused(unknown, f"{TARGET}/home", 401)
            self.refused(joe, f"{TARGET}/home", 403)
            self.refused(jane, f"{TARGET}/home", 403, **{"Impersonate-User": "root"})
            self.refused(jane, "/clusters/alpha/targets/kubernetes/api", 403)
            self.refused(jane, "/clusters/alpha/targets/other/", 404)
            self.refused(jane, "/clusters/beta/targets/kubesphere/home", 403)

    def without_certificate(self, person: Person) -> Any:
        """Return a TLS context that verifies the server and shows nothing."""
        person._user = {}
        return person.new_tls()


class RealTestCase(KubeSphereTestCase):
    """An old agent in front of a real API server."""

    def setUp(self) -> None:
        """Start a real cluster."""
        super().setUp()
        self.member: Member = member()

    def start_agent(self) -> OldAgent:
        """Start an old agent with the administrator's certificate."""
        return self.old_agent(self.member.service, self.member.ca, self.member.admin_pair)

    def unauthenticated(self) -> Person:
        """Return a user without a credential, at alpha's own port."""
        person = Person(self.tower.kubeconfig("alpha", "joe", "--via", "port"))
        person._user, person.token = {}, None
        person.tls = person.new_tls()
        return person

    def port_is(self, reason: str) -> str:
        """Wait for the reason of the condition about alpha's port; return the message."""
        return self.wait_for_condition("KubernetesAPIServerPortOpen", "True", reason)

    def status(self, answer: Answer) -> tuple[int, str]:
        """Return code and message of a refusal."""
        return answer.status, str(json.loads(answer.body)["message"])


class ClosedPortTests(RealTestCase):
    """Without ``--v1-open-ports``."""

    def test_closed(self) -> None:
        """Without the option an old agent's port authenticates users, as every port does."""
        self.start_agent()
        self.assertEqual(self.unauthenticated().get(NAMESPACES).status, 401)
        self.port_is("PortOpen")
        jane = self.tower.person("alpha", "jane", "--group", "dev", "--via", "port")
        self.assertEqual(jane.get(NAMESPACES).status, 200)


class OpenPortTests(RealTestCase):
    """With ``--v1-open-ports``."""

    options = ("--v1-open-ports",)

    def test_open(self) -> None:
        """With it all clients act as the agent on that port, and only there; tokens work as before."""
        self.start_agent()
        self.assertIn("does not require authentication (--v1-open-ports)", self.port_is("OpenToEverybody"))
        self.assertIn("does not require authentication (--v1-open-ports)", self.tower.proxy.output())
        unauthenticated = self.unauthenticated()
        since = self.member.audit_size()
        for headers in ({}, {"Authorization": "Bearer of-no-meaning"}, {"Authorization": "Basic YTpi"}):
            self.assertEqual(get(unauthenticated, headers).status, 200, headers)
        seen = [
            event["user"]["username"] for event in self.member.audit(since) if "impersonatedUser" not in event
        ]
        self.assertNotIn("system:anonymous", seen)
        code, text = self.status(get(unauthenticated, {"Impersonate-User": "jack"}))
        self.assertEqual((code, 'User "jack" cannot' in text), (403, True))
        jane = self.tower.person("alpha", "jane", "--auth", "token", "--via", "port")
        code, text = self.status(jane.get(NAMESPACES))
        self.assertEqual((code, 'User "jane" cannot' in text), (403, True))
        ended = {"Authorization": "Bearer towerk-of-long-ago"}
        self.assertEqual(get(unauthenticated, ended).status, 401)
        front = unauthenticated.request("GET", f"/clusters/alpha{NAMESPACES}", port=self.tower.secure_port)
        self.assertEqual(front.status, 401)

    def test_closed_with_the_last_token(self) -> None:
        """Revoking the last old token closes it, connections too, though its agent was there just now."""
        self.port_is("PortOpen")
        self.start_agent()
        self.port_is("OpenToEverybody")
        unauthenticated = self.unauthenticated()
        connection = unauthenticated.connect()
        self.assertIn(b"kube-system", unauthenticated.ask(connection, NAMESPACES).read())
        listed = json.loads(self.tower.tower("cluster", "agents", "alpha", "-o", "json"))
        (name,) = [item["metadata"]["name"] for item in listed["items"]]
        self.tower.tower("cluster", "revoke", "alpha", name)
        self.port_is("PortOpen")
        self.assertEqual(unauthenticated.get(NAMESPACES).status, 401)
        self.assertEqual(connection.sock.recv(1), b"")
        connection.close()

    def test_new_agent(self) -> None:
        """With old tokens but a Tower agent, a client without a credential gets the next step."""
        self.tower.tower("join", "alpha", "--protocol", "v1")
        agent = self.tower.agent("alpha", self.member.agent)
        agent.program.start()
        agent.wait_until_ready()
        self.port_is("OpenToEverybody")
        code, text = self.status(self.unauthenticated().get(NAMESPACES))
        self.assertEqual((code, "tower kubeconfig" in text), (401, True))
        jane = self.tower.person("alpha", "jane", "--group", "dev", "--auth", "token", "--via", "port")
        self.assertEqual(jane.get(NAMESPACES).status, 200)
