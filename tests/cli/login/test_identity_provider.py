"""Tests of `tower.cli.login.identity_provider` and `door`."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tower.cli.client import CommandFailed, UsageFailed
from tower.cli.login import browser, door, identity_provider
from tower.cli.login.door import find_door, server_of
from tower.cli.login.exchange import Reply, Unreachable, Untrusted
from tower.cli.login.identity_provider import PKCE, DeviceLogin, IdentityProvider, ProviderTokens
from tower.kube.kubeconfig import KubeAccess
from tower.trust.pki import ca_hash

URL = "https://id.example"
DOCUMENT = {
    "issuer": URL,
    "authorization_endpoint": f"{URL}/auth?x=1",
    "token_endpoint": f"{URL}/token",
    "device_authorization_endpoint": f"{URL}/device",
    "scopes_supported": ["openid", "email", "offline_access"],
}


class ProviderTests(SynchronousTestCase):
    """A provider with answers of the test."""

    def setUp(self) -> None:
        """Make the provider."""
        self.document: dict[str, Any] = dict(DOCUMENT)
        self.address = f"{URL}/.well-known/openid-configuration"
        self.replies: list[Reply | Exception] = []
        self.now = self.delay = 0.0
        self.slept: list[float] = []
        self.forms: list[Any] = []
        self.patch(identity_provider, "ask", self.ask)

    def ask(self, _access: KubeAccess, method: str, url: str, *, form: Any = None) -> Reply:
        """Answer a request."""
        if url == self.address:
            return Reply(200, self.document)
        self.forms.append(form)
        self.now += self.delay
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply

    def provider(self, **more: Any) -> IdentityProvider:
        """Return the provider."""
        return IdentityProvider({"url": URL, "clientID": "cli", **more}, "nonce-1")

    def test_address(self) -> None:
        """The browser gets the challenge, and only scopes that the provider has."""
        pkce = PKCE()
        found = urlsplit(self.provider().address(pkce, "http://localhost:1/callback"))
        query = {name: values[0] for name, values in parse_qs(found.query).items()}
        digest = hashlib.sha256(pkce.verifier.encode()).digest()
        self.assertEqual(query["code_challenge"], urlsafe_b64encode(digest).decode().rstrip("="))
        self.assertEqual((query["code_challenge_method"], query["x"]), ("S256", "1"))
        self.assertEqual((query["nonce"], query["scope"]), ("nonce-1", "openid email offline_access"))
        self.assertNotIn(pkce.verifier, found.query)
        del self.document["scopes_supported"]
        self.assertIn("groups", self.provider().scope)

    def test_consent(self) -> None:
        """Some providers give refresh tokens only if the user is asked again."""
        pkce, query = PKCE(), "prompt=consent"
        self.assertNotIn(query, self.provider().address(pkce, "http://localhost:1/callback"))
        self.assertIn(query, self.provider().address(pkce, "http://localhost:1/callback", consent=True))
        self.replies = [Reply(200, {"device_code": "d", "user_code": "u"})]
        self.provider().begin_device(consent=True)
        self.assertEqual(self.forms[0]["prompt"], "consent")

    def test_secret(self) -> None:
        """A secret of the client, which the front door publishes, is in all requests for tokens."""
        provider = self.provider(clientSecret="public")
        self.replies = [Reply(200, {"device_code": "d", "user_code": "u"})]
        provider.begin_device()
        self.assertEqual(self.forms[0]["client_secret"], "public")
        self.assertNotIn("public", provider.address(PKCE(), "http://localhost:1/callback"))

    def test_code(self) -> None:
        """The tokens must be of this login."""
        pkce = PKCE()
        token = jwt.encode({"nonce": "nonce-1"}, "k" * 32)
        self.replies = [Reply(200, {"id_token": token, "refresh_token": "r"})]
        tokens = self.provider().by_code(pkce, "http://localhost:1/callback", "c")
        self.assertEqual((tokens.id_token, tokens.refresh_token), (token, "r"))
        self.assertEqual(self.forms[0]["code_verifier"], pkce.verifier)
        for reply, text in (
            (Reply(200, {"id_token": jwt.encode({"nonce": "x"}, "k" * 32)}), "of another login"),
            (Reply(200, {"access_token": "x"}), "without an ID token"),
            (Reply(400, {"error": "invalid_client"}), "must make cli a public client"),
        ):
            self.replies = [reply]
            error = self.assertRaises(CommandFailed, self.provider().by_code, pkce, "r", "c")
            self.assertIn(text, str(error))

    def test_device(self) -> None:
        """The provider is asked until the user has entered the code, more slowly if it wants that."""
        begun = {
            "device_code": "d",
            "user_code": "U",
            "verification_uri": URL,
            "interval": 2,
            "expires_in": 60,
        }
        token = jwt.encode({}, "k" * 32)
        self.replies = [
            Reply(200, begun),
            Reply(400, {"error": "authorization_pending"}),
            Reply(400, {"error": "slow_down"}),
            Reply(200, {"id_token": token}),
        ]
        provider = self.provider()
        device = provider.begin_device()
        self.assertEqual((device.user_code, device.address), ("U", URL))
        self.assertEqual(self.by_device(provider, device).id_token, token)
        self.assertEqual(self.slept, [2.0, 2.0, 7.0])
        for error, text in (
            ("access_denied", "was refused"),
            ("expired_token", "in time"),
            ("invalid_grant", "rejects"),
        ):
            self.replies = [Reply(400, {"error": error})]
            failure = self.assertRaises(CommandFailed, self.by_device, provider, device)
            self.assertIn(text, str(failure))
        self.replies = [Reply(400, {"error": "authorization_pending"})] * 30
        self.assertIn("in time", str(self.assertRaises(CommandFailed, self.by_device, provider, device)))

    def by_device(self, provider: IdentityProvider, device: DeviceLogin) -> ProviderTokens:
        """Return the tokens of a login by device code; a request takes `delay` s."""
        self.slept.clear()
        return provider.by_device(device, self.sleep, lambda: self.now)

    def sleep(self, pause: float) -> None:
        """Let time pass."""
        self.slept.append(pause)
        self.now += pause

    def test_device_without_answers(self) -> None:
        """While the provider does not answer, the pause doubles; then it is the interval again."""
        provider, device = self.provider(), DeviceLogin("d", "U", URL, "", 5.0, 600.0)
        pending, token = Reply(400, {"error": "authorization_pending"}), jwt.encode({}, "k" * 32)
        self.replies = [
            Unreachable("refused"),
            Reply(503, {}),
            Reply(500, {"error": "server_error"}),
            Reply(429, {}),
            Unreachable("no answer within 30 s"),
            pending,
            Reply(429, {"error": "slow_down"}),
            Reply(502, {}),
            Reply(200, {"id_token": token}),
        ]
        self.assertEqual(self.by_device(provider, device).id_token, token)
        self.assertEqual(self.slept, [5.0, 10.0, 20.0, 40.0, 60.0, 60.0, 5.0, 10.0, 20.0])

    def test_device_expires_without_answers(self) -> None:
        """The code expires at its time, however long the requests took; the error has the reason."""
        provider, device = self.provider(), DeviceLogin("d", "U", URL, "", 5.0, 100.0)
        self.replies, self.delay = [Unreachable("no answer within 30 s")] * 9, 30.0
        error = self.assertRaises(CommandFailed, self.by_device, provider, device)
        self.assertEqual(self.slept, [5.0, 10.0, 20.0])
        text = "the code was not entered in time (no answer within 30 s): run 'tower login' again"
        self.assertEqual(str(error), text)
        self.replies = [Untrusted("the certificate cannot be verified")]
        self.assertRaises(Untrusted, self.by_device, provider, device)

    def test_issuer_of_the_response(self) -> None:
        """A response of another issuer is rejected; one without, only if the provider always sends it."""
        for supported, missing in ((None, True), (False, True), (True, False)):
            self.document["authorization_response_iss_parameter_supported"] = supported
            provider = self.provider()
            self.assertEqual(provider.has_answered(None), missing)
            self.assertTrue(provider.has_answered(URL))
            self.assertFalse(provider.has_answered(f"{URL}/"))
            self.assertFalse(provider.has_answered(""))

    def test_callback(self) -> None:
        """The page of the login ignores a response without the issuer that the provider sends."""
        self.document["authorization_response_iss_parameter_supported"] = True
        visit, answers = browser._Visit(self.provider(), False), list[int]()
        handler: Any = object.__new__(browser._Handler)
        handler.server = SimpleNamespace(visit=visit, tokens=None, failure=None)
        handler._answer = lambda status, *_, **__: answers.append(status)
        query = f"/callback?error=access_denied&state={visit.pkce.state}"
        for path in (query, f"{query}&iss=https://other", f"{query}&iss="):
            handler.path = path
            handler.do_GET()
        self.assertEqual((answers, handler.server.failure), ([404] * 3, None))
        handler.path = f"{query}&iss={URL}"
        handler.do_GET()
        self.assertIn("refused the login: access_denied", str(handler.server.failure))

    def test_discovery_url(self) -> None:
        """The document may be elsewhere, with https; it must name the issuer."""
        self.address = "https://mirror.example/x"
        self.assertEqual(self.provider(discoveryURL=self.address).url, URL)
        self.document["issuer"] = "https://mirror.example"
        error = self.assertRaises(CommandFailed, self.provider, discoveryURL=self.address)
        self.assertIn(f"{self.address} is not the discovery document of {URL}", str(error))
        error = self.assertRaises(CommandFailed, self.provider, discoveryURL="http://mirror.example/x")
        self.assertIn("must begin with https://", str(error))

    def test_no_devices(self) -> None:
        """If the front door accepts no device codes, none is requested, and the error has the cure."""
        self.assertTrue(self.provider().has_devices)
        provider = self.provider(deviceCode=False)
        self.assertFalse(provider.has_devices)
        error = self.assertRaises(CommandFailed, provider.begin_device)
        self.assertIn("without --device", str(error))
        self.assertEqual(self.forms, [])

    def test_bad_documents(self) -> None:
        """A document of another issuer, or without endpoints, is not used."""
        self.document["token_endpoint"] = "http://id.example/token"
        self.assertRaises(CommandFailed, self.provider().by_code, PKCE(), "r", "c")
        self.document["issuer"] = "https://other"
        self.assertIn("is not the discovery document", str(self.assertRaises(CommandFailed, self.provider)))


class DoorTests(SynchronousTestCase):
    """A front door whose CA is Tower's own."""

    def setUp(self) -> None:
        """Make the CA."""
        self.pem = authority("own").pem.decode()
        self.others = authority("other").pem.decode()
        self.trusted = self.pem
        self.published = self.pem
        self.patch(door, "ask", self.ask)

    def ask(self, access: KubeAccess, method: str, url: str, **_: object) -> Reply:
        """Answer, if the client trusts the CA."""
        if not access.insecure and (access.ca_data or b"").decode() != self.trusted:
            raise Untrusted("the certificate cannot be verified")
        return Reply(200, {"kind": "LoginConfiguration", "certificateAuthority": self.published})

    def find(self, **given: Any) -> str:
        """Return the CAs of the door that is found."""
        arguments = {"ca_file": None, "ca_hash": None, "known": "", **given}
        return find_door("https://t", **arguments)[0].ca_text

    def test_trust(self) -> None:
        """The CA comes from a file, a hash, or an earlier login."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("-----BEGIN PRIVATE KEY-----\nMA==\n-----END PRIVATE KEY-----\n" + self.pem)
        self.assertEqual(self.find(ca_file=path), self.pem)  # kubeconfigs never get the key
        self.assertEqual(self.find(ca_hash=ca_hash(self.pem.encode())), self.pem)
        self.assertEqual(self.find(known=self.pem), self.pem)
        for given in ({}, {"known": self.others}, {"ca_hash": ca_hash(self.others.encode())}):
            self.assertRaises(CommandFailed, self.find, **given)
        self.assertIn("--ca-hash", str(self.assertRaises(CommandFailed, self.find)))
        self.trusted = ""  # as a gateway that decrypts TLS, with a CA of the system
        error = self.assertRaises(CommandFailed, self.find, known=self.pem)
        self.assertIn("the CA of the earlier login did not issue it: give --cert", str(error))
        for wrong in ("sha256:x", ""):
            self.assertRaises(UsageFailed, self.find, ca_hash=wrong, known=self.trusted)
        self.assertRaises(CommandFailed, self.find, ca_file="", known=self.trusted)
        self.assertRaises(CommandFailed, self.find, ca_file=path + "x")

    def test_all_authorities(self) -> None:
        """A hash of one of several published CAs is enough; all of them are kept."""
        self.published = self.others + self.pem
        answer = self.ask

        def ask(access: KubeAccess, *arguments: Any, **named: Any) -> Reply:
            given = (access.ca_data or b"").decode()
            self.trusted = given if self.pem in given else "another"
            return answer(access, *arguments, **named)

        self.patch(door, "ask", ask)
        self.assertEqual(self.find(ca_hash=ca_hash(self.pem.encode())), self.published)

    def test_public_certificate(self) -> None:
        """If no CA is published, --ca-hash names the cure; a CA in a file is kept."""
        self.published = self.trusted = ""
        self.assertEqual(self.find(), "")
        error = self.assertRaises(CommandFailed, self.find, ca_hash=ca_hash(self.pem.encode()))
        self.assertIn("https://t publishes no CA", str(error))
        self.assertIn("omit --ca-hash", str(error))
        self.trusted = self.pem
        path = self.mktemp()
        with open(path, "w") as file:
            file.write(self.pem)
        self.assertEqual(self.find(ca_file=path), self.pem)

    def test_port(self) -> None:
        """If port 443 does not answer, the error names the default of the proxy."""

        def refused(*_: object, **__: object) -> Reply:
            raise Unreachable("refused")

        self.patch(door, "ask", refused)
        error = self.assertRaises(Unreachable, self.find)
        self.assertEqual(
            str(error), "refused; this was port 443, and tower-proxy's default is https://t:8443"
        )
        error = self.assertRaises(Unreachable, find_door, "https://t:1", None, None, "")
        self.assertEqual(str(error), "refused")

    def test_load_balancer(self) -> None:
        """A certificate that the system's CAs verify is not replaced by Tower's CA."""
        self.trusted = ""
        self.assertEqual(self.find(), "")

    def test_names(self) -> None:
        """The address is a URL, or a host."""
        for text, server in (
            ("tower.example.org", "https://tower.example.org"),
            ("https://tower.example.org:443/", "https://tower.example.org"),
            ("https://[::1]:8443", "https://[::1]:8443"),
            ("https://Türme.example", "https://xn--trme-0ra.example"),
        ):
            self.assertEqual(server_of(text), server)
        for text in (
            *("http://t", "https://", "https://t/clusters/alpha", "https://t:99999", "https://t?x"),
            *("https://t#x", "https://[t"),
        ):
            self.assertIn(repr(text), str(self.assertRaises(UsageFailed, server_of, text)))

    def test_credentials_in_names(self) -> None:
        """An address with credentials is rejected, and the error does not contain the password."""
        for text in ("https://u:secret@t", "u:secret@t/x", "http://u:se#cret@t", "https://u:secret@[t"):
            error = str(self.assertRaises(UsageFailed, server_of, text))
            self.assertIn("@", error)
            self.assertIn("give https://HOST or https://HOST:PORT", error)
            self.assertNotIn("cret", error)
