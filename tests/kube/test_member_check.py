"""Tests of `tower.kube.member_check`: a client against an API server in memory."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from typing import Any

from twisted.internet.defer import Deferred, fail
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.http import Request

from tests.fakes.apiservers import Member
from tower.errors import ConfigurationError
from tower.kube.client import APIClient
from tower.kube.connection_settings import CredentialFacts, Lifetime
from tower.kube.head_fields import Upstream
from tower.kube.kubeconfig import KubeAccess
from tower.kube.member_check import TIMEOUT, MemberChecker
from tower.kube.member_cures import agent_texts, is_known, old_agent_texts, proxy_texts
from tower.kube.member_report import read_report, write_report
from tower.kube.member_status import CHECK_KINDS, UNCHECKED, Check, MemberStatus
from tower.net.connecting import ConnectFailed
from tower.net.pipes import Pipe

NOW = 1_800_000_000.0
DAY = 86_400.0
UPSTREAM = Upstream(b"", b"Host: api:6443\r\n", b"Authorization: Bearer sesame\r\n")
ACCESS = KubeAccess("https://api:6443", user="agent of a")
AGENT = "system:serviceaccount:tower-system:tower-agent"


def rule(resource: str, *names: str) -> dict[str, Any]:
    """Return a rule that allows to impersonate."""
    return {"verbs": ["impersonate"], "apiGroups": [""], "resources": [resource], "resourceNames": names}


class CheckCase(SynchronousTestCase):
    """A test case with a member whose API server allows everything."""

    def setUp(self) -> None:
        """Create an API server that answers as a recent release does."""
        self.member = Member()
        self.member.answer = self.answer
        self.now = NOW
        self.server_clock = NOW
        self.facts = CredentialFacts("token", Lifetime(NOW - DAY, NOW + 300 * DAY))
        self.impersonates = True
        self.unverified: APIClient | None = None
        self.open: Callable[[], Awaitable[Pipe]] = self.member.open
        self.allowed: set[str] = {"users", "groups"}
        self.rules: Any = []
        #: Answers that replace the usual ones, by the last part of the path.
        self.answers: dict[str, tuple[int, Any]] = {}

    def answer(self, request: Request) -> tuple[int, bytes]:
        """Answer a request."""
        request.setHeader(b"date", formatdate(self.server_clock, usegmt=True).encode())
        name = request.path.decode().rpartition("/")[2]
        code, value = self.answers.get(name) or self.usual(name, request)
        return code, value if isinstance(value, bytes) else json.dumps(value).encode()

    def usual(self, name: str, request: Request) -> tuple[int, Any]:
        """Return the answer of a healthy API server."""
        if name == "version":
            return 200, {"gitVersion": "v1.36.2"}
        if name == "readyz":
            return 200, b"ok"
        if name == "selfsubjectreviews":
            return 201, {"status": {"userInfo": {"username": AGENT}}}
        if name == "selfsubjectrulesreviews":
            return 201, {"status": {"resourceRules": self.rules}}
        assert request.content is not None
        attributes = json.loads(request.content.read())["spec"]["resourceAttributes"]
        self.assertEqual(attributes["verb"], "impersonate")
        return 201, {"status": {"allowed": attributes["resource"] in self.allowed}}

    def begin(self, **changes: Any) -> Deferred[MemberStatus]:
        """Begin a check."""
        checker = MemberChecker(
            self.member.clock,
            APIClient(self.member.clock, self.open, lambda: UPSTREAM),
            lambda: "api:6443",
            lambda: self.facts,
            changes.get("texts", agent_texts("/etc/k", ACCESS)),
            epoch=lambda: self.now,
            impersonate=self.impersonates,
            unverified=self.unverified,
        )
        return Deferred.fromCoroutine(checker.check())

    def check(self, **changes: Any) -> MemberStatus:
        """Return the result of a check, which leaves nothing open."""
        checking = self.begin(**changes)
        self.member.serve()
        status = self.successResultOf(checking)
        self.assertEqual(self.member.clock.getDelayedCalls(), [])
        self.assertTrue(all(pipe.lost for pipe in self.member.pipes))
        received = read_report(write_report(status), "the agent of alpha")
        for kind, check, reported in zip(CHECK_KINDS, status.checks, received.checks, strict=True):
            self.assertNotIn("sesame", check.text)
            self.assertEqual((reported.status, reported.reason), (check.status, check.reason))
            self.assertTrue(is_known(kind, check.status, check.reason))
            self.assertTrue(check.cure or check.status == "True" or check == UNCHECKED, check)
        return status

    def is_false(self, check: Check, reason: str, *parts: str) -> None:
        """Assert that *check* failed, with *parts* in its message."""
        self.assertEqual((check.status, check.reason), ("False", reason), check.message)
        for part in parts:
            self.assertIn(part, check.text)

    def is_true(self, check: Check, reason: str, *parts: str) -> None:
        """Assert that *check* succeeded, with *parts* in its message."""
        self.assertEqual((check.status, check.reason), ("True", reason), check.message)
        for part in parts:
            self.assertIn(part, check.text)


class HealthyTests(CheckCase):
    """A member that works."""

    def test_all(self) -> None:
        """All checks succeed, on one connection, with the credential and nothing else's rights."""
        status = self.check()
        self.is_true(status.api_server, "Reachable", "api:6443")
        self.is_true(status.credential, "CredentialAccepted", AGENT)
        self.is_true(status.impersonation, "ImpersonationAllowed")
        self.assertEqual((status.version, status.credential_expires), ("v1.36.2", NOW + 300 * DAY))
        self.assertEqual(status.clock_offset, -0.5)
        self.assertEqual(len(self.member.pipes), 1)
        for request in self.member.requests:
            self.assertEqual(request.getHeader(b"authorization"), b"Bearer sesame")
            self.assertIsNone(request.getHeader(b"impersonate-user"))

    def test_old_release(self) -> None:
        """An API server without SelfSubjectReview is checked with the access review."""
        self.answers["selfsubjectreviews"] = (404, b"404 page not found\n")
        status = self.check()
        self.is_true(status.credential, "CredentialAccepted")
        self.is_true(status.impersonation, "ImpersonationAllowed")

    def test_no_impersonation(self) -> None:
        """Without impersonation the right is not required, and not asked about."""
        self.impersonates, self.allowed = False, set()
        self.is_true(self.check().impersonation, "ImpersonationNotRequired")
        self.assertNotIn(b"/apis/authorization.k8s.io", b"".join(r.uri for r in self.member.requests))

    def test_hidden_paths(self) -> None:
        """An API server that shows neither its version nor its readiness to the credential still answers."""
        status = {"kind": "Status", "message": "forbidden"}
        self.answers |= {"version": (403, status), "readyz": (403, status)}
        found = self.check()
        self.is_true(found.api_server, "Reachable")
        self.is_true(found.impersonation, "ImpersonationAllowed")
        self.assertEqual(found.version, "")

    def test_shutdown(self) -> None:
        """An API server that shuts down but still serves requests is ready."""
        self.answers["readyz"] = (
            500,
            b"[+]ping ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n",
        )
        self.is_true(self.check().api_server, "Reachable")


