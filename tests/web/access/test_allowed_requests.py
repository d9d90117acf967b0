"""Tests of `tower.web.access.allowed_requests` with a real gateway, router, filters, rules and audit log."""

from __future__ import annotations

import gc
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import Lines, policy_of
from tests.fakes.gateway import FakeUser, Kit, as_sessions, get, ok
from tests.fakes.policies import Policies, spec_of
from tower.clusters import Clusters
from tower.kube.access.rbac import Binding, RbacRole
from tower.web.access import allowed_requests
from tower.web.access.admission_cache import AdmissionGeneration
from tower.web.access.allowed_requests import Allowed, AllowedRequests
from tower.web.access.audit.audit import DELAY, MANY, Audit
from tower.web.access.audit.destinations import BATCH, BLOCKING, Destination
from tower.web.access.audit.formats import JSON, LEGACY
from tower.web.access.authentication.identity import Identity
from tower.web.access.authorization.decision import Answer, Decision
from tower.web.access.authorization.decision_cache import DecisionCache
from tower.web.access.authorization.mode_filter import ModeAuthorization
from tower.web.access.authorization.rbac_index import RbacIndex
from tower.web.access.filters import authentication_chain, user_chain
from tower.web.gateway.gateway import Gateway
from tower.web.ports.router import FrontDoor

PODS = b"/clusters/alpha/api/v1/namespaces/a/pods"
WATCH = PODS + b"?watch=1"
STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Users:
    """Authenticates a user by the token."""

    def authenticate(self, presented: Any) -> Identity:
        """Return the user."""
        name = presented.bearer.decode()
        return Identity(name, ("dev",), method="test", key=f"test:{name}")

    def check(self, identity: Identity) -> None:
        """Accept it."""


class CountedRbac:
    """RBAC that counts its decisions."""

    def __init__(self) -> None:
        self.index = RbacIndex()
        self.count = 0
        self.may_be_kept = True

    def authorize(self, attributes: Any) -> Answer:
        """Return the decision."""
        self.count += 1
        found = self.index.authorize(attributes)
        return Decision(found.ruling, found.reason, may_be_kept=self.may_be_kept)

    def allow(self, *verbs: str) -> None:
        """Let the group dev do this to pods."""
        rule = {"apiGroups": [""], "resources": ["pods", "pods/exec"], "verbs": list(verbs)}
        self.index.put_role(RbacRole.of({"metadata": {"name": "r"}, "rules": [rule]}))
        group = "rbac.authorization.k8s.io"
        reference = {"apiGroup": group, "kind": "ClusterRole", "name": "r"}
        subjects = [{"kind": "Group", "name": "dev"}]
        self.index.put_binding(
            Binding.of({"metadata": {"name": "b"}, "roleRef": reference, "subjects": subjects})
        )


class DoorTestCase(SynchronousTestCase):
    """A front door with access policies, rules and an audit log."""

    mode, form = BATCH, JSON

    def setUp(self) -> None:
        """Admit the group dev to the cluster alpha, and let it read pods."""
        self.policies = Policies()
        self.policies.put("p", spec_of("dev"))
        self.clock: Any = self.policies.clock
        clusters = Clusters(self.policies.store, None, self.clock)
        self.successResultOf(clusters.add("alpha"))
        self.rbac = CountedRbac()
        self.rbac.allow("get", "list", "watch")
        self.cache = DecisionCache(self.rbac)
        self.rules = ModeAuthorization(self.cache, "RBAC", self.clock)
        self.lines = Lines()
        destination = Destination("log", self.lines, self.form, self.mode)
        self.audit = Audit([destination], self.clock.seconds, clock=self.clock)
        users: Any = Users()
        chain = user_chain(users, clusters.get, None, self.policies.entry, self.rules)
        self.generation = AdmissionGeneration(self.policies.store, self.clock.seconds, chain.rules)
        alone = authentication_chain(users)
        front = FrontDoor(chain, alone, lambda *_: None, lambda *_: None, self.generation)  # type: ignore[arg-type]
        self.kit = Kit()
        sessions = as_sessions(self.kit.sessions)
        self.kit.gateway = Gateway(self.clock, front, self.kit.pool, sessions, audit=self.audit)
        self.user = self.kit.connect()

    def ask(self, target: bytes = PODS, *fields: bytes, user: FakeUser | None = None, **more: Any) -> int:
        """Send a request of jane's; return the status."""
        user = user or self.user
        bearer = more.pop("bearer", b"jane")
        answer = more.pop("answer", ok())
        user.deliver(get(target, b"Authorization: Bearer " + bearer, *fields, **more))
        if self.kit.pipe.taken():
            self.kit.pipe.deliver(answer)
        return int(user.taken().split(b" ", 2)[1])

    def events(self) -> list[dict[str, Any]]:
        """Return the new events."""
        self.audit.write()
        return self.lines.events()


