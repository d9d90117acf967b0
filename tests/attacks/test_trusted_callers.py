"""A trusted caller acts as no more than it was issued for, at either end."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.bearers import ALICE, BEARER, MIXED, TOKEN
from tests.attacks.head_server import NAMES
from tests.fakes.gateway import FakeUser, get, ok
from tests.holes.case import OldAgentTestCase
from tests.holes.towerkit import AGENT_TOKEN, done, status_of
from tower.clusters.object_meta import MEMBER_TOKENS
from tower.errors import Forbidden
from tower.http.requests import HeadReader
from tower.kube.canonical_head import write_trusted_fields
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import HeadPolicy, Refusal, allow_member_tokens
from tower.kube.system_identities import SystemIdentities

DER = b"DER of the caller"
LINE = b"GET /api/v1/secrets HTTP/1.1\r\n"
HOST = b"Host: x\r\n"
UPSTREAM = Upstream(b"", b"Host: api\r\n", b"Authorization: Bearer agent\r\n")

#: Claims that are not exactly one user in Kubernetes' own form.
BAD_CLAIMS = (
    (b"Impersonate-Group: ws-dev",),
    (b"Impersonate-Uid: 7",),
    (*ALICE, b"Impersonate-User: root"),
    (*ALICE, b"impersonate_user: root"),
    (*ALICE, b"Impersonate_Group: root"),
    (*ALICE, b"X-Remote-User: root"),
    (*ALICE, b"X-Remote-Group: root"),
    (*ALICE, b"Impersonate-Uid: 1", b"Impersonate-Uid: 2"),
    (*ALICE, b"Impersonate-Extra-: x"),
    (*ALICE, b"Impersonate-Other: x"),
    (*ALICE, b"Impersonate-Group: tower:admins"),
    (b"Impersonate-User: tower:agent",),
    (b"Impersonate-User: ",),
)


class TrustedCallerTestCase(OldAgentTestCase):
    """Each test has a trusted caller of alpha with a certificate, and a cluster beta."""

    def setUp(self) -> None:
        """Issue its credential."""
        super().setUp()
        self.tower.add("beta")
        self.caller = done(
            self.tower.credentials.register_certificate(
                "alpha", "kubesphere", ["ks"], 3600.0, hashlib.sha256(DER).hexdigest(), "trusted-caller"
            )
        )

    def user(self, port: int | None = 6000) -> FakeUser:
        """Connect the caller."""
        user = self.tower.user(port)
        user.certificate = DER
        return user

    def ask(self, *fields: bytes, target: bytes = b"/api", port: int | None = 6000) -> bytes:
        """Return the answer so far to a request of the caller, by a new connection."""
        return self.tower.ask(self.user(port), get(target, *fields))


class ProxyTests(TrustedCallerTestCase):
    """The proxy's filter, and the agent behind it."""

    def test_acts_as_users(self) -> None:
        """It may act as itself, and as a user that it names; the API server sees that user alone."""
        agent = self.agent()
        own = self.through(agent, self.user(), b"/api")
        self.assertIn(b"\r\nImpersonate-User: kubesphere\r\nImpersonate-Group: ks\r\n", own)
        user = self.user()
        for claims in (ALICE, (b"impersonate-user: alice", b"IMPERSONATE-GROUP: ws-dev")):
            asked = self.through(agent, user, b"/api", *claims)
            self.assertIn(b"\r\nImpersonate-User: alice\r\nImpersonate-Group: ws-dev\r\n", asked)
            self.assertNotIn(b"kubesphere", asked)
            self.assertEqual(asked.lower().count(b"impersonate-user"), 1)
        again = self.through(agent, user, b"/api")
        self.assertIn(b"\r\nImpersonate-User: kubesphere\r\n", again)

    def test_uid_and_extra(self) -> None:
        """Uid and extra fields of that user are forwarded."""
        extra = (b"Impersonate-Uid: 7", b"impersonate-extra-scopes: a", b"Impersonate-Extra-Scopes: b")
        asked = self.through(self.agent(), self.user(), b"/api", *extra, *ALICE)
        self.assertIn(
            b"Impersonate-User: alice\r\nImpersonate-Group: ws-dev\r\nImpersonate-Uid: 7\r\n"
            b"Impersonate-Extra-scopes: a\r\nImpersonate-Extra-Scopes: b\r\n",
            asked,
        )

    def test_others_may_not(self) -> None:
        """A user of the same cluster may do none of that, with a certificate or a token."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        digest = hashlib.sha256(b"DER of jane").hexdigest()
        done(self.tower.credentials.register_certificate("alpha", "jane", ["dev"], 3600.0, digest))
        user = self.tower.user(6000)
        user.certificate = b"DER of jane"
        self.assertEqual(status_of(self.tower.ask(user, get(b"/api", *ALICE))), 403)
        asked = self.through(agent, user, b"/api", BEARER)
        self.assertIn(b"Impersonate-User: jane", asked)
        self.assertNotIn(TOKEN, asked)
        self.assertEqual(status_of(self.ask_alpha(self.jane, *ALICE)), 403)

    def test_one_cluster(self) -> None:
        """Another cluster, its port and Tower's own API stay closed, with any claim and any token."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        for claims in (
            (),
            ALICE,
            (BEARER,),
            (b"Impersonate-User: alice", b"Impersonate-Group: tower:admins"),
        ):
            for port, target in (
                (6001, b"/api"),
                (None, b"/clusters/beta/api"),
                (None, b"/clusters/nope/api"),
                (None, b"/apis/cluster.kubesphere.io/v1alpha1/clusters"),
                (None, b"/apis/cluster.kubesphere.io/v1alpha1/clusters/alpha/trustedcallers"),
            ):
                answer = self.ask(*claims, target=target, port=port)
                self.assertEqual(status_of(answer), 403, (claims, target))
        self.assertEqual(agent.dialed, [])

    def test_bad_claims(self) -> None:
        """The proxy rejects all claims except those of one user, in the usual form."""
        agent = self.agent()
        for claims in BAD_CLAIMS:
            self.assertEqual(status_of(self.ask(*claims)), 403, claims)
        self.assertEqual(agent.dialed, [])

    def test_system_identities(self) -> None:
        """The agent rejects system identities, as user and as group, unless its owner allowed that name."""
        self.agent()
        for name in NAMES:
            for claims in (
                (b"Impersonate-User: " + name.encode(),),
                (b"Impersonate-User: alice", b"Impersonate-Group: " + name.encode()),
            ):
                answer = self.ask(*claims)
                self.assertEqual(status_of(answer), 403, name)
                self.assertIn(b"--allow-system-identity", answer)

    def test_allowed_identity(self) -> None:
        """With --allow-system-identity that name passes, and no other."""
        policy = {"identities": SystemIdentities(["system:masters"])}
        agent = self.agent(policy=policy)
        masters = (b"Impersonate-User: alice", b"Impersonate-Group: system:masters")
        self.assertIn(b"system:masters", self.through(agent, self.user(), b"/api", *masters))
        self.assertEqual(status_of(self.ask(b"Impersonate-User: system:admin")), 403)

    def test_member_token(self) -> None:
        """Only with --allow-member-tokens, a token of the member replaces the agent's credential."""
        agent = self.agent()
        answer = self.ask(BEARER)
        self.assertEqual(status_of(answer), 403)
        self.assertIn(b"--allow-member-tokens", answer)
        self.assertNotIn(TOKEN, answer)
        for impersonate in (True, False):
            agent.service.stopService()
            self.tower.pump()
            agent = self.agent(policy={"member_tokens": allow_member_tokens, "impersonate": impersonate})
            user = self.user()
            asked = self.through(agent, user, b"/api", BEARER)
            self.assertEqual(asked.count(b"Authorization:"), 1)
            self.assertIn(b"\r\n" + BEARER + b"\r\n", asked)
            self.assertNotIn(AGENT_TOKEN.encode(), asked)
            self.assertNotIn(b"Impersonate", asked)
            own = self.through(agent, user, b"/api")
            self.assertEqual(b"Impersonate-User: kubesphere" in own, impersonate)
            self.assertNotIn(TOKEN, own)

    def test_mixed(self) -> None:
        """A token together with a claim, in two places, or of another kind reaches no agent."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        for fields in MIXED:
            answer = self.ask(*fields)
            self.assertIn(status_of(answer), (400, 401, 403), fields)
            self.assertNotIn(TOKEN, answer)
        self.assertIn(status_of(self.ask(BEARER, b"Authorization: Bearer other")), (400, 401, 403))
        self.assertEqual(agent.dialed, [])

    def test_pipelined(self) -> None:
        """Requests in one packet have one identity each, in any order; a body hides no second request."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        user = self.user()
        hidden = get(b"/hidden", b"Impersonate-User: root")
        body = b"Content-Length: %d" % len(hidden)
        requests = (
            get(b"/1", BEARER, body, method=b"POST", body=hidden),
            get(b"/2"),
            get(b"/3", *ALICE),
            get(b"/4", BEARER),
            get(b"/5"),
        )
        user.deliver(b"".join(requests))
        seen = []
        for _ in requests:
            self.tower.pump()
            asked = agent.servers[-1].taken()
            if asked.startswith(b"POST"):
                self.assertTrue(asked.endswith(hidden))
                asked = asked.removesuffix(hidden)
            seen.append(
                [word for word in (TOKEN, b"ser: alice", b"ser: kubesphere", b"root") if word in asked]
            )
            agent.servers[-1].deliver(ok())
        self.assertEqual(
            seen, [[TOKEN], [b"ser: kubesphere"], [b"ser: alice"], [TOKEN], [b"ser: kubesphere"]]
        )
        self.tower.pump()
        self.assertEqual(user.taken().count(b"HTTP/1.1 200 "), len(requests))

    def test_with_its_own_token(self) -> None:
        """A caller that authenticates by token has no second one: its own never reaches the member."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        issued = self.tower.credentials.issue_token("alpha", "ks", [], 3600.0, "trusted-caller")
        _, secret = done(issued)
        own = b"Authorization: Bearer " + secret.encode()
        asked = self.through(agent, self.tower.user(6000), b"/api", own, *ALICE)
        self.assertIn(b"Impersonate-User: alice", asked)
        self.assertNotIn(secret.encode(), asked)
        asked = self.through(agent, self.user(), b"/api", own)
        self.assertNotIn(secret.encode(), asked)
        self.assertIn(b"Impersonate-User: kubesphere", asked)

    def test_other_targets(self) -> None:
        """Targets but the API server get no claims of a trusted caller."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        target = b"/clusters/alpha/targets/kubesphere/kapis"
        self.assertEqual(status_of(self.ask(*ALICE, target=target, port=None)), 403)
        stream = (b"Connection: Upgrade", b"Upgrade: Tower-Stream")
        answer = self.ask(*ALICE, *stream, target=b"/clusters/alpha/targets/wiki", port=None)
        self.assertEqual(status_of(answer), 403)
        self.assertEqual(agent.dialed, [])

    def test_revoked(self) -> None:
        """Revoked, it may do nothing, also on an open connection."""
        agent = self.agent()
        user = self.user()
        self.through(agent, user, b"/api", *ALICE)
        done(self.tower.credentials.revoke(self.caller.id))
        self.tower.ask(user, get(b"/api", *ALICE))
        self.assertEqual(agent.servers[-1].taken(), b"")
        self.assertEqual(status_of(self.ask(*ALICE)), 401)