class ServerTests(CheckCase):
    """API servers that are not usable."""

    def failure(self, error: Exception, **changes: Any) -> Check:
        """Return the check of an API server to which no connection is possible."""
        self.open = lambda: fail(error)
        status = self.check(**changes)
        self.assertEqual((status.credential, status.impersonation), (UNCHECKED, UNCHECKED))
        return status.api_server

    def test_no_connection(self) -> None:
        """The reason of a failed connection and its cure are named."""
        for kind, reason, part in (
            ("refused", "ConnectionRefused", "start the API server"),
            ("unreachable", "Unreachable", "check the network"),
            ("timeout", "Timeout", "firewalls"),
            ("name", "NameNotResolved", "DNS"),
        ):
            check = self.failure(ConnectFailed(kind, "api:6443: no"))
            self.is_false(check, reason, part, "api:6443", "--kubernetes-service")

    def test_certificates(self) -> None:
        """The reason why a certificate is invalid is named."""
        for text, reason in (
            ("unable to get local issuer certificate", "CertificateUntrusted"),
            ("self-signed certificate in certificate chain", "CertificateUntrusted"),
            ("certificate signature failure", "CertificateUntrusted"),
            ("Hostname mismatch, certificate is not valid for 'a'.", "CertificateWrongName"),
            ("IP address mismatch, certificate is not valid for '::1'.", "CertificateWrongName"),
            ("certificate has expired", "CertificateExpired"),
            ("certificate is not yet valid", "CertificateNotYetValid"),
            ("wrong version number", "TLSFailed"),
        ):
            error = ConnectFailed("tls", f"api:6443: certificate verify failed: {text}")
            self.is_false(self.failure(error), reason, text)

    def test_texts(self) -> None:
        """The cure fits the program that checks."""
        for texts, part in (
            (agent_texts("", ACCESS), "network policies"),
            (agent_texts("/etc/k", ACCESS), "/etc/k"),
            (proxy_texts("alpha"), "tower cluster set alpha --member-kubeconfig"),
            (old_agent_texts("alpha"), "restart it"),
        ):
            self.is_false(
                self.failure(ConnectFailed("refused", "no"), texts=texts), "ConnectionRefused", part
            )

    def test_busy(self) -> None:
        """Without a file descriptor nothing is known about the API server."""
        check = self.failure(ConnectFailed("busy", "too many open files"))
        self.assertEqual((check.status, check.reason), ("Unknown", "CheckFailed"))

    def test_dates(self) -> None:
        """If the certificate's dates are the problem, the clock is compared without the credential."""
        for text, offset, part in (
            ("certificate is not yet valid", -3600.0, "60m behind"),
            ("certificate has expired", 2 * DAY, "2d ahead of"),
            ("certificate has expired", 0.0, "renew it"),
        ):
            self.server_clock = NOW - offset
            self.unverified = APIClient(
                self.member.clock, self.member.open, lambda: Upstream(b"", b"Host: api:6443\r\n", b"")
            )
            error = ConnectFailed("tls", f"api:6443: certificate verify failed: {text}")
            check = self.failure(error)
            self.assertEqual(check.status, "False")
            self.assertIn(part, check.text)
            self.assertIsNone(self.member.requests[-1].getHeader(b"authorization"))

    def test_frozen(self) -> None:
        """An API server that accepts connections and does not answer is noticed in time."""
        checking = self.begin()
        self.member.clock.advance(TIMEOUT - 0.1)
        self.assertNoResult(checking)
        self.member.clock.pump([0.2, 0.0])
        status = self.successResultOf(checking)
        self.is_false(status.api_server, "Timeout", "in time", "frozen")
        self.assertTrue(self.member.pipes[0].lost)
        self.assertEqual(self.member.clock.getDelayedCalls(), [])

    def test_frozen_later(self) -> None:
        """Everything found before the API server froze is reported."""
        checking = self.begin()
        self.member.pipes[0].serve()
        self.member.clock.pump([TIMEOUT, 0.0])
        status = self.successResultOf(checking)
        self.is_false(status.api_server, "Timeout")
        self.assertEqual(status.version, "v1.36.2")

    def test_slow(self) -> None:
        """An API server that answers too slowly for all checks is not regarded as frozen."""
        checking = self.begin()
        self.member.clock.advance(5.0)
        self.member.pipes[0].serve()
        self.member.clock.pump([TIMEOUT - 5.0, 0.0])
        status = self.successResultOf(checking)
        self.is_true(status.api_server, "Slow", "so slowly", "load")
        self.assertEqual(status.credential, UNCHECKED)

    def test_slow_later(self) -> None:
        """An API server that becomes slow during the check is not regarded as frozen, either."""
        checking = self.begin()
        self.member.pipes[0].serve()
        self.member.clock.advance(4.0)
        self.member.pipes[0].serve()
        self.member.clock.pump([TIMEOUT - 4.0, 0.0])
        self.is_true(self.successResultOf(checking).api_server, "Slow")

    def test_closed(self) -> None:
        """A connection that ends without an answer is reported."""
        checking = self.begin()
        while self.member.pipes and not checking.called:
            for pipe in self.member.pipes:
                if not pipe.lost:
                    pipe.lose()
        self.is_false(self.successResultOf(checking).api_server, "ConnectionLost", "api:6443")

    def test_not_ready(self) -> None:
        """The failed checks of the API server are named."""
        self.answers["readyz"] = (500, b"[+]ping ok\n[-]etcd failed: reason withheld\nreadyz check failed\n")
        status = self.check()
        self.is_false(status.api_server, "NotReady", '(it reports: "etcd failed: reason withheld")')
        self.assertEqual(status.version, "v1.36.2")

    def test_error(self) -> None:
        """An error of a load balancer is quoted in one line."""
        self.answers["version"] = (503, b"<html>\nno server")
        self.is_false(self.check().api_server, "ServerError", "answers 503", "<html>\\nno server")

    def test_other_server(self) -> None:
        """A server that is not an API server is recognized."""
        for answer in ((200, b"<html>welcome"), (404, b"not found"), (200, b"[]"), (301, b"")):
            self.answers["version"] = answer
            self.is_false(self.check().api_server, "NotAnAPIServer", f"answers {answer[0]}")

    def test_limited(self) -> None:
        """An API server that limits the requests answers: users notice it, too."""
        self.answers["version"] = (429, {"kind": "Status", "message": "too many requests"})
        status = self.check()
        self.is_true(status.api_server, "TooManyRequests", "429", "reduce the requests")
        self.is_true(status.impersonation, "ImpersonationAllowed")

    def test_clock(self) -> None:
        """A large difference of the clocks is named, and the member stays usable."""
        self.server_clock = NOW + 3700
        status = self.check()
        self.is_true(status.api_server, "ClockSkew", "the clock of the agent is 61m behind", "NTP")
        self.is_true(status.impersonation, "ImpersonationAllowed")
        self.assertEqual(status.clock_offset, -3700.5)
        self.server_clock = NOW - 70
        self.is_true(self.check().api_server, "ClockSkew", "is 70s ahead of")