class RepetitionTests(DoorTestCase):
    """Equal requests."""

    def test_decided_once(self) -> None:
        """A request that equals an allowed one, of this or another connection, is not decided on again."""
        for _ in range(4):
            self.assertEqual(self.ask(), 200)
        self.user = self.kit.connect()
        self.ask()
        self.assertEqual(self.rbac.count, 1)
        with patch.object(self.rules, "decide"), patch.object(self.cache, "authorize") as asked:
            for _ in range(3):
                self.assertEqual(self.ask(), 200)
        asked.assert_not_called()

    def test_same_events(self) -> None:
        """The events of equal requests differ by ID and times only."""
        seen = []
        for number in range(4):
            self.clock.advance(1.5)
            self.assertEqual(self.ask(PODS, b"User-Agent: kubectl", answer=ok()), 200)
            events = self.events()
            self.assertEqual([each["stage"] for each in events], ["RequestReceived", "ResponseComplete"])
            first, last = events
            self.assertEqual(first.pop("auditID"), last.pop("auditID"))
            self.assertEqual(first["requestReceivedTimestamp"], last["stageTimestamp"])
            for each in events:
                del each["requestReceivedTimestamp"], each["stageTimestamp"]
            if number:  # the first request of a connection has its first event before the admission
                seen.append(events)
        self.assertEqual(seen[1:], seen[:1] * 2)
        self.assertEqual(seen[0][1]["annotations"]["authorization.k8s.io/decision"], "allow")
        self.assertEqual(self.audit.levels["Metadata"], 4)

    def test_status(self) -> None:
        """Each event has the status of its own answer."""
        codes = []
        for code in (b"200 OK", b"200 OK", b"200 OK", b"404 Not Found", b"500 Error", b"200 OK"):
            self.ask(answer=b"HTTP/1.1 %b\r\nContent-Length: 0\r\n\r\n" % code)
            codes.append(self.events()[-1]["responseStatus"]["code"])
        self.assertEqual(codes, [200, 200, 200, 404, 500, 200])

    def test_member_status(self) -> None:
        """A Status of the member is in the event of its own request only."""
        status = b'{"kind":"Status","reason":"NotFound","message":"no pods","code":404}'
        answer = (
            b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(status), status)
        )
        for expected, each in ((None, ok()), (None, ok()), ("no pods", answer), (None, ok())):
            self.ask(answer=each)
            self.assertEqual(self.events()[-1]["responseStatus"].get("message"), expected)

    def test_ids(self) -> None:
        """Each request has its own ID, and that of a client is used."""
        for _ in range(3):
            self.ask()
        self.ask(PODS, b"Audit-Id: own")
        self.ask(PODS, b"Audit-Id: own")
        ids = [each["auditID"] for each in self.events()[::2]]
        self.assertEqual((len(set(ids)), ids[3:]), (4, ["own", "own"]))

    def test_same_ids(self) -> None:
        """The cluster gets the ID of an equal request, and so does the user in an answer that Tower makes."""
        self.ask()
        self.events()
        for _ in range(2):
            self.user.deliver(get(PODS, b"Authorization: Bearer jane"))
            head = self.kit.pipe.taken()
            self.kit.pipe.deliver(ok())
            first, last = self.events()
            self.assertIn(b"\r\nAudit-Id: %b\r\n\r\n" % first["auditID"].encode(), head)
            self.assertEqual(first["auditID"], last["auditID"])
        self.user.taken()
        self.user.deliver(get(PODS, b"Authorization: Bearer jane"))
        self.kit.pipe.deliver(b"no answer\r\n\r\n")
        answer, (first, last) = self.user.taken(), self.events()
        self.assertIn(b"\r\nAudit-Id: %b\r\n" % first["auditID"].encode(), answer)
        self.assertEqual((first["auditID"], last["responseStatus"]["code"]), (last["auditID"], 502))

    def test_shared(self) -> None:
        """Requests of a user for several objects share what does not depend on the object."""
        for name in (b"a", b"b") * 3:
            self.ask(PODS + b"/" + name)
        one, other = (each.known for each in self.user_requests().values())
        self.assertIs(one.shared, other.shared)
        names = [each["objectRef"]["name"] for each in self.events()]
        self.assertEqual(names, ["a", "a", "b", "b"] * 3)

    def test_gone(self) -> None:
        """If the client disconnects, the event has the cause."""
        self.ask()
        self.ask()
        self.user.deliver(get(PODS, b"Authorization: Bearer jane"))
        self.user.lose()
        self.assertEqual(self.events()[-1]["responseStatus"]["message"], "client disconnected")

    def test_others(self) -> None:
        """Other methods, targets, user agents and users have their own decisions and events."""
        for _ in range(2):
            self.ask(PODS, b"User-Agent: a")
        self.ask(PODS, b"User-Agent: b")
        self.assertEqual(self.events()[-1]["userAgent"], "b")
        self.assertEqual(self.ask(PODS, method=b"DELETE"), 403)
        self.assertEqual(self.ask(PODS.replace(b"pods", b"secrets")), 403)
        self.ask(PODS, b"User-Agent: a", bearer=b"joe")
        self.assertEqual(self.events()[-1]["user"]["username"], "joe")
        self.assertEqual(self.ask(PODS, b"User-Agent: a", b"Impersonate-User: root"), 403)

    def test_long_targets(self) -> None:
        """Long targets are not kept."""
        for _ in range(3):
            self.ask(PODS + b"?limit=" + b"1" * 300)
        self.assertEqual(self.user_requests(), {})

    def user_requests(self) -> Any:
        """Return what is kept for the connection."""
        channel: Any = next(iter(self.kit.gateway._channels))
        return channel.admission._allowed


