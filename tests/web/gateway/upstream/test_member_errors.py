"""Tests for `tower.web.gateway.upstream.member_errors`: answers about the agent, not about the user."""

from __future__ import annotations

import json
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.gateway import Kit, get
from tower.kube.member_status import Check, MemberStatus
from tower.tunnels import SSH
from tower.web.gateway.request import Request
from tower.web.gateway.upstream.member_errors import LONGEST
from tower.web.outcome import Outcome, Relay

AGENT = "system:serviceaccount:tower-system:tower-agent"
DENIED = (
    f'users "jane" is forbidden: User "{AGENT}" cannot impersonate resource "users" in API group "" '
    "at the cluster scope"
)
RBAC = 'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "default"'
PODS = b"/clusters/alpha/api/v1/namespaces/default/pods"
SERVICE = b"/clusters/alpha/api/v1/namespaces/default/services/web/proxy/home"


def status(code: int, reason: str, message: str) -> bytes:
    """Return a Status as an API server sends it."""
    value = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message}
    return json.dumps({**value, "reason": reason, "code": code}).encode()


def binary(reason: str, message: str) -> bytes:
    """Return a Status in the binary form."""
    size = len(message)
    length = bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])
    raw = b"\n\0\x12\x07Failure\x1a" + length + message.encode()
    raw += b'"' + bytes([len(reason)]) + reason.encode() + b"0\x93\x03"
    return b"k8s\0\n\x0c\n\x02v1\x12\x06Status\x12\xd0\x01" + raw + b'\x1a\0"\0'


def answer(code: int, body: bytes) -> bytes:
    """Return an answer."""
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (code, len(body), body)


