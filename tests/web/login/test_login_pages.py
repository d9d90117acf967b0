"""Tests of `tower.web.login.login_pages`, `session_requests` and `entered_clusters`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attrs import evolve
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from twisted.internet.defer import Deferred, fail
from twisted.logger import capturedLogs, eventAsText
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tests.fakes.id_tokens import CLIENT, DOCUMENT, ISSUER, KEYS, URL
from tests.fakes.logins import REFRESHING, SERVER, LoginKit
from tests.fakes.policies import spec_of
from tests.fakes.requests import FakeRequest, fields_with
from tower.errors import TowerError
from tower.kube.status import StatusError, refusal_of
from tower.trust.login_nonce import login_nonce
from tower.trust.session_tokens import public_text
from tower.web.access.audit.changes import AUTHOR
from tower.web.access.authentication.identity import Identity
from tower.web.access.authentication.presented import Presented
from tower.web.login.login_settings import LoginSettings
from tower.web.login.session_requests import PERSON_LIMIT
from tower.web.outcome import Response


class LoginPagesTests(SynchronousTestCase):
    """The pages with one issuer and two clusters."""

    foreign = b""

    def setUp(self) -> None:
        """Add the clusters."""
        self.kit = LoginKit(self)
        for name in ("alpha", "beta", "gamma"):
            self.successResultOf(self.kit.clusters.add(name))
        self.kit.policies.put("dev", spec_of("dev", "alpha", "beta", access="edit"))

    def ask(self, method: str, path: str, token: bytes, body: Any = None) -> Any:
        """Return the object of an answer, or the error as a Status."""
        content = b"{}" if body is None else json.dumps(body).encode()
        fields = fields_with(token, foreign=self.foreign, content_type=b"application/json")
        request: Any = FakeRequest(path.encode(), method.encode(), fields, raw=content)
        try:
            presented = Presented(None, token)
            request.identity = self.kit.method.authenticate(presented) or self.kit.oidc.authenticate(
                presented
            )
            answer = self.kit.pages(request)
        except TowerError as e:
            return refusal_of(e)
        if isinstance(answer, Deferred):
            found: list[Any] = []
            answer.addBoth(found.append)
            answer = found[0]
            if not isinstance(answer, Response):
                return refusal_of(answer.value)
        assert isinstance(answer, Response)
        self.assertIn((b"Cache-Control", b"no-store"), answer.headers)
        return json.loads(answer.body)

    def begin(self, token: bytes | None = None, **body: Any) -> Any:
        """Begin a session."""
        given = {"publicKey": public_text(self.kit.key), "server": SERVER, **body}
        given.setdefault("refreshToken", "refresh-1")
        return self.ask("POST", "/login/sessions", token or self.kit.id_token(groups=["dev"]), given)

    def refused(self, code: int, text: str, answer: Any) -> None:
        """Check an error."""
        assert isinstance(answer, StatusError), answer
        self.assertEqual(answer.code, code, answer)
        self.assertIn(text, str(answer))

    def test_discovery(self) -> None:
        """Clients learn the issuers of users and of workloads, and CAs, without secrets."""
        path = Path(self.mktemp())
        pem = authority().pem
        path.write_bytes(b"text\n" + pem)
        other = evolve(ISSUER, url="https://ci.example")
        self.kit.oidc.use((evolve(ISSUER, ca_file=str(path)), other))
        request = FakeRequest(b"/.well-known/tower-login")
        answer = json.loads(self.kit.pages.discovery(request).body)
        shown = {"url": URL, "clientID": CLIENT, "refreshToken": True, "certificateAuthority": pem.decode()}
        self.assertEqual(answer["issuers"], [shown])
        self.assertEqual(answer["tokenIssuers"], [{"url": "https://ci.example", "audiences": [CLIENT]}])
        self.assertEqual(answer["certificateAuthority"], "CA")
        self.kit.oidc.use((evolve(ISSUER, discovery_url="https://mirror.example/x"),))
        (shown,) = json.loads(self.kit.pages.discovery(request).body)["issuers"]
        self.assertEqual(shown["discoveryURL"], "https://mirror.example/x")
        self.assertNotIn("certificateAuthority", shown)
        request.method = b"POST"
        self.assertRaises(StatusError, self.kit.pages.discovery, request)

    def test_audit_that_fails(self) -> None:
        """No session begins or ends without its event, if the audit log must have it."""
        session = self.kit.begun()
        self.patch(FakeRequest, "audit", lambda *_: fail(StatusError(500, "not stored")))
        self.refused(500, "not stored", self.begin())
        self.refused(500, "not stored", self.ask("DELETE", "/login/session", self.kit.token(session)))
        self.assertEqual(self.kit.sessions.list(), [session])

    def test_audited(self) -> None:
        """Each request has an event of Tower's own API, also if it is rejected."""
        audited: list[tuple[bytes, str]] = []
        self.patch(FakeRequest, "audit", lambda request, cluster: audited.append((request.method, cluster)))
        token = self.kit.token(self.kit.begun())
        self.ask("GET", "/login/clusters", token)
        self.ask("GET", "/login/session", token)
        self.refused(404, "no such page", self.ask("GET", "/login/x", token))
        self.refused(405, "PUT is not supported", self.ask("PUT", "/login/session", token))
        self.assertEqual(audited, [(method, "") for method in (b"GET", b"GET", b"GET", b"PUT")])

    def test_identity_fields(self) -> None:
        """A request with an identity field is rejected on every page, never answered for its sender."""
        session = self.kit.begun()
        self.foreign = b"Impersonate-User"
        for method, path, token in (
            ("GET", "/login/clusters", self.kit.token(session)),
            ("GET", "/login/session", self.kit.token(session)),
            ("DELETE", "/login/session", self.kit.token(session)),
            ("POST", "/login/sessions", self.kit.id_token(groups=["dev"])),
        ):
            self.refused(403, "the header Impersonate-User is not accepted", self.ask(method, path, token))
        self.assertEqual(self.kit.sessions.list(), [session])

    def test_session(self) -> None:
        """A session begins with an ID token, is shown to its user, and ends with a logout."""
        authors: list[Any] = []

        def observe() -> Any:
            authors.append(AUTHOR.get())
            return lambda _: None

        self.kit.store.observe = observe
        shown = self.begin(client="jane@laptop")
        self.assertEqual((shown["user"], shown["groups"], shown["confirmed"]), ("jane", ["dev"], True))
        self.assertEqual([each["name"] for each in shown["clusters"]], ["alpha", "beta"])
        (session,) = self.kit.sessions.list()
        token = self.kit.token(session)
        self.assertEqual(self.ask("GET", "/login/session", token)["id"], session.id)
        items = self.ask("GET", "/login/clusters", token)["items"]
        self.assertEqual(
            items[0],
            {"name": "alpha", "available": "Unknown", "access": ["edit"], "policies": ["dev"], "open": True},
        )
        self.assertEqual(self.ask("DELETE", "/login/session", token)["status"], "Success")
        self.assertEqual(self.kit.sessions.list(), [])
        self.assertEqual([each.identity.user for each in authors], ["jane", "jane"])
        self.assertEqual(self.kit.requests.revoked, ["refresh-1"])
        self.refused(401, "has ended", self.ask("GET", "/login/session", token))

    def test_bad_requests(self) -> None:
        """Bad objects, credentials and paths are rejected with the cure."""
        self.refused(422, "publicKey: must be an Ed25519", self.begin(publicKey="x"))
        self.refused(422, "refreshToken: must be", self.begin(refreshToken="x" * 17000))
        self.refused(422, "client: must be", self.begin(client="a\nb"))
        self.refused(422, "admin: unknown", self.begin(admin=True))
        session = self.kit.begun(groups=["dev"])
        token = self.kit.token(session)
        self.refused(403, "begins with an ID token", self.begin(token))
        self.refused(404, "has no login session", self.ask("GET", "/login/session", self.kit.id_token()))
        self.refused(405, "not supported", self.ask("PUT", "/login/session", token))
        self.refused(404, "no such page", self.ask("GET", "/login/x", token))

    def test_refresh_token_required(self) -> None:
        """A provider that has refresh tokens must give one; else the ID token must be fresh."""
        self.refused(403, "has refresh tokens, and gave none", self.begin(refreshToken=""))
        self.kit.agent.answers[DOCUMENT] = None
        self.kit.oidc.use((evolve(ISSUER, algorithms=("RS256", "ES256")),))  # as after a reload
        self.refused(403, "has refresh tokens, and gave none", self.begin(refreshToken=""))
        kit = self.kit = LoginKit(self)
        kit.agent.answers[DOCUMENT] = {"issuer": URL, "jwks_uri": KEYS}
        kit.clock.advance(601)
        self.assertFalse(self.begin(refreshToken="")["confirmed"])
        old = kit.id_token()
        kit.clock.advance(599)
        self.assertIn("id", self.begin(old, refreshToken=""))
        kit = self.kit = LoginKit(self, LoginSettings({URL: CLIENT}, requires_refresh=False))
        stale = kit.id_token(exp=int(kit.clock.seconds()) + 86400, iat=int(kit.clock.seconds()) - 3600)
        self.refused(403, "60 minutes old", self.begin(stale, refreshToken=""))
        self.assertTrue(kit.confirmer.is_overdue(kit.sessions.find(self.begin(stale)["id"])))  # type: ignore[arg-type]

    def test_another_login(self) -> None:
        """An ID token of a login with another key or at another Tower begins no session, and is logged."""
        kit = self.kit
        theirs = Ed25519PrivateKey.generate()  # another program's, which poses as a Tower
        self.refused(403, "of another login", self.begin(publicKey=public_text(theirs)))
        self.refused(403, "of another login", self.begin(server="https://evil.example"))
        self.refused(403, "of another login", self.begin(server=""))
        self.refused(403, "of another login", self.begin(kit.id_token(nonce=7)))
        nonce = login_nonce("https://evil.example", public_text(kit.key))
        token = kit.id_token(nonce=nonce)  # with the client's key, for tokens that evil could pass on
        with capturedLogs() as logged:
            self.refused(403, "this Tower has another name", self.begin(token, server="https://evil.example"))
        self.assertIn("login of jane is rejected: ", "".join(map(eventAsText, logged)))
        self.assertEqual(kit.sessions.list(), [])
        kit.names = ["evil.example"]
        self.assertIn("id", self.begin(token, server="https://evil.example"))

    def test_without_nonce(self) -> None:
        """A token without nonce begins a session only if device codes are possible and allowed."""
        devices = {**REFRESHING, "device_authorization_endpoint": f"{URL}/device"}
        for document, accepts, is_exclusive, is_good in (
            (REFRESHING, True, True, False),
            (REFRESHING, True, False, True),  # clusters accept the token, too
            (devices, True, True, True),
            (devices, False, True, False),
            (REFRESHING, False, False, False),
        ):
            settings = LoginSettings({URL: CLIENT}, accepts_device_codes=accepts, is_exclusive=is_exclusive)
            kit = self.kit = LoginKit(self, settings)
            kit.agent.answers[DOCUMENT] = document
            kit.oidc.use(())
            kit.oidc.use((ISSUER,))
            answer = self.begin(kit.id_token(nonce=None))
            if is_good:
                self.assertEqual(answer["user"], "jane")
            else:
                self.refused(403, "run 'tower login' on a machine with a browser", answer)
            shown = json.loads(kit.pages.discovery(FakeRequest(b"/.well-known/tower-login")).body)
            self.assertEqual(shown["issuers"][0].get("deviceCode"), None if accepts else False)

    def test_many_workloads(self) -> None:
        """Jobs of a pipeline, which are one user, end no session of each other."""
        kit = self.kit = LoginKit(self, LoginSettings({}))
        self.successResultOf(kit.clusters.add("alpha"))
        kit.policies.put("ci", spec_of("dev"))
        for _ in range(PERSON_LIMIT + 5):
            self.begin()
        self.assertEqual(len(kit.sessions.list()), PERSON_LIMIT + 5)

    def test_workload(self) -> None:
        """A workload's token becomes a short session, if a policy admits the user."""
        kit = self.kit = LoginKit(self, LoginSettings({}, workload_ttl=600.0))
        self.successResultOf(kit.clusters.add("alpha"))
        self.refused(403, "no access policy admits jane to a cluster", self.begin(refreshToken=""))
        kit.policies.put("ci", spec_of("dev"))
        shown = self.begin(refreshToken="ignored")
        self.assertFalse(shown["confirmed"])
        (session,) = kit.sessions.list()
        self.assertEqual(session.expires, kit.clock.seconds() + 600)

    def test_token_of_another_client(self) -> None:
        """Such a token of a user's issuer begins no session that is longer than the token."""
        kit = self.kit = LoginKit(self, LoginSettings({URL: "tower-login"}))
        self.successResultOf(kit.clusters.add("alpha"))
        kit.policies.put("ci", spec_of("dev"))
        self.begin(refreshToken="")
        (session,) = kit.sessions.list()
        self.assertFalse(session.is_confirmed_again)
        self.assertEqual(session.expires, kit.clock.seconds() + 600)

    def test_clusters(self) -> None:
        """A user sees only clusters of own policies; closed time windows are shown."""
        window = {"from": "00:00", "to": "00:01", "timeZone": "UTC"}
        self.kit.policies.put("night", spec_of("ops", "gamma", timeWindow=window))
        self.kit.policies.put("reserved", spec_of("ops", "alpha", names={"groups": ["x"]}))
        token = self.kit.id_token(groups=["ops"])
        found = self.ask("GET", "/login/clusters", token)["items"]
        self.assertEqual(
            [(each["name"], each["open"]) for each in found], [("alpha", True), ("gamma", False)]
        )
        self.assertEqual(self.ask("GET", "/login/clusters", self.kit.id_token(groups=["none"]))["items"], [])

    def test_clusters_of_a_kubeconfig(self) -> None:
        """The user of a kubeconfig of Tower's has its one cluster."""
        credential: Any = type("Credential", (), {"cluster": "beta", "id": "c-1", "kind": "token"})()
        request = FakeRequest(b"/login/clusters", identity=Identity("jane", (), credential))
        answer: Any = self.kit.pages(request)
        items = json.loads(self.successResultOf(answer).body)["items"]
        self.assertEqual([each["name"] for each in items], ["beta"])
