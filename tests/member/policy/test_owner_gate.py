"""Tests of `tower.member.policy.owner_gate`."""

from __future__ import annotations

import gc
import json
from datetime import UTC, datetime

from twisted.logger import capturedLogs, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.pipes import FakePipe
from tests.fakes.relay import relayed
from tower.clusters.policies.access_policy import Subject
from tower.clusters.policies.time_window import TimeWindow
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy, Refusal, Rewritten, allow_member_tokens
from tower.member.apiserver_relay import Rewrite
from tower.member.policy.owner_gate import KINDS_LIMIT, OwnerGate
from tower.member.policy.owner_policy import OwnerPolicy, OwnerRule
from tower.member.targets import TargetRefused
from tower.net.pipes import NO_RECEIVER, join
from tower.reactor.log_batch import FEW

API_SERVER = Upstream(b"", b"Host: kubernetes\r\n", b"Authorization: Bearer s3cret\r\n")
POD = "/api/v1/namespaces/dev/pods/shell"
DEV = [Subject("Group", "dev")]
MONDAY = datetime(2026, 11, 23, 12, tzinfo=UTC).timestamp()
NOON = TimeWindow((0,), 11 * 60, 13 * 60, "UTC")


def head(
    target: str = POD, method: str = "GET", user: str = "jane", *fields: str, framing: str = ""
) -> bytes:
    """Return the head of a request in the proxy's form, of a user of the group dev."""
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [framing] * bool(framing)
    lines += [f"Impersonate-User: {user}", "Impersonate-Group: dev", "Host: h", *fields, "", ""]
    return "\r\n".join(lines).encode()


def open_pipe() -> FakePipe:
    """Return a channel whose end nothing observes."""
    pipe = FakePipe()
    pipe.receiver = NO_RECEIVER
    return pipe


class OwnerGateTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a gate without a policy."""
        self.now = MONDAY
        self.gate = OwnerGate("alpha", lambda: self.now, {"tower-system"})
        self.policy = HeadPolicy(lambda: API_SERVER, member_tokens=allow_member_tokens)
        self.channel = open_pipe()
        self.rewrite: Rewrite = self.gate.guard(self.channel, self.policy.rewrite)

    def use(self, *rules: OwnerRule) -> None:
        """Use a policy."""
        self.gate.use(OwnerPolicy(rules))

    def passes(self, data: bytes) -> Rewritten:
        """Check that a head passes."""
        rewritten = self.rewrite(data)
        assert isinstance(rewritten, Rewritten), rewritten
        return rewritten

    def refused(self, data: bytes) -> str:
        """Return why a head is rejected, without the prefix."""
        rewritten = self.rewrite(data)
        assert isinstance(rewritten, Refusal)
        prefix, _, text = rewritten.text.partition("cluster alpha: ")
        self.assertEqual(prefix, "forbidden by the owner of ")
        return text

    def test_levels(self) -> None:
        """Requests need a rule whose level permits them; the head is the same as without a policy."""
        self.use(OwnerRule(access="read-only"))
        self.assertEqual(self.passes(head()), self.policy.rewrite(head()))
        self.assertEqual(
            self.refused(head(method="DELETE", framing="Content-Length: 2")),
            'user "jane" must not delete pods in namespace "dev": the agent\'s policy permits only read-only '
            "access",
        )
        upgrade = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
        self.assertIn(
            "must not create pods/exec", self.refused(head(f"{POD}/exec", "POST", "jane", *upgrade))
        )
        self.assertIn("must not get pods", self.refused(head(POD, "GET", "jane", *upgrade)))
        self.use(OwnerRule(access="no-exec"))
        self.passes(head(method="DELETE", framing="Transfer-Encoding: chunked"))
        self.assertIn("only no-exec access", self.refused(head(f"{POD}/attach", "POST", "jane", *upgrade)))
        self.assertEqual(self.gate.refused, 4)
        self.assertEqual(self.policy.refused, 0)

    def test_form(self) -> None:
        """A head that is not in the proxy's form is rejected as without a policy."""
        self.use(OwnerRule())
        rewritten = self.rewrite(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert isinstance(rewritten, Refusal)
        self.assertIn("impersonates no user", rewritten.text)

    def test_namespaces(self) -> None:
        """A rule for namespaces permits their objects and discovery, and nothing else."""
        self.use(OwnerRule(DEV, namespaces=frozenset({"dev", "test"})))
        for target in (POD, "/api/v1/namespaces/test/pods?watch=1", "/apis", "/version"):
            self.passes(head(target))
        self.passes(head(method="DELETE"))
        text = self.refused(head("/api/v1/pods"))
        self.assertIn("permits only full access in the namespaces dev, test", text)
        for target in (
            "/api/v1/namespaces/other/pods",
            "/api/v1/nodes",
            "/metrics",
            "/api/v1//namespaces/dev/pods",
        ):
            self.refused(head(target))
        self.refused(head("/api/v1/namespaces/dev", "DELETE"))

    def test_users(self) -> None:
        """Rules can be for users, groups, service accounts and claims; a token of the member has no user."""
        self.use(OwnerRule([Subject("User", "joe"), Subject("Claim", "team/a", value="ops")]))
        self.passes(head(user="joe"))
        self.assertEqual(self.refused(head()), 'no rule of the agent\'s policy is for user "jane"')
        claim = b"Impersonate-User: jane\r\nImpersonate-Extra-Team%2fA: ops\r\n"
        self.passes(head().replace(b"Impersonate-User: jane\r\n", claim))
        for key in (b"Team%2fA%zz", b"Team%2f%41", b"Team%ff%2fa"):  # the API server reads other keys
            self.refused(head().replace(b"Impersonate-User: jane\r\n", claim.replace(b"Team%2fA", key)))
        self.use(OwnerRule([Subject("Claim", "team%2fa%zz", value="ops")]))
        self.passes(head().replace(b"Impersonate-User: jane\r\n", claim.replace(b"Team%2fA", b"Team%2fA%zz")))
        own = b"GET /api HTTP/1.1\r\nAuthorization: Bearer t\r\nHost: h\r\n\r\n"
        self.assertIn("for a request with a token of this cluster's own", self.refused(own))
        self.use(OwnerRule([Subject("Group", "system:authenticated")]), OwnerRule(access="read-only"))
        self.passes(head(method="DELETE"))
        self.passes(own)

    def test_hostile_names(self) -> None:
        """The text of an error is printable and has a limited length."""
        self.use()
        text = self.refused(head(user="x\u202e" + "y" * 5000))
        self.assertTrue(text.isprintable())
        self.assertLess(len(text), 300)

    def test_time(self) -> None:
        """A rule counts within its window; its end cuts what it permitted, also after a step back."""
        self.use(OwnerRule(window=NOON))
        self.passes(head())
        self.now += 30 * 60
        self.gate.look()
        self.assertFalse(self.channel.aborted)
        self.now += 3600
        self.gate.look()
        self.assertTrue(self.channel.aborted)
        self.assertEqual(
            self.refused(head()), 'the agent\'s policy permits user "jane" only Mon 11:00-13:00 UTC'
        )
        self.now -= 3600
        self.passes(head())

    def test_protected_namespace(self) -> None:
        """Only a rule that names the agent's namespace permits changes there."""
        agent = "/apis/apps/v1/namespaces/tower-system/deployments/tower-agent"
        self.use(OwnerRule())
        self.passes(head(agent))
        self.assertIn("the agent or its policy is in this namespace", self.refused(head(agent, "PATCH")))
        self.refused(head("/api/v1/namespaces/tower-system/pods/a/exec?command=sh", "POST"))
        self.passes(head(method="DELETE"))
        self.use(OwnerRule(), OwnerRule(namespaces=frozenset({"tower-system"})))
        self.passes(head(agent, "PATCH"))

    def test_protected_by_any_path(self) -> None:
        """A path that only the API server reads as one of that namespace changes nothing there either."""
        self.use(OwnerRule(), OwnerRule(namespaces=frozenset({"tower-system"})))
        for target, method in (
            ("/api/v1/namespaces/tower-system%2Fconfigmaps%2Fagent-policy", "PUT"),
            ("/api/v1/namespaces%2ftower-system/configmaps/agent-policy", "DELETE"),
            ("/api%2Fv1/namespaces/tower-system/pods/agent/exec", "GET"),
            ("/api/v1/namespaces/tower-system", "DELETE"),
            ("/api/v1/namespaces/tower-system/finalize", "PUT"),
        ):
            self.assertIn("which no rule permits", self.refused(head(target, method)), target)
        self.passes(head("/api/v1/namespaces/dev%2Fconfigmaps%2Fa", "PUT"))
        self.passes(head("/api/v1/namespaces/dev", "DELETE"))

    def test_without_policy(self) -> None:
        """Without a policy so far, everything is forbidden."""
        self.assertIn("has not read its policy yet", self.refused(head("/version")))
        error = self.assertRaises(TargetRefused, self.gate.check_target, "db")
        self.assertIn("has not read its policy yet", str(error))

    def test_cut(self) -> None:
        """A change cuts the channels with a request that it forbids, also if others follow it."""
        other = open_pipe()
        rewrite = self.gate.guard(other, self.policy.rewrite)
        self.use(OwnerRule())
        self.passes(head("/api/v1/secrets?watch=1"))
        self.passes(head("/version"))
        rewrite(head())
        with capturedLogs() as logs:
            self.use(OwnerRule(namespaces=frozenset({"dev"})))
        self.assertTrue(self.channel.aborted)
        self.assertFalse(other.aborted)
        self.assertEqual([log["count"] for log in logs if "count" in log], [1])
        self.use()
        self.assertTrue(other.aborted)

    def cut(self, *rules: OwnerRule) -> list[str]:
        """Use a policy and return why it cut streams, in the order of the log."""
        with capturedLogs() as logs:
            self.use(*rules)
        return [log["text"] for log in logs if "text" in log]

    def test_reason_of_a_cut(self) -> None:
        """The log names the user and a request that is no longer permitted, or the target."""
        self.use(OwnerRule(), OwnerRule(targets=("db",)))
        self.passes(head())
        self.passes(head(f"{POD}/exec", "POST", "joe", "Connection: Upgrade", "Upgrade: SPDY/3.1"))
        self.assertEqual(self.gate.watch_stream(open_pipe(), "db"), "")
        only = "the agent's policy permits only"
        self.assertEqual(
            self.cut(OwnerRule(access="no-exec")),
            [
                f'user "joe" must not create pods/exec in namespace "dev": {only} no-exec access',
                "no rule of the agent's policy permits streams to db",
            ],
        )

    def test_reasons_of_many_cuts(self) -> None:
        """A change that cuts many streams logs a limited number of reasons, and the number of streams."""
        self.use(OwnerRule())
        for number in range(FEW + 3):
            self.gate.guard(open_pipe(), self.policy.rewrite)(head(user=f"u{number}\u202e"))
        with capturedLogs() as logs:
            reasons = self.cut()
        self.assertEqual(len(reasons), FEW)
        self.assertTrue(all(text.isprintable() for text in reasons))
        self.assertEqual([log["count"] for log in logs if "count" in log], [FEW + 3])
        self.assertTrue(formatEvent(logs[-1]).startswith(f"total: {FEW + 3} streams cut, "))

    def test_many_kinds(self) -> None:
        """A channel with too many kinds of requests is cut at any change."""
        self.use(OwnerRule())
        for number in range(KINDS_LIMIT + 1):
            self.passes(head(f"/api/v1/namespaces/n{number}/pods"))
        text = f"too many kinds of requests (more than {KINDS_LIMIT}) to check again"
        self.assertIn(text, *self.cut(OwnerRule(), OwnerRule()))
        self.assertTrue(self.channel.aborted)

    def test_upgrade(self) -> None:
        """An exec in progress is cut at both ends, and an ended one is forgotten."""
        self.use(OwnerRule())
        upstream, channel = FakePipe(), FakePipe()
        relayed(channel, upstream, self.gate.guard(channel, self.policy.rewrite))
        channel.deliver(head(f"{POD}/exec", "POST", "jane", "Connection: Upgrade", "Upgrade: SPDY/3.1"))
        upstream.deliver(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        channel.deliver(b"raw")
        self.assertTrue(upstream.taken().endswith(b"raw"))
        gc.collect()
        self.use(OwnerRule(access="no-exec"))
        self.assertTrue(channel.aborted)
        channel.lose()
        self.assertTrue(upstream.aborted)

    def test_answer(self) -> None:
        """The refusal is a Status, and the request's body does not reach the API server."""
        self.use(OwnerRule(access="read-only"))
        upstream, channel = FakePipe(), FakePipe()
        relayed(channel, upstream, self.gate.guard(channel, self.policy.rewrite))
        channel.deliver(head(method="DELETE", framing="Content-Length: 2") + b"{}")
        answer = channel.taken()
        self.assertTrue(answer.startswith(b"HTTP/1.1 403 "))
        status = json.loads(answer.partition(b"\r\n\r\n")[2])
        self.assertEqual((status["reason"], status["code"]), ("Forbidden", 403))
        self.assertTrue(status["message"].startswith("forbidden by the owner of cluster alpha: "))
        self.assertEqual(upstream.taken(), b"")

    def test_smuggled_requests(self) -> None:
        """No forbidden request passes behind, or inside, a permitted one."""
        self.use(OwnerRule(access="read-only"))
        delete = head(method="DELETE")
        chunked = head(framing="Transfer-Encoding: chunked")
        for data, expected in (
            (head() + delete, b""),
            (head(framing="Content-Length: 5") + b"12345" + delete, b"12345"),
            (chunked + b"3\r\nabc\r\n0\r\n\r\n" + delete, b"0\r\n\r\n"),
        ):
            upstream, channel = FakePipe(), FakePipe()
            relayed(channel, upstream, self.gate.guard(channel, self.policy.rewrite))
            channel.deliver(data)
            sent = upstream.taken()
            self.assertNotIn(b"DELETE", sent)
            self.assertTrue(sent.endswith(expected))
            self.assertIn(b"forbidden by the owner of cluster alpha", channel.taken())
            self.assertTrue(upstream.closing)

    def test_bodies(self) -> None:
        """Bytes of a body that look like a request are a body."""
        self.use(OwnerRule(access="read-only"))
        upstream, channel = FakePipe(), FakePipe()
        relayed(channel, upstream, self.gate.guard(channel, self.policy.rewrite))
        body = head(method="DELETE")
        channel.deliver(head(framing=f"Content-Length: {len(body)}") + body)
        self.assertTrue(upstream.taken().endswith(body))
        self.assertEqual(channel.taken(), b"")

    def test_smuggled_forms(self) -> None:
        """Other spellings of a method, a target or an identity are rejected."""
        self.use(OwnerRule([Subject("User", "joe")]), OwnerRule(DEV, "read-only"))
        for data in (
            head(method="delete"),
            head("http://kubernetes/api/v1/pods"),
            head("/api/v1/namespaces/dev/../other/pods"),
            head("/api/v1/pods HTTP/1.1\r\nX: y"),
            head(POD, "GET", "jane", "Impersonate-User: joe"),
            head(POD, "GET", "jane\r\nImpersonate-User: joe"),
            head(POD, "GET", "jane", "impersonate_user: joe"),
            head(POD, "GET", "jane", "X-Remote-User: joe"),
            head(POD, "GET", "jane", "Transfer-Encoding: chunked"),
            head(POD, "GET", "jane", "Content-Length: 10"),
        ):
            self.assertIsInstance(self.rewrite(data), Refusal, data)
        for target in ("/api/v1/namespaces/dev/pods/a%2fexec", "/api/v1/namespaces/dev%2Fpods"):
            self.assertIn("permits only read-only", self.refused(head(target)))
        self.passes(head(POD, "GET", "jane", "X-HTTP-Method-Override: DELETE"))

    def test_streams(self) -> None:
        """A stream needs a rule for its target, and is cut when there is none any longer."""
        self.use(OwnerRule(), OwnerRule(targets=("db",), window=NOON))
        self.gate.check_target("db")
        error = self.assertRaises(TargetRefused, self.gate.check_target, "mail")
        self.assertEqual(error.code, "not-allowed")
        self.assertIn("cluster alpha: no rule of the agent's policy permits streams to mail", str(error))
        channel, connection = FakePipe(), FakePipe()
        join(channel, connection)
        self.gate.watch_stream(channel, "db")
        self.assertFalse(channel.aborted)
        self.now += 7200
        self.gate.look()
        self.assertTrue(channel.aborted)
        error = self.assertRaises(TargetRefused, self.gate.check_target, "db")
        self.assertIn("permits streams to db only Mon 11:00-13:00 UTC", str(error))
        late = open_pipe()
        self.assertEqual(self.gate.watch_stream(late, "db"), str(error).partition("cluster alpha: ")[2])
        self.assertTrue(late.aborted)