class ChangeTests(DoorTestCase):
    """Changes count at once."""

    def setUp(self) -> None:
        """Repeat a request."""
        super().setUp()
        for _ in range(3):
            self.assertEqual(self.ask(), 200)
        self.events()

    def test_rules(self) -> None:
        """A change of the rules counts for the next request."""
        self.rbac.allow("watch")
        self.cache.clear()
        self.assertEqual(self.ask(), 403)
        self.rbac.allow("list")
        self.cache.clear()
        self.assertEqual(self.ask(), 200)

    def test_policies(self) -> None:
        """A change of the access policies counts for the next request."""
        self.policies.put("p", spec_of("dev", names={"user": "co:{user}"}))
        self.ask()
        self.ask()
        notes = [each["annotations"]["cluster.kubesphere.io/member-user"] for each in self.events()[1::2]]
        self.assertEqual(notes, ["co:jane"] * 2)
        self.policies.drop("p")
        self.assertEqual(self.ask(), 403)

    def test_audit_policy(self) -> None:
        """A change of the audit policy counts for the next request."""
        self.audit.use(policy_of("rules: [{level: None}]"))
        for _ in range(3):
            self.ask()
        self.assertEqual((self.events(), self.audit.levels["None"]), ([], 3))
        self.audit.use(policy_of("rules: [{level: Metadata, omitStages: [RequestReceived]}]"))
        for _ in range(3):
            self.ask()
        self.assertEqual([each["stage"] for each in self.events()], ["ResponseComplete"] * 3)
        self.audit.use(policy_of("rules: [{level: Metadata, omitStages: [ResponseComplete]}]"))
        for _ in range(3):
            self.ask()
        self.assertEqual([each["stage"] for each in self.events()], ["RequestReceived"] * 3)

    def test_time(self) -> None:
        """A policy whose time window ends does not permit equal requests any more."""
        window = {"from": "00:00", "to": "23:00", "timeZone": "UTC"}
        self.policies.put("p", spec_of("dev", timeWindow=window))
        self.assertEqual([self.ask(), self.ask(), self.ask()], [200] * 3)
        self.clock.advance(86400 - self.clock.seconds() % 86400 - 1800)
        self.assertEqual(self.ask(), 403)

    def test_sweep(self) -> None:
        """A watch that equals an earlier one ends when the rules change, on each connection."""
        users = [self.kit.connect(), self.kit.connect()]
        for user in users:
            self.ask(user=user)
            self.ask(WATCH, user=user, answer=STREAM)
        self.rbac.allow("list")
        self.cache.clear()
        self.successResultOf(Deferred.fromCoroutine(self.rules.sweep()))
        self.assertEqual([user.aborted for user in users], [True] * 2)

    def test_undecided(self) -> None:
        """A decision that may change at any time is made for each request."""
        self.rbac.may_be_kept = False
        self.cache.clear()
        self.rbac.count = 0
        for _ in range(3):
            self.ask()
        self.assertEqual(self.rbac.count, 3)


