"""Ten thousand hostile requests: Tower itself fails none, no user becomes another, and nothing grows."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import re
import ssl
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from attrs import define, field, frozen
from twisted.logger import Logger

from tests.attacks.hostile_requests import HostileRequest, HostileRequests
from tests.attacks.open_server import OpenServer
from tests.integration import harness
from tests.integration.authorizer_cases import ROLES, binding, role
from tests.integration.person import Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, wait_for
from tests.integration.token_issuer import CLIENT, TokenIssuer
from tests.integration.token_users import CLUSTERS, PODS, anybody, is_authenticated

_log = Logger()

#: The seed of all choices; another one is set by the environment, like the number of requests.
SEED = int(os.environ.get("SEED", "16"))

REQUESTS = int(os.environ.get("REQUESTS", "10000"))
WARM_UP, PARALLEL = 6000, 48

#: Longest time until an answer, s, and until a request counts as one that Tower does not answer.
PATIENCE, QUIET = 30.0, 0.25

#: Growth of the proxy that is not a leak, B: the allocator's reserve, and bounded caches.
MOST_MEMORY = 12 << 20

#: Characters of a signature that identify it, also if a log shortens it.
SIGNATURE = 24

#: The only answer of 5xx that is right: an unknown transfer coding (RFC 9112, section 6.1).
ALLOWED = 501

POLICIES = "/apis/cluster.kubesphere.io/v1alpha1/accesspolicies"
AUDIT = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "RequestResponse"}]}

_HEAD = re.compile(rb"HTTP/1\.1 ([0-9]{3}) .*?\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"(?i)\r\ncontent-length: ([0-9]+)\r\n")
_GONE = (OSError, asyncio.IncompleteReadError, ssl.SSLError)


@frozen
class Door:
    """A port of the proxy.

    :ivar context: None: it has no TLS.
    :ivar cluster: whose own port it is; there, paths have no prefix.
    """

    port: int
    context: ssl.SSLContext | None = None
    cluster: bytes = b""

    def wire(self, request: HostileRequest) -> bytes:
        """Return the bytes of a request for this port."""
        return request.wire.replace(b" /clusters/%b/" % self.cluster, b" /", 1)


@define
class Crowd:
    """Clients of the proxy, each with one connection at a time.

    :ivar doors: in turn for each client.
    :ivar tokens: that were sent.
    :ivar statuses: of all answers; `samples`: a request and its answer, for each status that is wrong.
    :ivar answered: number of answers by port.
    """

    doors: Sequence[Door]
    source: HostileRequests
    tokens: set[str]
    statuses: Counter[int] = field(factory=Counter)
    samples: dict[int, tuple[bytes, bytes]] = field(factory=dict)
    answered: Counter[int] = field(factory=Counter)
    silent: int = 0
    slowest: float = 0.0

    def send(self, count: int) -> None:
        """Send so many requests."""
        asyncio.run(self._send(count))

    async def _send(self, count: int) -> None:
        numbers = iter(range(count))
        doors = itertools.islice(itertools.cycle(self.doors), PARALLEL)
        await asyncio.gather(*(self._client(numbers, door) for door in doors))

    async def _client(self, numbers: Iterator[int], door: Door) -> None:
        streams = None
        for _ in numbers:
            request = self.source.next()
            with contextlib.suppress(*_GONE):
                if streams is None:
                    streams = await asyncio.open_connection(LOOPBACK, door.port, ssl=door.context)
                if await self._exchange(*streams, request, door):
                    continue
            if streams is not None:
                streams[1].transport.abort()
                streams = None
        if streams is not None:
            streams[1].transport.abort()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: HostileRequest, door: Door
    ) -> bool:
        """Send a request; return whether the connection may be used again."""
        began = time.monotonic()
        writer.write(door.wire(request))
        if not request.answers:
            return False
        got = b""
        answers: list[tuple[int, bytes]] = []
        end = 0
        try:
            while len(answers) < request.answers:
                limit = PATIENCE if request.is_held else QUIET * (4 if not answers else 1)
                data = await asyncio.wait_for(reader.read(65_536), limit)
                if not data:
                    return False
                got += data
                while (head := _HEAD.match(got, end)) is not None:
                    length = _LENGTH.search(head[0])
                    stop = head.end() + (0 if length is None or b"HEAD" in request.wire else int(length[1]))
                    if len(got) < stop:
                        break
                    if head[1] != b"100":
                        answers.append((int(head[1]), got[end:stop]))
                    end = stop
        except TimeoutError:
            self.silent += not answers
            return False
        finally:
            self.slowest = max(self.slowest, time.monotonic() - began)
            for status, answer in answers:
                self.statuses[status] += 1
                self.answered[door.port] += 1
                if status >= 500:
                    self.samples.setdefault(status, (request.wire, answer))
        return request.answers == 1 and len(got) == end and b"\r\nConnection: close" not in got


class HostileRequestTests(harness.TowerTestCase):
    """A proxy with an identity provider, a token file, policies, rules and an audit log, and an agent."""

    timeout = 300

    def new_tower(self) -> harness.Tower:
        """Return the proxy with all of it."""
        tower = super().new_tower()
        self.issuer = TokenIssuer(self.folder)
        self.addCleanup(self.issuer.close)
        self.server = OpenServer(self.folder)
        self.addCleanup(self.server.close)
        tokens, policy = self.folder / "tokens.csv", self.folder / "audit.yaml"
        tokens.write_text('file-token,tess,1,"dev"\nother-token,omar,2,"ops"\n')
        policy.write_text(json.dumps(AUDIT))
        self.audit = self.folder / "audit.log"
        self.metrics = free_port()
        tower.proxy = tower.proxy_program(
            harness.PATIENT,
            f"--oidc-issuer-url={self.issuer.url}",
            f"--oidc-client-id={CLIENT}",
            f"--oidc-ca-file={self.issuer.ca}",
            "--oidc-username-prefix=-",
            f"--token-auth-file={tokens}",
            f"--requestheader-client-ca-file={self.issuer.ca}",
            "--requestheader-allowed-names=front",
            "--requestheader-username-headers=X-Remote-User,X-Webauth-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--login-client-id={self.issuer.url}=login",
            "--authorization-mode=RBAC",
            f"--audit-log-path={self.audit}",
            f"--audit-policy-file={policy}",
            f"--metrics-port={self.metrics}",
        )
        return tower

    def setUp(self) -> None:
        """Let tess and jane into alpha, for everything but to act as others."""
        super().setUp()
        self.tower.add("alpha", self.server.kubeconfig)
        self.admin = self.tower.admin()
        subjects = [{"kind": "User", "name": name} for name in ("tess", "jane")]
        self.put(POLICIES, "AccessPolicy", "all", {"subjects": subjects, "clusters": {"names": ["alpha"]}})
        verbs = ["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]
        everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs}  # without impersonate
        paths = {"nonResourceURLs": ["*"], "verbs": ["*"]}
        for kind, value in (
            ("clusterroles", role("all", everything, paths)),
            ("clusterrolebindings", binding("all", "all", *subjects)),
        ):
            self.create(f"{ROLES}/{kind}", value)
        self.client = anybody(self.tower)
        wait_for("the keys", partial(is_authenticated, self.client, CLUSTERS, self.issuer.token()))

    def put(self, path: str, kind: str, name: str, spec: object) -> None:
        """Create an object of a kind that only Tower has."""
        version = "cluster.kubesphere.io/v1alpha1"
        self.create(path, {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec})

    def create(self, path: str, value: object) -> None:
        """Create an object."""
        headers = {"Content-Type": "application/json"}
        answer = self.admin.request("POST", path, body=json.dumps(value).encode(), headers=headers)
        self.assertEqual(answer.status, 201, answer.body)

    def crowd(self, seed: int) -> Crowd:
        """Return clients of all ports, most of them of the front door, with these tokens."""
        issuer, now = self.issuer, int(time.time())
        good = (b"file-token", b"file-token", b"other-token", issuer.token().encode())
        bad = [
            issuer.unsigned(),
            issuer.confused(),
            issuer.token(iss="https://evil.example"),
            issuer.token(aud="another"),
            issuer.token(exp=now - 300),
            issuer.token(nbf=now + 300),
            issuer.token(without="exp"),
            issuer.token(sub="system:admin"),
            issuer.token(sub="a\nb"),
            issuer.token(groups=["system:masters"]),
            issuer.token(pad="a" * 20_000),
        ]
        held = itertools.count()
        tokens = {*bad, *(each.decode() for each in good)}

        def unknown() -> bytes:
            token = issuer.token(header={"kid": f"unknown-{next(held)}"})
            tokens.add(token)
            return token.encode()

        context = ssl.create_default_context(cadata=self.client.ca)
        source = HostileRequests(seed, good, [each.encode() for each in bad], unknown)
        front = Door(self.tower.secure_port, context)
        others = Door(self.tower.cluster_port("alpha"), context, b"alpha"), Door(self.tower.port)
        return Crowd((front, front, front, *others), source, tokens)

    def test_ten_thousand(self) -> None:
        """See the module."""
        proxy = self.tower.proxy
        began = time.monotonic()
        warm = self.crowd(SEED + 1)
        warm.send(WARM_UP)
        wait_for("the end of all connections", lambda: proxy.descriptors() <= 60, 30)
        memory, files = proxy.memory(), proxy.descriptors()
        crowd = self.crowd(SEED)
        crowd.send(REQUESTS)
        spent = time.monotonic() - began

        quick = time.monotonic()
        self.assertEqual(Person(self.client.kubeconfig).get("/version").status, 200)
        headers = {"Authorization": "Bearer file-token"}
        self.assertEqual(self.client.request("GET", PODS, headers=headers).status, 200)
        self.assertLess(time.monotonic() - quick, 2)

        _log.info(
            "{count} hostile requests in {spent:.0f} s, {slowest:.1f} s at most: {statuses}, {silent} silent",
            count=REQUESTS,
            spent=spent,
            slowest=crowd.slowest,
            statuses=sorted(crowd.statuses.items()),
            silent=crowd.silent,
        )
        for each in (warm, crowd):
            wrong = {code: each.samples[code] for code in each.samples if code != ALLOWED}
            self.assertEqual(wrong, {}, f"seed {SEED}")
        output = proxy.output()
        for word in ("Traceback", "Unhandled", "CRITICAL"):
            self.assertNotIn(word, output)
        self.assertEqual((set(self.server.users), set(self.server.groups)), ({"tess", "jane"}, {"dev"}))
        self.assertGreater(sum(crowd.statuses.values()), REQUESTS * 0.8)
        self.assertLess(crowd.silent, REQUESTS * 0.03)
        self.assertLess(crowd.slowest, PATIENCE)
        for door in crowd.doors:
            self.assertGreater(crowd.answered[door.port], REQUESTS * 0.05, door)
        wait_for("the end of all connections", lambda: proxy.descriptors() <= files + 2, 30)
        self.assertLess(proxy.memory() - memory, MOST_MEMORY)
        self.assert_no_token(warm.tokens | crowd.tokens)

    def assert_no_token(self, tokens: set[str]) -> None:
        """Check that no log contains a token or a signature, as they were sent or decoded."""
        audit = "".join(each.read_text() for each in self.folder.glob("audit*.log"))
        logs = [audit, self.tower.proxy.output(), self.tower.agents[0].program.output()]
        self.assertGreater(audit.count('"tess"'), REQUESTS * 0.05)
        self.assertIn(" 401 ", logs[1])
        for token in tokens:
            coded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
            signature = token.rpartition(".")[2][:SIGNATURE]
            for secret in filter(None, (token, signature, coded, coded[-SIGNATURE:])):
                for log in logs:
                    self.assertNotIn(secret, log)
