"""Pages of the servers and requests of browsers: at a real kube-apiserver and at Tower.

Both get the same requests.  `DIFFERENT` has Tower's answers that differ.
"""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Mapping
from http.client import HTTPSConnection
from typing import Any

from attrs import field, frozen

from tests.fakes.certificates import DAY, authority
from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.member import Running
from tests.integration.mounted_secret import MountedSecret
from tests.integration.person import Answer, Person
from tests.integration.programs import LOOPBACK, is_ready, wait_for

#: The last two patterns are anchored in part.
ORIGINS = (
    r"--cors-allowed-origins=^https://ui\.example\.com(:|$),//[a-z]+\.example\.org:8443$,"
    r"^https://one|https://two$,//three\.test:?"
)
UI = {"Origin": "https://ui.example.com"}

#: Header fields that clients evaluate.
FIELDS = (
    "Content-Type",
    "X-Content-Type-Options",
    "Cache-Control",
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Expose-Headers",
    "Access-Control-Allow-Credentials",
)

_API = "/apis/cluster.kubesphere.io/v1alpha1"

_PAGES = ("healthz", "livez", "readyz")


@frozen
class Case:
    """A request of an administrator.

    :ivar own_body: whether the bodies differ by nature: names of checks, paths, versions.
    """

    target: str
    method: str = "GET"
    headers: Mapping[str, str] = field(factory=dict)
    own_body: bool = False

    def __str__(self) -> str:
        return " ".join([self.method, self.target, *self.headers.values()])


CASES = [
    *(Case(f"/{page}") for page in _PAGES),
    *(Case(f"/{page}/{check}") for page in _PAGES for check in ("ping", "log")),
    Case("/readyz/informer-sync"),
    Case("/readyz/shutdown"),
    *(Case(f"/{page}?verbose", own_body=True) for page in _PAGES),
    Case("/readyz?verbose=false", own_body=True),
    Case("/readyz?exclude=ping"),
    Case("/readyz?exclude=nothing"),
    Case("/livez?exclude=a&exclude=b&exclude=ping"),
    Case("/healthz", "HEAD"),
    Case("/healthz", "POST"),
    Case("/healthz/"),
    Case("/livez/nothing"),
    Case("/livez/shutdown"),
    Case("/", own_body=True),
    Case("/index.html", own_body=True),
    Case("/nothing"),
    Case("/version", own_body=True),
    Case("/metrics", own_body=True),
    *(Case(path, "POST", own_body=True) for path in ("/", "/metrics", "/debug/pprof/")),
    Case("/debug/pprof/", own_body=True),
    Case("/debug/pprof/nothing"),
    Case("/healthz", headers=UI),
    Case("/healthz", headers={"Origin": "https://ui.example.com:8080"}),
    Case("/healthz", headers={"Origin": "https://ui.example.com.example.net"}),
    Case("/healthz", headers={"Origin": "https://a.example.org:8443"}),
    Case("/healthz", headers={"Origin": "https://a.example.org"}),
    *(Case("/healthz", headers={"Origin": f"https://{host}"}) for host in ("one", "two:1", "three.test:1")),
    *(Case("/healthz", headers={"Origin": f"https://{host}"}) for host in ("one.evil", "three.test.evil")),
    Case("/healthz", headers={"Origin": "null"}),
    Case("/healthz", "OPTIONS", UI),
    Case("/api", "OPTIONS", UI),
    Case("/nothing", headers=UI),
]

_ANY_METHOD = ("POST /healthz", "POST /", "POST /metrics", "POST /debug/pprof/")
_PART = "allowed; Tower's patterns match whole hosts"
_NOT_FOUND = "404 page not found, in plain text; Tower's Status names the paths to use"

#: Tower's answers that differ from those of kube-apiserver, and the reasons.
DIFFERENT = {
    **dict.fromkeys(_ANY_METHOD, "any method; Tower's pages are only read"),
    "GET /healthz/": _NOT_FOUND,
    "GET /livez/nothing": _NOT_FOUND,
    "GET /livez/shutdown": _NOT_FOUND,
    "GET /nothing": _NOT_FOUND,
    "GET /nothing https://ui.example.com": _NOT_FOUND,
    "GET /debug/pprof/nothing": _NOT_FOUND,
    "GET /debug/pprof/": "a page in HTML; Tower's is plain text",
    "GET /healthz https://one.evil": _PART,
    "GET /healthz https://three.test.evil": _PART,
    "GET /metrics": "the type names an escaping of UTF-8 names, which Tower's metrics do not have",
}

#: --shutdown-delay-duration, s.
_DELAY = 5.0