class BatchTests(DoorTestCase):
    """Batches of events."""

    def test_delay(self) -> None:
        """Events are made after a short time, or when there are many, in their order."""
        self.ask()
        self.ask()
        before = len(self.lines)
        self.clock.advance(DELAY)
        self.assertEqual((before < 4, len(self.lines), self.lines.hastened), (True, 4, 1))
        for _ in range(MANY):
            self.ask()
        self.assertEqual(len(self.lines), 4 + 2 * MANY - 1)
        self.clock.advance(DELAY)
        stages = [stage for stage, _ in self.lines.stages()]
        self.assertEqual(stages, ["RequestReceived", "ResponseComplete"] * (2 + MANY))

    def test_long(self) -> None:
        """A request that outlasts a batch has its first event in that one, and its last one in the next."""
        self.ask()
        self.audit.write()
        self.user.deliver(get(PODS, b"Authorization: Bearer jane"))
        other = self.kit.connect()
        self.ask(user=other)
        pipe = self.kit.tunnel.pipes[0]
        first = self.events()[2]
        self.clock.advance(1)
        pipe.deliver(ok())
        self.assertEqual(len(self.lines), 0)
        self.clock.advance(DELAY)
        (last,) = self.lines.events()
        self.assertEqual((first["stage"], last["stage"]), ("RequestReceived", "ResponseComplete"))
        for key in ("auditID", "requestReceivedTimestamp"):
            self.assertEqual(first[key], last[key])
        self.assertNotEqual(last["requestReceivedTimestamp"], last["stageTimestamp"])

    def test_order(self) -> None:
        """An event that is made at once comes after those that wait."""
        self.ask()
        self.ask()
        self.audit.put(b'{"stage":"other"}\n')
        self.assertEqual([each["stage"] for each in self.lines.events()][-1], "other")
        self.assertEqual(self.audit.events, 5)


class BlockingTests(DoorTestCase):
    """Modes that wait for the log."""

    mode = BLOCKING

    def test_at_once(self) -> None:
        """Each event is made at once."""
        for _ in range(3):
            self.ask()
            self.assertEqual(len(self.lines.events()), 2)


class LegacyTests(DoorTestCase):
    """Lines of kube-apiserver 1.5."""

    form = LEGACY

    def test_at_once(self) -> None:
        """Each line is made at once."""
        for number in range(3):
            self.ask()
            self.assertEqual(len(self.lines), 2 * (number + 1))


class BoundTests(SynchronousTestCase):
    """Memory."""

    def test_bounds(self) -> None:
        """A user keeps a bounded number of requests, and so do all together; none without a connection."""
        kept, allowed = AllowedRequests(), Allowed(None, None, 0, None)
        with patch.multiple(allowed_requests, MOST=4, TOTAL=10):
            users = [kept.of(name) for name in ("a", "b", "c", "d")]
            self.assertIs(kept.of("a"), users[0])
            for number in range(100):
                for user in users:
                    kept.keep(user, b"GET", b"/%d" % number, allowed)
                self.assertLessEqual(max(map(len, users)), 4)
                self.assertLessEqual(sum(map(len, users)), 10)
            kept.clear()
            self.assertEqual(sum(map(len, users)), 0)
            del users, user
            gc.collect()
            self.assertEqual(len(kept._users), 0)
