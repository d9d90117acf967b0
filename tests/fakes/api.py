"""Tower's own API over a store in memory, for tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attrs import define, field
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import NOW, authority
from tower.clusters.node_status import SSHStatus
from tower.clusters.policies.default_roles import ensure_default_roles
from tower.clusters.policies.policy_index import PolicyIndex
from tower.clusters.records import Records
from tower.kube.status import StatusError
from tower.nodes.record_files import NodeFiles
from tower.rotation.assembly import ProxyKeys, rotations_of
from tower.store import MemoryStore
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault
from tower.tunnels import Tunnels
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.access.authorization.own_rbac import OwnRbac
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call
from tower.web.api.issuer import Issuer, Published
from tower.web.api.resources import tower_api
from tower.web.outcome import Outcome, Response, StreamingResponse

BASE = "/apis/cluster.kubesphere.io/v1alpha1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
HOST_KEY = "SHA256:" + "h" * 43


@define(eq=False)
class Stream:
    """The body stream of a watch.

    :ivar full: while true, `write` answers False.
    """

    lines: list[dict[str, Any]] = field(factory=list)
    full: bool = False
    finished: bool = False
    on_drained: Callable[[], None] | None = None
    on_closed: Callable[[], None] | None = None

    def write(self, data: bytes) -> bool:
        """Take whole lines."""
        assert data.endswith(b"\n")
        self.lines += [json.loads(line) for line in data.splitlines()]
        return not self.full

    def finish(self) -> None:
        """Record the end."""
        self.finished = True

    def taken(self) -> list[tuple[str, str]]:
        """Return type and name of the events since the last call."""
        events = [(line["type"], _name(line["object"])) for line in self.lines]
        self.lines.clear()
        return events

    def drain(self) -> None:
        """Make room again."""
        self.full = False
        assert self.on_drained is not None
        self.on_drained()


def _name(item: dict[str, Any]) -> str:
    if item["kind"] == "Table":
        return str(item["rows"][0]["cells"][0])
    return str(item.get("metadata", {}).get("name", ""))


class ApiTestCase(SynchronousTestCase):
    """Gives each test its own Tower."""

    published = Published("0.0.0.0", "tower.example.org", 8443, 8080)
    ports: range | None = range(6000, 6010)
    lets_old_agents_in = True
    node_files = Path("/")
    user: tuple[str, tuple[str, ...]] = ("jane", ("tower:admins",))
    rules: ModeAuthorization | None = None

    def setUp(self) -> None:
        """Make the API."""
        self.clock = Clock()
        self.clock.advance(NOW)
        clock: Any = self.clock
        self.store = MemoryStore()
        self.vault = Vault(Path(self.mktemp()), clock.seconds)
        self.records = records = Records.of(self.store, self.vault, self.ports, clock, 86400.0)
        self.accesses, self.clusters = records.member_credentials, records.clusters
        self.ssh: dict[str, SSHStatus] = {}
        self.credentials, self.tokens = records.credentials, records.tokens
        self.imports = records.imports
        self.v1_tokens, self.agent_keys, self.events = records.v1_tokens, records.agent_keys, records.events
        self.tunnels = Tunnels(clock, clock.seconds)
        self.users, self.serving = authority("users"), authority("serving")
        self.issuer = Issuer(
            self.clusters,
            self.credentials,
            self.tokens,
            self.v1_tokens if self.lets_old_agents_in else None,
            self.users,
            self.serving,
            lambda: [HOST_KEY],
            self.published,
            clock,
            records.imports,
        )
        state = StateDir(Path(self.mktemp()))
        self.keys = ProxyKeys.load(state, None, NOW)
        self.rotations = rotations_of(
            self.keys,
            ServingCertificate(state, self.keys.authority.current, self.keys.users, ["a"], clock.seconds),
            records,
            self.tunnels,
            clock,
            self.renew_admin,
            lambda credential: credential.user == "tower-admin",
        )
        self.rbac_objects = records.rbac
        self.rights = OwnRights(OwnRbac(records.rbac))
        self.api = tower_api(
            records,
            self.tunnels,
            self.issuer,
            clock,
            self.ssh.get,
            NodeFiles(self.node_files).check,
            self.rotations,
            PolicyIndex(records.policies),
            self.rights,
            rules=self.rules,
        )

    def add_default_roles(self) -> None:
        """Add the roles and bindings that a start of Tower adds."""
        self.successResultOf(Deferred.fromCoroutine(ensure_default_roles(self.rbac_objects)))

    async def renew_admin(self) -> None:
        """Write no kubeconfig."""

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str = "application/json",
        content: str = "application/json",
        **query: str,
    ) -> Outcome:
        """Return the answer to a request, or raise its error; *body* is JSON, or raw bytes."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        unread = [raw]  # a body that follows its head can be read once
        segments = tuple(path.split("/")[1:])
        call = Call(
            method,
            segments,
            query,
            accept,
            content,
            lambda: succeed(unread.pop() if unread else b""),
            *self.user,
            "kubectl/v1",
        )
        results: list[Outcome] = []
        failures: list[Failure] = []
        Deferred.fromCoroutine(self.api.answer(call)).addCallbacks(results.append, failures.append)
        for _ in range(1000):  # long work is done in pieces
            if results or failures:
                break
            self.clock.advance(0)
        for failure in failures:
            failure.raiseException()
        (result,) = results
        return result

    def get(self, path: str, **more: Any) -> dict[str, Any]:
        """Return the object at *path*."""
        return decoded(self.ask("GET", path, **more))

    def refused(self, code: int, method: str, path: str, body: Any = None, **more: Any) -> StatusError:
        """Return the error of a request, which must have *code*."""
        with self.assertRaises(StatusError) as caught:
            self.ask(method, path, body, **more)
        refusal: StatusError = caught.exception
        self.assertEqual(refusal.code, code, str(refusal))
        return refusal

    def stays(self, path: str) -> None:
        """Check that a dry run of a delete changes nothing, and that its options are checked."""
        self.ask("DELETE", path, {"kind": "DeleteOptions", "dryRun": ["All"]})
        self.ask("DELETE", path, dryRun="All")
        for code, body, query in (
            (422, {"dryRun": ["Some"]}, {}),
            (422, {"dryRun": ""}, {}),
            (422, None, {"dryRun": "Some"}),
            (422, None, {"dryRun": ""}),
            (409, {"preconditions": {"uid": "u"}}, {}),
        ):
            self.refused(code, "DELETE", path, body, **query)

    def watch(self, **query: str) -> Stream:
        """Return the stream of a new watch on the clusters."""
        accept = query.pop("accept", "application/json")
        outcome = self.ask("GET", f"{BASE}/clusters", accept=accept, watch="1", **query)
        assert isinstance(outcome, StreamingResponse)
        stream = Stream()
        outcome.start(stream)
        return stream

    def add(self, name: str, **more: Any) -> Any:
        """Add a cluster."""
        return self.successResultOf(self.clusters.add(name, **more))


def decoded(outcome: Outcome) -> dict[str, Any]:
    """Return the object in a `Response`."""
    assert isinstance(outcome, Response), outcome
    value: dict[str, Any] = json.loads(outcome.body)
    return value
