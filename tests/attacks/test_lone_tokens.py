"""Requests with only a token of the member's: they pass where that is allowed, as that account alone."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from functools import partial
from typing import Any

from attrs import evolve

from tests.attacks import bearers
from tests.fakes.gateway import get
from tests.holes.case import OldAgentTestCase
from tests.holes.towerkit import AGENT_TOKEN, done, status_of
from tower.clusters.object_meta import ALLOW_LONE_TOKENS, ALLOW_TOKENS, MEMBER_TOKENS
from tower.kube.head_policy import allow_member_tokens

ALICE = (b"Impersonate-User: alice",)


def token_of(**claims: Any) -> bytes:
    """Return a JWT with these claims."""
    payload = urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"eyJhbGciOiJSUzI1NiJ9.%b.c2lnbmF0dXJl" % payload


ACCOUNT = "system:serviceaccount:kube-federation-system:alpha-kubesphere"
TOKEN = token_of(sub=ACCOUNT)
BEARER = b"Authorization: Bearer " + TOKEN

#: Requests with that token and another identity, or in another form.
BOTH = tuple(tuple(field.replace(bearers.TOKEN, TOKEN) for field in fields) for fields in bearers.MIXED)

#: Other tokens, which Tower itself must know.
OTHERS = (
    b"opaque",
    b"towerk-" + TOKEN,
    token_of(sub="jane"),
    token_of(sub=["system:serviceaccount:a:b"]),
    token_of(iss=ACCOUNT),
    token_of(sub=ACCOUNT, padding="x" * 9000),
    b"a.b.c",
    b"a.%b.c" % urlsafe_b64encode(b"[]"),
)


class LoneTokenTestCase(OldAgentTestCase):
    """The cluster alpha allows such tokens on its own port."""

    def setUp(self) -> None:
        """Set it."""
        super().setUp()
        self.tower.add("beta")
        self.allow(ALLOW_LONE_TOKENS)

    def allow(self, setting: str) -> None:
        """Change the setting of alpha, and let its port be opened again."""
        done(self.tower.clusters.change("alpha", partial(self._allowing, setting)))
        for _ in range(3):
            self.tower.pump()
            self.tower.sweep(1)

    @staticmethod
    def _allowing(setting: str, cluster: Any) -> Any:
        return evolve(cluster, annotations={MEMBER_TOKENS: setting} if setting else {})

    def ask_alone(self, *fields: bytes, target: bytes = b"/api", port: int | None = 6000) -> bytes:
        """Return the answer so far to a request without a client certificate."""
        return self.tower.ask(self.tower.user(port), get(target, *fields))


class NewAgentTests(LoneTokenTestCase):
    """An agent of tower-v2, whose owner has the last word."""

    def test_allowed(self) -> None:
        """The request has the token as its only identity; the agent's credential is not used."""
        for impersonate in (True, False):
            agent = self.agent(policy={"member_tokens": allow_member_tokens, "impersonate": impersonate})
            user = self.tower.user(6000)
            for _ in range(2):
                asked = self.through(agent, user, b"/api", BEARER)
                self.assertEqual(asked.count(b"Authorization:"), 1)
                self.assertIn(b"\r\n" + BEARER + b"\r\n", asked)
                self.assertNotIn(AGENT_TOKEN.encode(), asked)
                self.assertNotIn(b"Impersonate", asked)
            agent.service.stopService()
            self.tower.pump()

    def test_owner_refuses(self) -> None:
        """Without --allow-member-tokens the agent rejects it, also one that does not impersonate."""
        for impersonate in (True, False):
            agent = self.agent(policy={"impersonate": impersonate})
            answer = self.ask_alone(BEARER)
            self.assertEqual(status_of(answer), 403)
            self.assertIn(b"--allow-member-tokens", answer)
            self.assertNotIn(TOKEN, answer)
            agent.service.stopService()
            self.tower.pump()

    def test_not_allowed(self) -> None:
        """With any other setting, Tower rejects it; a change ends the connections."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        user = self.tower.user(6000)
        self.through(agent, user, b"/api", BEARER)
        for setting in ("", ALLOW_TOKENS, "Alone", "yes"):
            self.allow(setting)
            self.assertTrue(user.aborted or user.closing)
            self.assertEqual(status_of(self.ask_alone(BEARER)), 401, setting)

    def test_mixed(self) -> None:
        """Together with a claim of an identity, or malformed, it reaches no API server."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        for fields in (*BOTH, (BEARER, *ALICE), (BEARER, b"X-Remote-User: a"), (BEARER, BEARER)):
            answer = self.ask_alone(*fields)
            self.assertIn(status_of(answer), (400, 401, 403), fields)
            self.assertNotIn(TOKEN, answer)
        self.assertEqual(agent.dialed, [])

    def test_others(self) -> None:
        """Other tokens, and none, are rejected by Tower."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        for token in OTHERS:
            self.assertEqual(status_of(self.ask_alone(b"Authorization: Bearer " + token)), 401, token[:40])
        self.assertEqual(status_of(self.ask_alone()), 401)
        self.assertEqual(status_of(self.ask_alone(*ALICE)), 401)
        self.assertEqual(agent.dialed, [])

    def test_elsewhere(self) -> None:
        """Other clusters' ports and the front door do not accept it."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        for port, target in (
            (6001, b"/api"),
            (None, b"/clusters/alpha/api"),
            (None, b"/api"),
            (None, b"/apis/cluster.kubesphere.io/v1alpha1/clusters"),
        ):
            self.assertEqual(status_of(self.ask_alone(BEARER, target=target, port=port)), 401, target)
        self.assertEqual(agent.dialed, [])

    def test_certificate(self) -> None:
        """A client certificate counts first: without a valid one, the token does not help."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        user = self.tower.user(6000)
        user.certificate = b"DER of another"
        self.assertEqual(status_of(self.tower.ask(user, get(b"/api", BEARER))), 401)
        self.assertEqual(agent.dialed, [])

    def test_after_another(self) -> None:
        """On one connection, each request has the identity of its own credential."""
        agent = self.agent(policy={"member_tokens": allow_member_tokens})
        _, secret = done(self.tower.credentials.issue_token("alpha", "joe", [], 3600.0))
        own = b"Authorization: Bearer " + secret.encode()
        user = self.tower.user(6000)
        for fields, word in (((own,), b"User: joe"), ((BEARER,), TOKEN), ((own,), b"User: joe")):
            asked = self.through(agent, user, b"/api", *fields)
            self.assertIn(word, asked)
            self.assertEqual(TOKEN in asked, word == TOKEN)
            self.assertEqual(b"Impersonate" in asked, word != TOKEN)
        self.assertEqual(status_of(self.tower.ask(user, get(b"/api"))), 401)


class OldAgentTests(LoneTokenTestCase):
    """An agent of kubesphere-v1: the proxy replaces the agent's credential by the token."""

    def test_allowed(self) -> None:
        """The setting allows it, and its withdrawal ends that."""
        agent = self.old()
        self.ask_alone(BEARER)
        asked = agent.servers[0].taken()
        self.assertIn(BEARER + b"\r\n", asked)
        self.assertEqual(asked.count(b"Authorization:"), 1)
        self.assertNotIn(AGENT_TOKEN.encode(), asked)
        for fields in BOTH:
            self.assertIn(status_of(self.ask_alone(*fields)), (400, 401, 403), fields)
        self.allow("")
        self.assertEqual(status_of(self.ask_alone(BEARER)), 401)
        self.assertEqual(len(agent.servers), 1)