class CredentialTests(CheckCase):
    """Credentials that are not accepted, or soon will not be."""

    def test_rejected(self) -> None:
        """A rejected token is named with the command that makes a new one."""
        self.answers["version"] = (401, {"kind": "Status", "message": "Unauthorized"})
        status = self.check()
        self.is_true(status.api_server, "Reachable")
        self.is_false(status.credential, "CredentialRejected", "401", "create token tower-agent", "/etc/k")
        self.assertEqual(status.impersonation, UNCHECKED)

    def test_rejected_by_clock(self) -> None:
        """A token that an API server with another time rejects may be valid: the clocks are named."""
        self.answers["version"] = (401, {"kind": "Status", "message": "Unauthorized"})
        self.server_clock = NOW - 3600
        credential = self.check().credential
        self.is_false(credential, "CredentialRejected", "the clock of the agent is 60m ahead of that of the")
        self.is_false(credential, "CredentialRejected", "NTP, or run 'tower rbac agent")

    def test_rejected_later(self) -> None:
        """A credential that only the review rejects is rejected too."""
        self.answers["selfsubjectreviews"] = (401, {"kind": "Status"})
        status = self.check()
        self.is_false(status.credential, "CredentialRejected")
        self.assertEqual(status.impersonation, UNCHECKED)

    def test_expired(self) -> None:
        """A rejected credential whose end has passed has expired."""
        self.answers["version"] = (401, {"kind": "Status"})
        self.facts = CredentialFacts("client certificate", Lifetime(NOW - DAY, NOW - 1))
        status = self.check()
        self.is_false(status.credential, "CredentialExpired", "client certificate", "2027-01-15T07:59:59Z")
        self.assertEqual(status.credential_expires, NOW - 1)

    def test_expires_soon(self) -> None:
        """A credential in the last part of its life is reported, with its end and the cure."""
        for begin, end, soon in (
            (NOW - 300 * DAY, NOW + 6 * DAY, True),
            (NOW - 300 * DAY, NOW + 8 * DAY, False),
            (NOW - 3200, NOW + 400, False),  # the kubelet replaces a token of an hour after 80 %
            (NOW - 3300, NOW + 300, True),
            (None, NOW + 6 * DAY, True),
            (None, None, False),
        ):
            self.facts = CredentialFacts("token", Lifetime(begin, end))
            reason = "CredentialExpiresSoon" if soon else "CredentialAccepted"
            self.is_true(self.check().credential, reason, *(["but only until 20", "kubectl"] if soon else []))

    def test_missing(self) -> None:
        """An agent without a credential is reported."""
        self.facts = CredentialFacts()
        for name, answer in (
            ("version", (401, {"kind": "Status"})),
            ("selfsubjectreviews", (403, {"message": 'User "system:anonymous" cannot create'})),
        ):
            self.answers = {name: answer}
            self.is_false(self.check().credential, "CredentialMissing", "has no credential")

    def test_ignored(self) -> None:
        """A client certificate that a load balancer removes is reported."""
        self.facts = CredentialFacts("client certificate")
        for answer in (
            (201, {"status": {"userInfo": {"username": "system:anonymous"}}}),
            (403, {"message": 'User "system:anonymous" cannot create'}),
        ):
            self.answers["selfsubjectreviews"] = answer
            self.is_false(self.check().credential, "CredentialIgnored", "load balancer")

    def test_unused_files(self) -> None:
        """Changed credential files that are invalid are named while the last valid ones are in use."""
        self.facts = CredentialFacts("token", problem="token file T is empty")
        self.is_true(self.check().credential, "CredentialFilesInvalid", "token file T is empty")
        self.answers["version"] = (401, {"kind": "Status"})
        self.is_false(self.check().credential, "CredentialRejected", "token file T is empty")
        self.facts = CredentialFacts(problem="token file T is empty")
        self.is_false(
            self.check().credential, "CredentialMissing", "has no credential", "token file T is empty"
        )
        self.answers["version"] = (500, {"kind": "Status"})
        self.is_false(self.check().api_server, "ServerError", "token file T is empty")

    def test_unreadable(self) -> None:
        """A credential that cannot be opened is reported with its cure."""

        def upstream() -> Upstream:
            raise ConfigurationError("the credential is sealed with another key: set it again")

        api = APIClient(self.member.clock, self.member.open, upstream)
        checker = MemberChecker(
            self.member.clock, api, lambda: "", lambda: self.facts, proxy_texts("a"), epoch=lambda: NOW
        )
        status = self.successResultOf(Deferred.fromCoroutine(checker.check()))
        self.is_false(status.credential, "CredentialInvalid", "set it again")
        self.assertEqual(status.api_server, UNCHECKED)

    def test_review_fails(self) -> None:
        """An API server that fails to review leaves the state unknown."""
        self.answers["selfsubjectreviews"] = (500, {"kind": "Status", "message": "etcd"})
        credential = self.check().credential
        self.assertEqual((credential.status, credential.reason), ("Unknown", "ReviewFailed"))

    def test_certificate_facts(self) -> None:
        """The facts of a token are in its claims; anything else has no known end."""
        claims = urlsafe_b64encode(json.dumps({"iat": 5, "exp": 9}).encode()).rstrip(b"=")
        for token, lifetime in (
            (b"h." + claims + b".s", Lifetime(5.0, 9.0)),
            (b"opaque", Lifetime()),
            (b"a.!.c", Lifetime()),
        ):
            self.assertEqual(CredentialFacts.of(b"", token), CredentialFacts("token", lifetime))
        self.assertEqual(CredentialFacts.of(b"junk", b"x"), CredentialFacts("client certificate"))
        self.assertEqual(CredentialFacts.of(b"", b""), CredentialFacts())