class ServersTests(harness.TowerTestCase):
    def new_tower(self) -> harness.Tower:
        """Return a Tower with the options."""
        tower = super().new_tower()
        self.tokens = self.folder / "tokens.csv"
        self.tokens.write_text("plain,jane,2\n")
        tower.proxy = tower.proxy_program(
            ORIGINS,
            "--profiling",
            f"--shutdown-delay-duration={_DELAY:g}s",
            f"--token-auth-file={self.tokens}",
        )
        return tower

    def ours(self, case: Case) -> Answer:
        """Return Tower's answer."""
        return self.tower.admin().request(case.method, case.target, headers=dict(case.headers))

    def test_differential(self) -> None:
        """The same requests; only an administrator's reach the pages, whichever their method."""
        tokens = self.folder / "users.csv"
        tokens.write_text(f"s3cret,admin,1,system:masters\n{self.tokens.read_text()}")
        options = (f"--token-auth-file={tokens}", ORIGINS, "--anonymous-auth=false", "--profiling=true")
        folder = self.folder / "server"
        folder.mkdir()
        server = Running(folder, "--bare", *(f"--apiserver-flag={option}" for option in options))
        self.addCleanup(server.stop)
        server.run()
        wait_for("kube-apiserver", lambda: _theirs(server, Case("/readyz")).status == 200)
        different = {}
        for case in CASES:
            theirs, ours = _shown(case, _theirs(server, case)), _shown(case, self.ours(case))
            if theirs != ours:
                different[str(case)] = (theirs, ours)
        self.assertEqual(set(different), set(DIFFERENT), different)
        ports = (_port(server), self.tower.secure_port)
        for case in (Case(path, method) for path in ("/", "/metrics") for method in ("GET", "POST")):
            for token, status in (("", 401), ("wrong", 401), ("plain", 403)):
                fields = {"Authorization": f"Bearer {token}"} if token else {}
                statuses = [_asked(port, case, **fields).status for port in ports]
                self.assertEqual(statuses, [status, status], (str(case), token))

    def test_life(self) -> None:
        """Checks, profiles for administrators, and a stop during a watch."""
        ready = self.tower.admin().get("/readyz?verbose").body.decode().splitlines()
        self.assertIn("[+]poststarthook/rotations ok", ready)
        self.assertEqual(ready[-2:], ["[+]shutdown ok", "readyz check passed"])
        paths = json.loads(self.ours(Case("/")).body)["paths"]
        for path in ("/apis/cluster.kubesphere.io/v1alpha1", "/clusters/", "/livez/log", "/version"):
            self.assertIn(path, paths)
        admin = self.tower.admin()
        profile = admin.get("/debug/pprof/profile?seconds=1")
        self.assertIn(b"function calls", profile.body)
        for path in ("/", "/debug/pprof/threads", "/metrics"):
            stranger = _asked(self.tower.secure_port, Case(path))
            self.assertEqual(stranger.status, 401, path)
        self.stop_during_a_watch(admin)

    def stop_during_a_watch(self, admin: Person) -> None:
        """Readiness fails first, requests are served during the delay, and the watch ends well."""
        connection = admin.connect()
        self.addCleanup(connection.close)
        watch = admin.ask(connection, "/apis/cluster.kubesphere.io/v1alpha1/clusters?watch=1")
        self.assertEqual(watch.status, 200)
        self.tower.proxy.ask_to_end()
        began = time.monotonic()
        wait_for("readiness fails", lambda: not is_ready(self.tower.port, "/readyz"))
        page = _asked(self.tower.secure_port, Case("/readyz"))
        self.assertEqual(page.status, 500)
        self.assertIn(b"[-]shutdown failed: reason withheld\n", page.body)
        self.assertTrue(is_ready(self.tower.port, "/livez"))
        self.assertEqual(admin.get("/apis/cluster.kubesphere.io/v1alpha1/clusters").status, 200)
        self.assertLess(time.monotonic() - began, _DELAY, "the machine is too slow for this test")
        self.assertEqual(watch.read(), b"")  # else IncompleteRead
        self.assertGreater(time.monotonic() - began, _DELAY - 0.5)
        wait_for("the end", lambda: not self.tower.proxy.running(), _DELAY + 10)