class MemberErrorTests(SynchronousTestCase):
    """Rejections by a member's API server."""

    def setUp(self) -> None:
        """Relay to alpha."""
        self.relay = Relay("alpha", b"/clusters/alpha")
        self.kit: Any = Kit(self.route)

    def route(self, request: Request) -> Outcome:
        """Return the relay, as jane."""
        request.identity = self.kit.jane
        return self.relay

    def ask(self, wire: bytes, target: bytes = PODS, *fields: bytes, method: bytes = b"GET") -> bytes:
        """Return the user's answer to a request that the member answers with *wire*."""
        user = self.kit.connect()
        user.deliver(get(target, *fields, method=method))
        self.kit.pipe.deliver(wire)
        received: bytes = user.taken()
        return received

    def assert_502(self, received: bytes, *words: str) -> None:
        """Check that a 502 has all *words*."""
        head, _, body = received.partition(b"\r\n\r\n")
        self.assertTrue(head.startswith(b"HTTP/1.1 502 "), received)
        for each in words:
            self.assertIn(each, json.loads(body)["message"])

    def test_rejected_credential(self) -> None:
        """A 401 is a 502 with the cure, also if it answers an upgrade or a HEAD."""
        wire = answer(401, status(401, "Unauthorized", "Unauthorized"))
        words = ("cluster alpha rejects the credential of its agent (401)", "renew the token")
        self.assert_502(self.ask(wire), *words)
        self.assert_502(self.ask(wire, PODS, b"Connection: Upgrade", b"Upgrade: SPDY/3.1"), *words)
        self.assert_502(self.ask(b"HTTP/1.1 401 X\r\nTransfer-Encoding: chunked\r\n\r\n"), *words)
        head = self.ask(b"HTTP/1.1 401 X\r\nContent-Length: 9\r\n\r\n", method=b"HEAD")
        self.assertTrue(head.startswith(b"HTTP/1.1 502 "), head)

    def test_reported_credential(self) -> None:
        """If the agent has reported the cause, the error has it."""
        check = Check("False", "CredentialExpired", "the token of the agent expired at noon: create one")
        self.kit.tunnel.member_status = MemberStatus(credential=check)
        wire = answer(401, status(401, "Unauthorized", "Unauthorized"))
        self.assert_502(
            self.ask(wire), "cluster alpha cannot be used: the token of the agent expired at noon"
        )

    def test_forbidden_impersonation(self) -> None:
        """A forbidden impersonation is a 502 that names the account, the right and the cure."""
        words = (
            f"does not allow its agent (user {AGENT}) to impersonate user jane:",
            "tower rbac agent | kubectl apply -f -",
        )
        wire = answer(403, status(403, "Forbidden", DENIED))
        self.assert_502(self.ask(wire), *words)
        self.assert_502(self.ask(wire, PODS, b"Connection: Upgrade", b"Upgrade: SPDY/3.1"), *words)
        self.assert_502(self.ask(answer(403, binary("Forbidden", DENIED))), *words)
        short = DENIED.replace(AGENT, "agent").replace(' in API group "" at the cluster scope', "")
        self.assert_502(self.ask(answer(403, binary("Forbidden", short))), "(user agent)")

    def test_facts(self) -> None:
        """The role that Tower grants to agents has no UIDs and extras, so it is not the cure."""
        for resource in ("userextras/scopes", "uids"):
            denied = DENIED.replace('resource "users"', f'resource "{resource}"')
            text = self.ask(answer(403, status(403, "Forbidden", denied)))
            self.assert_502(text, f"to impersonate {resource} jane: let a role of this account in the member")
            self.assertNotIn(b"tower rbac agent", text)

    def test_constrained_impersonation(self) -> None:
        """Kubernetes 1.35 and later name the user's request in the text, with or without a resource."""
        for text in (
            f'forbidden: User "{AGENT}" cannot impersonate-on:user-info:get path "/api"',
            f'pods is forbidden: User "{AGENT}" cannot impersonate-on:user-info:list resource "pods" in',
            f'pods "web" is forbidden: User "{AGENT}" cannot impersonate-on:user-info:get resource "pods"',
        ):
            wire = answer(403, status(403, "Forbidden", text))
            self.assert_502(self.ask(wire), f"its agent (user {AGENT}) to impersonate user jane: run")

    def test_names(self) -> None:
        """A name that is not plain is quoted, and the kind of the name is in the singular."""
        for resource, name, shown in (
            ("groups", "dev", "group dev:"),
            ("serviceaccounts", "ci", "service account ci:"),
            ("users", "x: run 'reboot'", "user \"x: run 'reboot'\":"),
        ):
            text = DENIED.replace('resource "users"', f'resource "{resource}"').replace('"jane"', f'"{name}"')
            wire = answer(403, status(403, "Forbidden", text))
            self.assert_502(self.ask(wire), f"to impersonate {shown}")

    def test_no_credential(self) -> None:
        """If the API server does not see a credential, the error is not about rights."""
        text = DENIED.replace(AGENT, "system:anonymous")
        wire = answer(403, status(403, "Forbidden", text))
        words = "cluster alpha does not see a credential of its agent: renew the token"
        self.assert_502(self.ask(wire), words)
        check = Check("False", "CredentialMissing", "the agent has no credential", "renew it")
        self.kit.tunnel.member_status = MemberStatus(credential=check)
        self.assert_502(self.ask(wire), "cluster alpha cannot be used: the agent has no credential: renew it")
        self.kit.tunnel.rewrite = lambda head, plain: head
        self.kit.tunnel.member_status = None
        self.assert_502(self.ask(wire), "does not see a credential of Tower: an administrator must renew it")

    def test_reported_rights(self) -> None:
        """If the agent has reported the missing right, the error has it."""
        check = Check(
            "False", "ImpersonationDenied", "the agent is not allowed to impersonate users: apply this"
        )
        self.kit.tunnel.member_status = MemberStatus(impersonation=check)
        wire = answer(403, status(403, "Forbidden", DENIED))
        self.assert_502(
            self.ask(wire), "cluster alpha cannot be used: the agent is not allowed to impersonate users"
        )

    def test_doubt(self) -> None:
        """A rejection of Tower's credential or rights calls for a check of the member; no other one does."""
        outcomes = self.kit.tunnels.outcomes
        rejected = answer(401, status(401, "Unauthorized", "Unauthorized"))
        for wire in (rejected, answer(403, status(403, "Forbidden", DENIED))):
            outcomes.clear()
            self.ask(wire)
            self.assertEqual(outcomes, [True, False])  # the API server was reached, but rejects Tower
        outcomes.clear()
        self.ask(answer(403, status(403, "Forbidden", RBAC)))
        self.assertNotIn(False, outcomes)
        self.relay = Relay("alpha", b"/clusters/alpha/nodes/n1", "kubelet:n1")
        self.assert_502(self.ask(rejected, b"/clusters/alpha/nodes/n1/pods"), "has a kubelet that rejects")
        self.assertNotIn(False, outcomes)

    def test_any_split(self) -> None:
        """The answer may come in pieces; the user's connection is kept."""
        wire = answer(403, status(403, "Forbidden", DENIED))
        for cut in range(1, len(wire)):
            self.kit.user.deliver(get(PODS))
            pipe = self.kit.pipe
            pipe.deliver(wire[:cut])
            self.assertEqual(self.kit.user.taken(), b"")
            pipe.deliver(wire[cut:])
            self.assert_502(self.kit.user.taken(), "to impersonate")
            self.assertTrue(pipe.aborted)

    def test_users_own_rejections(self) -> None:
        """Rejections of the user reach the user unchanged, in one piece or several."""
        for wire in (
            answer(403, status(403, "Forbidden", RBAC)),
            answer(403, status(403, "Forbidden", DENIED.replace(AGENT, "jane"))),
            answer(403, status(403, "Forbidden", f"webhook: {DENIED}")),
            answer(403, status(403, "Invalid", DENIED)),
            answer(403, binary("Forbidden", RBAC)),
            answer(403, b"k8s\0Status Forbidden " + DENIED.encode()),
            answer(403, DENIED.encode()),
            answer(403, b"[]"),
            answer(403, b"[" * LONGEST),
            answer(403, b'{"kind":"Status","reason":"Forbidden","message":1}'),
            answer(403, b""),
            answer(403, b"x" * (LONGEST + 1)),
            b"HTTP/1.1 403 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
        ):
            self.assertEqual(self.ask(wire), wire)
            user = self.kit.connect()
            user.deliver(get(PODS))
            for start in range(0, len(wire), 50):
                self.kit.pipe.deliver(wire[start : start + 50])
            self.assertEqual(user.taken(), wire)

    def test_service_behind_the_api_server(self) -> None:
        """The 401 of a service that is reached through the API server's proxy is that of the service."""
        wire = answer(401, b"log in first")
        self.assertEqual(self.ask(wire, SERVICE), wire)
        own = answer(401, status(401, "Unauthorized", "Unauthorized"))
        self.assert_502(self.ask(own, SERVICE), "rejects the credential")

    def test_plain_relay(self) -> None:
        """A target that authenticates users itself may reject them."""
        self.relay = Relay("alpha", b"/clusters/alpha/targets/web", "web", plain=True)
        wire = answer(401, status(401, "Unauthorized", "Unauthorized"))
        self.assertEqual(self.ask(wire, b"/clusters/alpha/targets/web/"), wire)

    def test_cluster_without_agent(self) -> None:
        """In a cluster of type ssh the credential is Tower's."""
        self.kit.tunnel.protocol = SSH
        self.kit.tunnel.rewrite = lambda head, plain: head
        wire = answer(401, status(401, "Unauthorized", "Unauthorized"))
        self.assert_502(
            self.ask(wire), "rejects the credential that Tower uses there (401)", "'tower cluster show'"
        )
        wire = answer(403, status(403, "Forbidden", DENIED))
        self.assert_502(
            self.ask(wire),
            "does not allow the credential that Tower uses there",
            "tower rbac proxy | kubectl",
        )

    def test_cut(self) -> None:
        """A rejection that is cut is not forwarded."""
        wire = answer(403, status(403, "Forbidden", RBAC))
        self.kit.user.deliver(get(PODS))
        self.kit.pipe.deliver(wire[:-1])
        self.kit.pipe.lose()
        self.assert_502(self.kit.user.taken(), "was lost before its answer was complete")