class OldAgentsTests(TrustedCallerTestCase):
    """The proxy's own policy, for agents of kubesphere-v1."""

    def test_system_identities(self) -> None:
        """No option allows system identities."""
        agent = self.old()
        for name in NAMES:
            answer = self.ask(b"Impersonate-User: alice", b"Impersonate-Group: " + name.encode())
            self.assertEqual(status_of(answer), 403, name)
        self.ask(*ALICE)
        asked = agent.servers[0].taken()
        self.assertEqual(asked.count(b"Impersonate-User: alice\r\n"), 1)

    def test_member_token(self) -> None:
        """Tokens of the member need the cluster's setting, which acts at once, both ways."""
        agent = self.old()
        for setting, code in (("", 403), ("yes", 403), ("true", 0), ("", 403)):
            done(self.tower.clusters.change("alpha", partial(self.allowing, setting)))
            answer = self.ask(BEARER)
            self.assertEqual(status_of(answer), code, setting)
            self.assertNotIn(TOKEN, answer)
        (asked,) = [taken for server in agent.servers if (taken := server.taken())]
        self.assertIn(BEARER + b"\r\n", asked)
        self.assertEqual(asked.count(b"Authorization:"), 1)
        self.assertNotIn(AGENT_TOKEN.encode(), asked)
        self.assertNotIn(b"Impersonate", asked)

    @staticmethod
    def allowing(value: str, cluster: Any) -> Any:
        """Return *cluster* with the setting."""
        return evolve(cluster, annotations={MEMBER_TOKENS: value} if value else {})

    def test_mixed(self) -> None:
        """A token together with a claim reaches no API server, also with the setting."""
        agent = self.old()
        done(self.tower.clusters.change("alpha", partial(self.allowing, "true")))
        for fields in MIXED:
            self.assertIn(status_of(self.ask(*fields)), (400, 401, 403), fields)
        self.assertEqual(agent.dialed, [])


