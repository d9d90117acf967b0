"""Tests of `tower.kube.head_policy`."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote_to_bytes

import h11
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import (
    CHUNKED,
    KNOWN_FIELDS,
    LONGEST_KNOWN,
    HeadPolicy,
    Refusal,
    Rewritten,
)
from tower.kube.system_identities import SystemIdentities
from tower.member.targets import TargetRefused, Targets
from tower.net.addresses import parse_address
from tower.tunnels.targets import Target, parse_target

EVERY = SystemIdentities(allow_all=True)
LINE = b"GET /api/v1/pods?limit=500 HTTP/1.1\r\n"
JANE = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\nImpersonate-Group: system:authenticated\r\n"
JANE_SENT = b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\n"
UPSTREAM = Upstream(b"", b"Host: 10.0.0.1:6443\r\n", b"Authorization: Bearer s3cret\r\n")
REST = b"Host: tower.example:8443\r\nAccept: application/json\r\nUser-Agent: kubectl\r\n"


class HeadPolicyTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Create a policy for a server with a token."""
        self.upstream = UPSTREAM
        self.policy = HeadPolicy(lambda: self.upstream)

    def accept(self, head: bytes) -> Rewritten:
        """Return the rewritten form of an accepted head."""
        answer = self.policy.rewrite(head)
        assert isinstance(answer, Rewritten), answer
        return answer

    def refuse(self, head: bytes, words: str = "") -> None:
        """Assert that *head* is refused, for a reason with *words* in it."""
        answer = self.policy.rewrite(head)
        assert isinstance(answer, Refusal), answer
        self.assertIn(words, answer.text)

    def test_get(self) -> None:
        """The API server's host replaces the proxy's and the agent's credential comes last."""
        answer = self.accept(LINE + JANE + REST + b"\r\n")
        self.assertEqual(
            answer.head,
            LINE + JANE_SENT + b"Host: 10.0.0.1:6443\r\nAccept: application/json\r\nUser-Agent: kubectl\r\n"
            b"Authorization: Bearer s3cret\r\n\r\n",
        )
        self.assertEqual((answer.length, answer.upgrade), (0, False))

    def test_length(self) -> None:
        """A body's length is reported."""
        self.assertEqual(self.accept(LINE + b"Content-Length: 42\r\n" + JANE + REST + b"\r\n").length, 42)

    def test_chunked(self) -> None:
        """A body in chunks is reported."""
        head = LINE + b"Transfer-Encoding: chunked\r\n" + JANE + REST + b"\r\n"
        self.assertEqual(self.accept(head).length, CHUNKED)

    def test_upgrade(self) -> None:
        """An upgrade is reported, before or after Host and in any case of letters."""
        upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        self.assertTrue(self.accept(LINE + JANE + upgrade + REST + b"\r\n").upgrade)
        self.assertTrue(self.accept(LINE + JANE + REST + upgrade.lower() + b"\r\n").upgrade)
        self.assertTrue(
            self.accept(LINE + JANE + REST + b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n").upgrade
        )

    def test_other_upgrades(self) -> None:
        """An upgrade to something in which HTTP requests go on is refused."""
        for protocol in (b"h2c", b"H2C", b"HTTP/2.0", b"TLS/1.0", b"websocket, h2c", b"h2c,websocket", b""):
            self.refuse(LINE + JANE + REST + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\n\r\n")

    def test_connection_names_a_field(self) -> None:
        """Connection cannot have an intermediary strip the user's name."""
        for names in (b"Impersonate-User", b"Upgrade, Impersonate-User", b"close", b"keep-alive"):
            self.refuse(LINE + JANE + REST + b"Connection: " + names + b"\r\n\r\n")

    def test_rotated_credential(self) -> None:
        """A new token counts from the next request on."""
        self.assertIn(b"Bearer s3cret\r\n\r\n", self.accept(LINE + JANE + REST + b"\r\n").head)
        self.upstream = evolve(self.upstream, credential_line=b"Authorization: Bearer n3w\r\n")
        self.assertIn(b"Bearer n3w\r\n\r\n", self.accept(LINE + JANE + REST + b"\r\n").head)

    def test_client_certificate(self) -> None:
        """With a client certificate no credential is added."""
        self.upstream = evolve(self.upstream, credential_line=b"")
        self.assertTrue(self.accept(LINE + JANE + REST + b"\r\n").head.endswith(b"kubectl\r\n\r\n"))

    def test_prefix(self) -> None:
        """A server URL with a path has it in front of every path."""
        self.upstream = evolve(self.upstream, prefix=b"/k8s/c-1")
        head = self.accept(LINE + b"Content-Length: 2\r\n" + JANE + REST + b"\r\n").head
        self.assertTrue(
            head.startswith(
                b"GET /k8s/c-1/api/v1/pods?limit=500 HTTP/1.1\r\nContent-Length: 2\r\n" + JANE_SENT
            )
        )

    def test_known_fields(self) -> None:
        """Cached fields do not change results."""
        every: tuple[dict[str, Any], ...] = ({}, {"impersonate": False}, {"identities": EVERY})
        for rules in every:
            for prefix in (b"", b"/k8s/c-1"):
                self.upstream = evolve(self.upstream, prefix=prefix)
                self.policy = HeadPolicy(lambda: self.upstream, **rules)
                for line in (LINE, b"DELETE / HTTP/1.1\r\n", b"GET /a?b=%20 HTTP/1.1\r\n"):
                    once = HeadPolicy(lambda: self.upstream, **rules)
                    for fields in (
                        JANE + REST,
                        JANE.replace(b"jane", b"joe") + REST,
                        JANE + REST + b"A: b\r\n",
                    ):
                        head = line + fields + b"\r\n"
                        self.assertEqual(self.accept(head), once.rewrite(head))
                        self.assertEqual(self.accept(head), once.rewrite(head))
        for line in (b"GET /\xff HTTP/1.1\r\n", b"CONNECT / HTTP/1.1\r\n", b"GET / HTTP/1.0\r\n", b""):
            self.refuse(line + JANE + REST + b"\r\n")
        self.refuse(LINE + LINE + JANE + REST + b"\r\n")

    def test_audit_ids(self) -> None:
        """A last field with an audit ID goes along, and fields that differ in it alone are the same."""
        for number in range(3):
            told = b"Audit-Id: 5c8320d2-b348-4271-a5bc-%012x\r\n" % number
            for fields in (JANE + REST, b"Content-Length: 2\r\n" + JANE + REST):
                with_it = self.accept(LINE + fields + told + b"\r\n")
                without = self.accept(LINE + fields + b"\r\n")
                self.assertEqual(with_it.head.replace(told, b"", 1), without.head)
                self.assertEqual((with_it.length, with_it.upgrade), (without.length, without.upgrade))
        self.assertEqual(len(self.policy._known), 1)

    def test_audit_ids_hide_nothing(self) -> None:
        """Fields that only begin like an audit ID are checked, and so are the fields before them."""
        identifier = b"5c8320d2-b348-4271-a5bc-000000000001"
        self.accept(LINE + JANE + REST + b"\r\n")
        for fields in (
            REST,
            JANE + JANE + REST,
            JANE + REST + b"Impersonate-User: joe\r\n",
            JANE + REST + b"Authorization: Bearer x\r\n",
            JANE + REST + b"X: y\n",
        ):
            self.refuse(LINE + fields + b"Audit-Id: " + identifier + b"\r\n\r\n")
        self.refuse(LINE + b"Audit-Id: " + identifier + b"\r\n\r\n")
        for strange in (
            b"\nImpersonate-User: joe\nX: 1234567890123",
            b"x\r\nHost: y\r\nImpersonate-User: joe\r\nXx",
        ):
            self.refuse(LINE + JANE + REST + b"Audit-Id: " + strange.ljust(36, b"z") + b"\r\n\r\n")
        for other in (b"Audit-Id: my-own\r\n", b"X: yAudit-Id: " + identifier + b"\r\n"):
            self.assertIn(b"\r\n" + other, self.accept(LINE + JANE + REST + other + b"\r\n").head)

    def test_known_fields_do_not_hide_a_body(self) -> None:
        """The same fields with a body, or with an upgrade, are another thing."""
        self.assertEqual(self.accept(LINE + JANE + REST + b"\r\n").length, 0)
        for _ in range(2):
            self.assertEqual(self.accept(LINE + b"Content-Length: 7\r\n" + JANE + REST + b"\r\n").length, 7)
            upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            self.assertTrue(self.accept(LINE + JANE + REST + upgrade + b"\r\n").upgrade)

    def test_known_fields_are_bounded(self) -> None:
        """However many fields come, and however long, few are kept; all are answered as the first."""
        known = self.policy._known
        for number in range(2 * KNOWN_FIELDS + 2):
            field = b"X-A: %d\r\n" % number
            self.assertIn(field, self.accept(LINE + JANE + REST + field + b"\r\n").head)
            self.assertLessEqual(len(known), KNOWN_FIELDS)
        size = len(known)
        self.accept(LINE + JANE + REST + b"X-A: %b\r\n\r\n" % (b"a" * LONGEST_KNOWN))
        self.assertEqual(len(known), size)

    def test_repr(self) -> None:
        """The credential does not show in a repr."""
        self.assertNotIn("s3cret", repr(self.accept(LINE + JANE + REST + b"\r\n")))

    def test_no_user(self) -> None:
        """A request without a user is never sent with the agent's rights."""
        self.refuse(LINE + REST + b"\r\n", "impersonates no user")
        self.refuse(LINE + b"Impersonate-Group: dev\r\n" + REST + b"\r\n", "impersonates no user")

    def test_empty_user(self) -> None:
        """An empty or blank user name is rejected."""
        for name in (b"", b" ", b"\t"):
            self.refuse(
                LINE + b"Impersonate-User: " + name + b"\r\n" + REST + b"\r\n", "impersonates no user"
            )

    def test_two_users(self) -> None:
        """Two users are refused, wherever the second one is and however it is written."""
        for name in (b"Impersonate-User", b"impersonate-user", b"IMPERSONATE-USER"):
            second = name + b": root\r\n"
            self.refuse(LINE + JANE + second + REST + b"\r\n", "more than one")
            self.refuse(LINE + JANE + REST + second + b"\r\n", "more than one")

    def test_late_user(self) -> None:
        """A misplaced user is rejected."""
        self.refuse(LINE + REST + JANE + b"\r\n")

    def test_late_group(self) -> None:
        """A group, uid or extra behind the rest is refused."""
        for name in (
            b"Impersonate-Group",
            b"impersonate-group",
            b"Impersonate-Uid",
            b"Impersonate-Extra-Scopes",
        ):
            self.refuse(LINE + JANE + REST + name + b": x\r\n\r\n")

    def test_uid_and_extra(self) -> None:
        """A uid and extras in the right position are forwarded."""
        extra = b"Impersonate-Uid: 17\r\nImpersonate-Extra-example.com%2fteam: blue\r\n"
        self.assertIn(JANE_SENT + extra, self.accept(LINE + JANE + extra + REST + b"\r\n").head)

    def test_authorization(self) -> None:
        """A credential from outside is refused and not quoted."""
        for name in (b"Authorization", b"authorization", b"AUTHORIZATION"):
            head = LINE + JANE + REST + name + b": Bearer abc\r\n\r\n"
            self.refuse(head, "the request has a credential")
            answer = self.policy.rewrite(head)
            assert isinstance(answer, Refusal)
            self.assertNotIn("abc", answer.text)

    def test_remote_user(self) -> None:
        """The fields of an authenticating proxy are refused."""
        self.refuse(LINE + JANE + REST + b"X-Remote-User: root\r\n\r\n")
        self.refuse(LINE + JANE + REST + b"x-remote-group: system:masters\r\n\r\n")
        self.refuse(LINE + JANE + REST + b"X_Remote_User: root\r\n\r\n")  # some servers take "_" for "-"
        self.refuse(LINE + JANE + REST + b"Impersonate_User: root\r\n\r\n")

    def test_system_identities(self) -> None:
        """System identities are rejected, and the answer names the flag."""
        for name in (
            b"system:masters",
            b"system:node:one",
            b"system:nodes",
            b"system:kube-controller-manager",
            b"system:kube-proxy",
            b"system:serviceaccount:kube-system:admin",
            b"system:serviceaccounts",
            b"system:masters \t",
        ):
            user = b"Impersonate-User: " + name + b"\r\n"
            self.refuse(LINE + user + REST + b"\r\n", "--allow-system-identity")
            group = (
                b"Impersonate-User: jane\r\nImpersonate-Group: dev\r\nImpersonate-Group: " + name + b"\r\n"
            )
            self.refuse(LINE + group + REST + b"\r\n", "--allow-system-identity")

    def test_padded_system_identity(self) -> None:
        """Blanks in front, which the API server would strip, do not hide a name."""
        for blank in (b" ", b"\t", b"  "):
            self.refuse(LINE + b"Impersonate-User: " + blank + b"system:masters\r\n" + REST + b"\r\n")
            self.refuse(LINE + JANE + b"Impersonate-Group: " + blank + b"system:masters\r\n" + REST + b"\r\n")

    def test_every_system_identity(self) -> None:
        """Names with the prefix ``system:`` and administrators' names are rejected as user and as group."""
        for name in (
            b"system:admin",
            b"system:cluster-admins",
            b"system:bootstrappers:kubeadm:default-node-token",
            b"system:unauthenticated",
            b"system:monitoring",
            b"system:",
            b"system:\xff",
            b"kubeadm:cluster-admins",
            b"kubeadm:cluster-admins \t",
            b" kubeadm:cluster-admins",
        ):
            shown = name.strip().decode("ascii", "ignore")
            self.refuse(LINE + b"Impersonate-User: " + name + b"\r\n" + REST + b"\r\n", f'act as "{shown}"; ')
            group = b"Impersonate-User: jane\r\nImpersonate-Group: " + name + b"\r\n"
            self.refuse(LINE + group + REST + b"\r\n", f'act as "{shown}"; ')
        self.refuse(
            LINE + b"Impersonate-User: system:authenticated\r\n" + REST + b"\r\n",
            "does not allow users to act as",
        )

    def test_other_names(self) -> None:
        """Names that only look like system identities are accepted: Kubernetes compares them byte by byte."""
        for name in (b"masters", b"System:masters", b"system", b"kubeadm:cluster-admin", b"xsystem:masters"):
            self.accept(LINE + b"Impersonate-User: " + name + b"\r\n" + REST + b"\r\n")
            group = b"Impersonate-User: jane\r\nImpersonate-Group: " + name + b"\r\n"
            self.assertIn(group, self.accept(LINE + group + REST + b"\r\n").head)

    def test_blanks_around_names(self) -> None:
        """A name that the API server would trim is in no form that the proxy writes."""
        for name in (b"jane ", b"jane\t", b" jane", b"\tjane"):
            self.refuse(LINE + b"Impersonate-User: " + name + b"\r\n" + REST + b"\r\n", "form")
            group = b"Impersonate-User: jane\r\nImpersonate-Group: " + name + b"\r\n"
            self.refuse(LINE + group + REST + b"\r\n", "form")

    def test_authenticated(self) -> None:
        """The group that the API server adds by itself is left out, unless the owner allows it."""
        jane = (
            b"Impersonate-User: jane\r\nImpersonate-Group: system:authenticated\r\nImpersonate-Group: dev\r\n"
        )
        for _ in range(2):
            head = self.accept(LINE + jane + REST + b"\r\n").head
            self.assertIn(b"\r\nImpersonate-User: jane\r\nImpersonate-Group: dev\r\nHost: ", head)
            self.assertNotIn(b"system:authenticated", head)
        for padded in (b"system:authenticated ", b" system:authenticated"):
            group = b"Impersonate-User: jane\r\nImpersonate-Group: " + padded + b"\r\n"
            self.refuse(LINE + group + REST + b"\r\n", "does not allow users to act as")
        for identities in (EVERY, SystemIdentities(["system:authenticated"])):
            self.policy = HeadPolicy(lambda: self.upstream, identities=identities)
            self.assertIn(jane, self.accept(LINE + jane + REST + b"\r\n").head)

    def test_allowed_identity(self) -> None:
        """The owner may allow one by its name, and no other with it."""
        self.policy = HeadPolicy(lambda: self.upstream, identities=SystemIdentities(["system:monitoring"]))
        for line in (b"Impersonate-User: ", b"Impersonate-User: jane\r\nImpersonate-Group: "):
            self.accept(LINE + line + b"system:monitoring\r\n" + REST + b"\r\n")
            self.refuse(LINE + line + b"system:monitoring2\r\n" + REST + b"\r\n", '"system:monitoring2"')
            self.refuse(LINE + line + b"system:masters\r\n" + REST + b"\r\n", '"system:masters"')

    def test_allow_system_identities(self) -> None:
        """The owner may allow them."""
        self.policy = HeadPolicy(lambda: self.upstream, identities=EVERY)
        head = LINE + b"Impersonate-User: admin\r\nImpersonate-Group: system:masters\r\n" + REST + b"\r\n"
        self.assertIn(b"system:masters", self.accept(head).head)
        self.refuse(LINE + REST + b"\r\n", "impersonates no user")

    def test_no_impersonation(self) -> None:
        """The owner may have all act as the agent: the user is dropped, the rest of the rules stay."""
        self.policy = HeadPolicy(lambda: self.upstream, impersonate=False)
        answer = self.accept(LINE + b"Content-Length: 3\r\n" + JANE + REST + b"\r\n")
        self.assertEqual(
            answer.head,
            LINE + b"Content-Length: 3\r\nHost: 10.0.0.1:6443\r\nAccept: application/json\r\n"
            b"User-Agent: kubectl\r\nAuthorization: Bearer s3cret\r\n\r\n",
        )
        self.refuse(LINE + REST + b"\r\n", "impersonates no user")
        self.refuse(LINE + JANE + REST + b"Impersonate-User: root\r\n\r\n")

    def test_host(self) -> None:
        """Exactly one Host is wanted."""
        accept = b"Accept: */*\r\n"
        self.refuse(LINE + JANE + accept + b"\r\n")
        self.refuse(LINE + JANE + REST + b"Host: other\r\n\r\n")
        self.refuse(LINE + JANE + REST + b"host: other\r\n\r\n")

    def test_framing(self) -> None:
        """Two lengths, length and chunks, other codings and misplaced framing are rejected."""
        for framing in (
            b"Content-Length: 1\r\nContent-Length: 1\r\n",
            b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
            b"Transfer-Encoding: gzip, chunked\r\n",
            b"Transfer-Encoding: identity\r\n",
            b"content-length: 1\r\n",
            b"Content-Length: +1\r\n",
            b"Content-Length: -1\r\n",
            b"Content-Length: 0x1\r\n",
            b"Content-Length: 1, 1\r\n",
            b"Content-Length: \r\n",
            b"Content-Length: " + b"9" * 19 + b"\r\n",
        ):
            self.refuse(LINE + framing + JANE + REST + b"\r\n")
        for late in (b"Content-Length: 1\r\n", b"content-length: 1\r\n", b"TRANSFER-ENCODING: chunked\r\n"):
            self.refuse(LINE + JANE + REST + late + b"\r\n")

    def test_shapes(self) -> None:
        """Folded lines, bare line ends, NULs, blanks before the colon and broken fields are refused."""
        for field in (
            b"X-A: 1\r\n more\r\n",
            b"X-A: 1\n",
            b"X-A: 1\rX-B: 2\r\n",
            b"X-A: \0\r\n",
            b"X-A: \x7f\r\n",
            b"X-A : 1\r\n",
            b" X-A: 1\r\n",
            b"X-A\r\n",
            b": 1\r\n",
            b"X A: 1\r\n",
            b"X-A: 1\r\n\r\nGET / HTTP/1.1\r\n",
        ):
            self.refuse(LINE + JANE + REST + field + b"\r\n")

    def test_request_lines(self) -> None:
        """Absolute URIs, other versions, CONNECT, other methods and blanks in the path are refused."""
        for line in (
            b"GET http://other/ HTTP/1.1",
            b"GET / HTTP/1.0",
            b"GET / HTTP/2.0",
            b"GET /",
            b"GET * HTTP/1.1",
            b"CONNECT / HTTP/1.1",
            b"get / HTTP/1.1",
            b"GET  / HTTP/1.1",
            b"GET /a b HTTP/1.1",
            b"GET /\xff HTTP/1.1",
            b"GET / HTTP/1.1 ",
        ):
            self.refuse(line + b"\r\n" + JANE + REST + b"\r\n", "form")

    def test_incomplete(self) -> None:
        """An incomplete head is never accepted as a complete one."""
        head = LINE + JANE + REST + b"\r\n"
        for end in range(len(head)):
            self.refuse(head[:end])
        self.refuse(head + b"x")

    def test_identity_without_a_colon(self) -> None:
        """A line of an identity is a field like every other."""
        for line in (
            b"Impersonate-Uid",
            b"Impersonate-Uid:x",
            b"Impersonate-Extra-a",
            b"Impersonate-Extra-: a",
        ):
            self.refuse(LINE + JANE + line + b"\r\n" + REST + b"\r\n", "form")
        for line in (b"Impersonate-User", b"Impersonate-Group", b"Impersonate-Group:x", b"Impersonate-: x"):
            self.refuse(LINE + JANE + line + b"\r\n" + REST + b"\r\n")
        for line in (
            b"Impersonate-User:jane",
            b"Impersonate-User",
            b"Impersonate-User ",
            b"impersonate-user: jane",
        ):
            self.refuse(LINE + line + b"\r\n" + REST + b"\r\n", "form")

    def test_known_fields_with_another_length(self) -> None:
        """After a length, cached fields are used as without one, and nothing else is."""
        for framing, length in (
            (b"", 0),
            (b"Content-Length: 7\r\n", 7),
            (b"Content-Length: 0\r\n", 0),
            (b"Transfer-Encoding: chunked\r\n", CHUNKED),
        ):
            answer = self.accept(LINE + framing + JANE + REST + b"\r\n")
            self.assertEqual(answer.length, length)
            self.assertTrue(answer.head.startswith(LINE + framing + JANE_SENT))
        self.assertEqual(len(self.policy._known), 1)
        for framing in (
            b"Content-Length: 7\r\nContent-Length: 7\r\n",
            b"Transfer-Encoding: chunked\r\nContent-Length: 7\r\n",
            b"Content-Length: 7\r\nTransfer-Encoding: chunked\r\n",
            b"Content-Length: 7",
            b"Content-Length: 7\n",
            b"Content-Length: \xb2\r\n",
            b"Transfer-Encoding: chunked",
        ):
            self.refuse(LINE + framing + JANE + REST + b"\r\n")

    def test_other_credentials(self) -> None:
        """No other field brings a credential: not to the API server, and not to a proxy before it."""
        token = b"base64url.bearer.authorization.k8s.io.c3lzdGVt"
        for field in (
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io, " + token,
            b"sec-websocket-protocol: " + token,
            b"SEC-WEBSOCKET-PROTOCOL: " + token.upper() + b",v4.channel.k8s.io",
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\nSec-WebSocket-Protocol: " + token,
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io,\xc2\xa0" + token,
            b"Sec-WebSocket-Protocol: \t,," + token,
            b"Proxy-Authorization: Basic c3lzdGVt",
            b"proxy-authorization: Basic c3lzdGVt",
        ):
            for upgrade in (b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b""):
                head = LINE + JANE + REST + upgrade + field + b"\r\n\r\n"
                self.refuse(head, "the request has a credential")
                answer = self.policy.rewrite(head)
                assert isinstance(answer, Refusal)
                self.assertNotIn("c3lzdGVt", answer.text)
        protocols = b"Sec-WebSocket-Protocol: v5.channel.k8s.io,v4.channel.k8s.io\r\n"
        self.assertIn(protocols, self.accept(LINE + JANE + REST + protocols + b"\r\n").head)

    def test_dot_segments(self) -> None:
        """A path with a dot segment is refused, wherever the API server is."""
        for prefix in (b"", b"/k8s/c-1"):
            self.upstream = evolve(self.upstream, prefix=prefix)
            for path in (
                b"/..",
                b"/api/../x",
                b"/api/%2E%2e/x",
                b"/a;/..",
                b"/a\\..",
                b"/a/..;x/b",
                b"/a/.?b",
            ):
                for _ in range(2):
                    self.refuse(b"GET " + path + b" HTTP/1.1\r\n" + JANE + REST + b"\r\n", "dot segment")
            for path in (b"/a..b", b"/.well-known/x", b"/...", b"/a?b=/../c", b"/a%2eb", b"/a;b=.c"):
                head = self.accept(b"GET " + path + b" HTTP/1.1\r\n" + JANE + REST + b"\r\n").head
                self.assertTrue(head.startswith(b"GET " + prefix + path + b" HTTP/1.1\r\n"))

    def test_behind_a_server_path(self) -> None:
        """Paths that may leave the server's path are rejected if there is one, and forwarded otherwise."""
        for path in (b"//a", b"/a//b", b"/a\\b", b"/a%5Cb", b"/a/%2fb", b"/a/%252fb", b"/a%2f%2Fb"):
            head = b"GET " + path + b" HTTP/1.1\r\n" + JANE + REST + b"\r\n"
            self.upstream = evolve(self.upstream, prefix=b"")
            self.assertTrue(self.accept(head).head.startswith(b"GET " + path + b" HTTP/1.1\r\n"))
            self.upstream = evolve(self.upstream, prefix=b"/k8s/c-1")
            self.refuse(head, "an empty segment or a backslash")
        for path in (b"/", b"/a/", b"/a%2fb", b"/a?b=//c\\d", b"/a;b/c"):
            head = self.accept(b"GET " + path + b" HTTP/1.1\r\n" + JANE + REST + b"\r\n").head
            self.assertTrue(head.startswith(b"GET /k8s/c-1" + path + b" HTTP/1.1\r\n"))

    def test_fragment(self) -> None:
        """A target has no fragment, behind which servers could disagree about the path."""
        for target in (b"/a#b", b"/#/../x", b"/a?b#c"):
            self.refuse(b"GET " + target + b" HTTP/1.1\r\n" + JANE + REST + b"\r\n", "form")

    def test_counts(self) -> None:
        """Refusals are counted."""
        self.refuse(b"")
        self.accept(LINE + JANE + REST + b"\r\n")
        self.assertEqual(self.policy.refused, 1)

    def test_hostile_length(self) -> None:
        """The largest head is rejected in little time."""
        self.refuse(LINE + JANE + REST + b"X-A: 1\r\n" * 8000 + b"X-B\r\n\r\n")


#: Lines of ambiguous heads.
LINES = st.sampled_from(
    [
        *(
            b"Impersonate-User: jane",
            b"Impersonate-User: root",
            b"impersonate-user: root",
            b"Impersonate_User: root",
        ),
        *(
            b"Impersonate-User: system:admin",
            b"Impersonate-User: kubeadm:cluster-admins",
            b"Impersonate-User:root",
        ),
        *(
            b"Impersonate-Group: dev",
            b"Impersonate-Group: system:authenticated",
            b"Impersonate-Group: system:masters",
        ),
        *(
            b"Impersonate-Group:  system:masters",
            b"Impersonate-Group: kubeadm:cluster-admins\t",
            b"Impersonate-Uid: 1",
        ),
        *(
            b"Impersonate-Extra-a%2fb: c",
            b"Host: x",
            b"host: y",
            b"Accept: a",
            b"X-Remote-User: root",
            b"A",
            b"A: b\n",
        ),
        *(
            b"Authorization: Bearer x",
            b"Content-Length: 1",
            b"Content-Length: 2",
            b"Transfer-Encoding: chunked",
        ),
        *(
            b"Connection: Upgrade",
            b"Upgrade: websocket",
            b"Upgrade: h2c",
            b"Connection: Host",
            b" folded: x",
            b"",
        ),
        *(
            b"Sec-WebSocket-Protocol: v4.channel.k8s.io",
            b"Proxy-Authorization: Basic x",
            b"A : b",
            b"A: b\rC: d",
        ),
        b"Sec-WebSocket-Protocol: a,base64url.bearer.authorization.k8s.io.YWJj",
    ]
)
PIECES = st.sampled_from(
    [b"/", b".", b"..", b"a", b"%2e", b"%2F", b"%5c", b"\\", b";", b"?", b"%25", b"#", b" "]
)


class PropertyTests(SynchronousTestCase):
    @settings(max_examples=1000, deadline=None)
    @given(
        st.sampled_from([b"", b"/k8s/clusters/c-abc"]),
        st.lists(PIECES, max_size=6),
        st.lists(LINES, max_size=3),
        st.lists(LINES, max_size=5),
    )
    def test_by_other_readers(
        self, prefix: bytes, path: list[bytes], first: list[bytes], last: list[bytes]
    ) -> None:
        """For other parsers, an accepted head is one request of one ordinary user, with the agent's token."""
        upstream = evolve(UPSTREAM, prefix=prefix)
        target = b"/" + b"".join(path)
        block = b"\r\n".join([*first, b"Impersonate-User: jane", b"Host: x", *last, b"\r\n"])
        answer = HeadPolicy(lambda: upstream).rewrite(b"GET %b HTTP/1.1\r\n%b" % (target, block))
        if isinstance(answer, Refusal):
            return
        connection = h11.Connection(h11.SERVER)
        connection.receive_data(answer.head)
        event = connection.next_event()
        assert isinstance(event, h11.Request), event
        fields = [(bytes(name), bytes(value)) for name, value in event.headers]
        by_hand = [
            (name.lower(), value)
            for name, value in (line.split(b": ", 1) for line in answer.head[:-4].split(b"\r\n")[1:])
        ]
        for read in (fields, by_hand):
            named = [(name.replace(b"_", b"-"), value) for name, value in read]
            self.assertEqual([value for name, value in named if name == b"impersonate-user"], [b"jane"])
            groups = [value for name, value in named if name == b"impersonate-group"]
            self.assertEqual(set(groups) - {b"dev"}, set())
            self.assertEqual([v for name, v in named if name == b"authorization"], [b"Bearer s3cret"])
            self.assertEqual([value for name, value in named if name == b"host"], [b"10.0.0.1:6443"])
            self.assertFalse([name for name, _ in named if name.startswith((b"x-remote", b"proxy-"))])
            lengths = [value for name, value in named if name == b"content-length"]
            chunked = [value for name, value in named if name == b"transfer-encoding"]
            self.assertLessEqual(len(lengths) + len(chunked), 1)
            self.assertEqual(answer.length, int(lengths[0]) if lengths else CHUNKED if chunked else 0)
        self.assertNotIn(b"bearer.authorization", answer.head)
        sent = bytes(event.target).partition(b"?")[0]
        self.assertTrue(sent.startswith(prefix + b"/"))
        for _ in range(4):
            self.assertTrue({b".", b".."}.isdisjoint(re.split(rb"[/\\;]", sent)), sent)
            self.assertFalse(prefix and (b"//" in sent or b"\\" in sent), sent)
            sent = unquote_to_bytes(sent)


class TargetTests(SynchronousTestCase):
    def test_parse(self) -> None:
        """Names, addresses and IPv6 in brackets are read."""
        self.assertEqual(parse_target("db=10.0.0.5:5432"), Target("db", "10.0.0.5", 5432))
        self.assertEqual(parse_target("a.b-c=svc.ns.svc:80"), Target("a.b-c", "svc.ns.svc", 80))
        self.assertEqual(parse_target("six=[fd00::1]:443"), Target("six", "fd00::1", 443))

    def test_bad(self) -> None:
        """Malformed targets are named in the error."""
        for text in (
            "",
            "db",
            "db=",
            "=h:1",
            "db=h",
            "db=h:",
            "db=h:0",
            "db=h:65536",
            "db=h:x",
            "DB=h:1",
            "d b=h:1",
        ):
            error = self.assertRaises(ConfigurationError, parse_target, text)
            self.assertIn(repr(text.partition("=")[2])[1:-1], str(error))

    def test_reserved(self) -> None:
        """The API server cannot be a plain target, which would bypass the policy."""
        error = self.assertRaises(ConfigurationError, parse_target, "kubernetes=10.0.0.1:6443")
        self.assertIn("--kubernetes-service", str(error))

    def test_address(self) -> None:
        """A default port is used where one is allowed."""
        self.assertEqual(parse_address("h", 443), ("h", 443))
        self.assertEqual(parse_address("h:6443", 443), ("h", 6443))
        self.assertEqual(parse_address("fd00::1", 443), ("fd00::1", 443))
        self.assertEqual(parse_address("[fd00::1]", 443), ("fd00::1", 443))
        self.assertRaises(ConfigurationError, parse_address, "h")

    def test_find(self) -> None:
        """Only what the owner named is found."""
        targets = Targets([Target("db", "10.0.0.5", 5432)])
        self.assertEqual(targets.find("db").port, 5432)
        self.assertEqual(targets.names, ["kubernetes", "db"])

    def test_refused(self) -> None:
        """An unknown name and an address are refused, each with its code and the cure."""
        targets = Targets()
        unknown = self.assertRaises(TargetRefused, targets.find, "db")
        self.assertEqual(unknown.code, "no-such-target")
        self.assertIn("--target db=host:port", str(unknown))
        for address in ("10.0.0.5:5432", "", "x" * 100, "a\nb"):
            self.assertEqual(self.assertRaises(TargetRefused, targets.find, address).code, "not-allowed")

    def test_twice(self) -> None:
        """A name given twice is a mistake."""
        target = Target("db", "10.0.0.5", 5432)
        self.assertRaises(ConfigurationError, Targets, [target, target])