class ImpersonationTests(CheckCase):
    """The right to impersonate."""

    def test_denied(self) -> None:
        """The missing resources, the user and the command are named."""
        for allowed, missing in ((set(), "users and groups"), ({"users"}, "groups"), ({"groups"}, "users")):
            self.allowed = allowed
            self.is_false(
                self.check().impersonation,
                "ImpersonationDenied",
                f"not allowed to impersonate {missing}:",
                AGENT,
                "tower rbac agent | kubectl apply -f -",
            )

    def test_other_user(self) -> None:
        """The cure binds the role to a user that is not in the manifest, unless its name is strange."""
        self.allowed = set()
        for user, bound in (("admin", True), ("admin'; rm", False), ("", False)):
            self.answers["selfsubjectreviews"] = (201, {"status": {"userInfo": {"username": user}}})
            message = self.check().impersonation.text
            command = f"clusterrolebinding tower-agent-user --clusterrole=tower-agent --user={user}'"
            self.assertEqual(command in message, bound, message)
            message = self.check(texts=proxy_texts("alpha")).impersonation.text
            self.assertIn("tower rbac proxy | kubectl apply -f -", message)
            self.assertEqual("--clusterrole=tower-proxy --user=admin'" in message, bound, message)

    def test_restricted(self) -> None:
        """A grant that is limited to names is a restriction; the message lists them."""
        self.allowed, self.rules = (
            {"groups"},
            [rule("users", "jane", "joe"), rule("groups", "x"), {"verbs": 1}],
        )
        check = self.check().impersonation
        self.is_true(check, "ImpersonationRestricted", "only the users jane, joe (resourceNames)")
        self.allowed = set()
        check = self.check().impersonation
        self.is_true(check, "ImpersonationRestricted", "the users jane, joe and the group x")
        self.rules = [rule("users", *"abcdefg")]
        self.is_false(self.check().impersonation, "ImpersonationDenied", "not allowed to impersonate groups:")
        self.allowed = {"groups"}
        self.is_true(self.check().impersonation, "ImpersonationRestricted", "a, b, c, d, e and 2 more")

    def test_review_forbidden(self) -> None:
        """Without the right to ask, the state is unknown, and the missing role is named."""
        forbidden = (403, {"kind": "Status", "message": "no"})
        self.answers |= {"selfsubjectaccessreviews": forbidden, "selfsubjectreviews": forbidden}
        status = self.check()
        self.is_true(status.credential, "CredentialAccepted")
        self.assertEqual(status.impersonation.status, "Unknown")
        self.assertIn(
            "--clusterrole=system:basic-user --group=system:authenticated'", status.impersonation.text
        )

    def test_strange_answers(self) -> None:
        """Answers of unexpected forms never allow anything."""
        answers: list[Any] = [[], "x", None, {"status": []}]
        answers += [{"status": {"allowed": allowed}} for allowed in ("true", 1, None)]
        for answer in answers:
            self.answers["selfsubjectaccessreviews"] = (201, answer)
            self.answers["selfsubjectrulesreviews"] = (201, answer)
            self.is_false(self.check().impersonation, "ImpersonationDenied")