class AgentPolicyTests(SynchronousTestCase):
    """The agent's check alone: the proxy is hostile."""

    #: Heads, without the empty line, that a hostile proxy may send.
    BAD = (
        LINE + BEARER + b"\r\nImpersonate-User: root\r\n" + HOST,
        LINE + BEARER + b"\r\n" + HOST + b"Impersonate-User: root\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"impersonate-group: system:masters\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"Impersonate_User: root\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"X-Remote-User: root\r\n",
        LINE + BEARER + b"\r\n" + BEARER + b"\r\n" + HOST,
        LINE + BEARER + b"\r\n" + HOST + BEARER + b"\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"authorization: Basic YTpi\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"Proxy-Authorization: Basic YTpi\r\n",
        LINE + BEARER + b"\r\n" + HOST + b"Connection: Authorization\r\n",
        LINE
        + BEARER
        + b"\r\n"
        + HOST
        + b"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.x\r\n",
        LINE + b"Impersonate-User: jane\r\n" + BEARER + b"\r\n" + HOST,
        LINE + HOST + BEARER + b"\r\n",
        LINE + b"authorization: Bearer x\r\n" + HOST,
        LINE + b"Authorization: Basic YTpi\r\n" + HOST,
        LINE + b"Authorization: Bearer\r\n" + HOST,
        LINE + b"Authorization: Bearer \r\n" + HOST,
        LINE + b"Authorization: Bearer a b\r\n" + HOST,
        LINE + b"Authorization:  Bearer a\r\n" + HOST,
        LINE + b"Authorization: Bearer a\r\n b\r\n" + HOST,
        LINE + BEARER + b"\r\n" + HOST + b"Transfer-Encoding: chunked\r\n",
        LINE + BEARER + b"\r\n",
    )

    def test_bad(self) -> None:
        """With --allow-member-tokens, only one token in one form passes, instead of a user."""
        for impersonate in (True, False):
            policy = HeadPolicy(lambda: UPSTREAM, impersonate=impersonate, member_tokens=allow_member_tokens)
            for head in self.BAD:
                for _ in range(2):
                    self.assertIsInstance(policy.rewrite(head + b"\r\n"), Refusal, head)

    def test_good(self) -> None:
        """The token replaces the agent's credential, whatever the agent does for users."""
        for impersonate in (True, False):
            policy = HeadPolicy(lambda: UPSTREAM, impersonate=impersonate, member_tokens=allow_member_tokens)
            for _ in range(2):
                answer = policy.rewrite(LINE + BEARER + b"\r\n" + HOST + b"A: b\r\n\r\n")
                assert not isinstance(answer, Refusal), answer
                self.assertEqual(answer.head, LINE + BEARER + b"\r\nHost: api\r\nA: b\r\n\r\n")
            self.assertEqual(policy._known, {})

    def test_client_certificate(self) -> None:
        """An agent with a client certificate rejects tokens: its certificate would take precedence."""
        upstream = Upstream(b"", b"Host: api\r\n", b"", has_certificate=True)
        policy = HeadPolicy(lambda: upstream, member_tokens=allow_member_tokens)
        answer = policy.rewrite(LINE + BEARER + b"\r\n" + HOST + b"\r\n")
        assert isinstance(answer, Refusal)
        self.assertIn("client certificate", answer.text)
        jane = policy.rewrite(LINE + b"Impersonate-User: jane\r\n" + HOST + b"\r\n")
        self.assertNotIsInstance(jane, Refusal)