class CompanyCertificateTests(harness.TowerTestCase):
    """A certificate of another CA for users, at the name localhost; agents use the address."""

    names: tuple[str, ...] = ("--external-hostname=localhost",)

    def new_tower(self) -> harness.Tower:
        """Return a Tower with the certificate in a Secret."""
        self.secret = MountedSecret(self.folder / "secret")
        self.company = self.issued("company")
        tower = super().new_tower()
        tower.proxy = tower.proxy_program(
            f"--tls-cert-file={self.secret.path('tls.crt')}",
            f"--tls-private-key-file={self.secret.path('tls.key')}",
            *self.names,
        )
        return tower

    def issued(self, name: str) -> bytes:
        """Put a certificate into the Secret; return its CA."""
        ca, now = authority(name, now=time.time()), time.time()
        issued = ca.server_certificate(["localhost"], DAY, now)
        self.secret.swap({"tls.crt": issued.certificate_pem + ca.pem, "tls.key": issued.key_pem})
        return ca.pem

    def accepts(self, ca: bytes, host: str) -> bool:
        """Return whether a client with this CA connects to the front door."""
        context = ssl.create_default_context(cadata=ca.decode())
        connection = HTTPSConnection(host, self.tower.secure_port, context=context, timeout=30)
        try:
            connection.request("GET", "/livez")
            return connection.getresponse().status == 200
        except ssl.SSLCertVerificationError:
            return False
        finally:
            connection.close()

    def test_certificate(self) -> None:
        """Users get the certificate and its CA, and those of a changed Secret; agents get Tower's."""
        own = self.tower.admin().ca.encode()
        self.assertTrue(self.accepts(self.company, "localhost"))
        self.assertFalse(self.accepts(own, "localhost"))
        self.assertTrue(self.accepts(own, LOOPBACK))
        self.assertIn(f"wss://{LOOPBACK}:", self.tower.tower("cluster", "add", "alpha") + self.joined())
        jane = self.tower.person("alpha", "jane")
        self.assertEqual((jane.host, jane.ca.encode()), ("localhost", own + self.company))
        self.assertEqual(jane.get("/version").status, 503)  # there is no agent
        following = self.issued("next")
        wait_for("the next certificate", lambda: self.accepts(following, "localhost"))
        self.assertEqual(self.tower.person("alpha", "jim").ca.encode(), own + following)

    def joined(self) -> str:
        """Return a join line."""
        return self.tower.tower("join", "alpha")


class CertificateForAgentsTests(CompanyCertificateTests):
    """A certificate of another CA at the name that users and agents connect to."""

    names = ("--publish-service-address=localhost",)

    def test_certificate(self) -> None:
        """Users and agents get the certificate; the next CA is used once they know it."""
        self.shows(self.company)
        own = self.admin_ca()
        backend = Backend(self.folder, "alpha")
        self.addCleanup(backend.program.stop)
        backend.start()
        self.tower.tower("cluster", "add", "alpha")
        agent = self.tower.agent("alpha", backend.kubeconfig("alpha"))
        self.addCleanup(agent.program.stop)
        agent.program.start()
        jane = self.tower.person("alpha", "jane")
        self.assertEqual((jane.host, jane.ca.encode()), ("localhost", own + self.company))
        wait_for("the tunnel", lambda: jane.get("/version").status == 200)
        following = self.issued("next")
        self.shows(own)  # which all trust
        self.assertEqual(jane.get("/version").status, 200)
        wait_for("the agent", lambda: self.remaining().get("readyAgents") == 1)
        self.assertEqual([each["user"] for each in self.remaining()["kubeconfigs"]], ["jane"])
        self.tower.tower("rotate", "tls-cert-file", "--now", "--yes")
        self.shows(following)
        self.assertEqual(self.tower.person("alpha", "jim").ca.encode(), own + following)
        agent.program.stop()
        agent.program.start()
        jim = self.tower.person("alpha", "jim")
        wait_for("the tunnel", lambda: jim.get("/version").status == 200)
        self.tower.proxy.stop()
        self.tower.start()
        self.shows(following)
        self.assertIn('name="tls-cert-file"', self.tower.admin().get("/metrics").body.decode())

    def shows(self, ca: bytes) -> None:
        """Wait until the front door has a certificate of *ca* for the name."""
        wait_for("the certificate", lambda: self.accepts(ca, "localhost"))

    def admin_ca(self) -> bytes:
        """Return Tower's own CA."""
        return self.tower.ca.encode()

    def remaining(self) -> dict[str, Any]:
        """Return the objects that the rotation waits for; empty: it has not begun, or is finished."""
        page = self.tower.admin().get(f"{_API}/rotations/tls-cert-file")
        found: dict[str, Any] = json.loads(page.body).get("status", {}).get("remaining", {})
        return found


def _theirs(server: Running, case: Case) -> Answer:
    """Return kube-apiserver's answer."""
    return _asked(_port(server), case, Authorization="Bearer s3cret")


def _port(server: Running) -> int:
    return int(server.member.service.rpartition(":")[2])


def _asked(port: int, case: Case, **headers: str) -> Answer:
    context = ssl._create_unverified_context()
    connection = HTTPSConnection(LOOPBACK, port, context=context, timeout=30)
    try:
        connection.request(case.method, case.target, headers={**headers, **case.headers})
        answer = connection.getresponse()
        return Answer(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


def _shown(case: Case, answer: Answer) -> tuple[int, bytes, dict[str, str]]:
    """Return what both must have in common."""
    body = b"" if case.own_body else answer.body
    return answer.status, body, {each: answer.headers[each] for each in FIELDS if each in answer.headers}