class WrittenTests(SynchronousTestCase):
    """Whatever the proxy writes for a trusted caller, the agent accepts with one identity, or nothing."""

    def test_written(self) -> None:
        """Each request is rejected by the proxy, or has exactly one identity at the API server."""
        policy = HeadPolicy(lambda: UPSTREAM, member_tokens=allow_member_tokens)
        written = 0
        for fields in ((), ALICE, (BEARER,), *MIXED, *BAD_CLAIMS):
            for token in (None, TOKEN):
                head = b"\r\n".join([b"GET /api HTTP/1.1", b"Host: x", *fields, b"", b""])
                parsed = HeadReader().read(head)[3] if b"\xe9" not in head else None
                if parsed is None:
                    continue
                try:
                    lines = write_trusted_fields(parsed, b"Impersonate-User: ks\r\n", b"", token)
                except Forbidden:
                    continue
                answer = policy.rewrite(b"GET /api HTTP/1.1\r\n" + lines)
                if isinstance(answer, Refusal):
                    continue
                written += 1
                sent = answer.head.lower()
                users = sent.count(b"\r\nimpersonate-user: ")
                agents = sent.count(b"\r\nauthorization: bearer agent\r\n")
                tokens = sent.count(b"\r\nauthorization: ") - agents
                self.assertIn((users, agents, tokens), ((1, 1, 0), (0, 0, 1)), sent)
        self.assertGreater(written, 5)
