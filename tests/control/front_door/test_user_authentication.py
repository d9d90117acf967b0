"""Tests of `tower.control.front_door.user_authentication`."""

from __future__ import annotations

import ssl
import time
from functools import partial
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import DAY, authority, client_context, shake
from tests.fakes.client_certificates import Company, sent, subject
from tower.control.front_door.user_authentication import UserAuthentication
from tower.control.proxy_options import Options
from tower.errors import ConfigurationError, Unauthorized
from tower.http.identity_fields import IdentityFields
from tower.http.requests import Fields
from tower.net.tls.peer_chain import peer_chain
from tower.reactor.signals import Reloads
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.union import AuthenticatorUnion


class UserAuthenticationTests(SynchronousTestCase):
    def setUp(self) -> None:
        """Begin with a file of one CA."""
        self.now = time.time()
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.company = Company.root(now=self.now)
        self.file = self.folder / "ca.crt"
        self.file.write_bytes(self.company.pem)
        self.options = [f"--client-ca-file={self.file}"]
        self.serving_ca = authority("serving", now=self.now)
        self.users = RotatingAuthority(authority("users", now=self.now))
        self.serving = ServingCertificate(
            StateDir(self.mktemp()), self.serving_ca, self.users, ["localhost"], lambda: self.now
        )
        self.reloads = Reloads()
        self.changes = 0

    def methods(self) -> UserAuthentication:
        """Return the methods that the options configure."""
        options = Options({})
        options.parse(self.options)
        made = UserAuthentication.of(options, self.users, self.serving, lambda: self.now, self.reloads)
        made.on_change = self.changed
        return made

    def changed(self) -> None:
        """Count a change."""
        self.changes += 1

    def test_none(self) -> None:
        """Without options there are no methods, and TLS accepts certificates of Tower only."""
        self.options.clear()
        context = self.serving.context
        self.assertEqual(self.methods().by_certificate, [])
        self.assertIs(self.serving.context, context)

    def test_certificates(self) -> None:
        """TLS and the method follow the file, within its period."""
        methods = self.methods()
        union = AuthenticatorUnion(*methods.by_certificate)
        issued = self.company.below(now=self.now).issue(
            subject("jane", ["dev"]), self.now - DAY, self.now + DAY
        )
        client = client_context(self.serving_ca, shows=issued)
        chain = sent(issued)
        shake(self.serving.context, client)
        identity = union.authenticate(Presented(chain[0], None, None, lambda: chain))
        self.assertEqual(identity.user, "jane")  # type: ignore[union-attr]
        self.file.write_bytes(Company.root("other", now=self.now).pem)
        union.check(identity)  # type: ignore[arg-type]
        methods.check_files()
        self.assertRaises(Unauthorized, union.check, identity)
        self.assertEqual(self.changes, 1)
        self.assertRaises(ssl.SSLError, shake, self.serving.context, client)

    def test_several_files(self) -> None:
        """The CAs of all files count; each is followed, and must have some."""
        other, second = Company.root("other", now=self.now), self.folder / "other.crt"
        second.write_bytes(other.pem)
        self.options.append(f"--client-ca-file={second}")
        methods = self.methods()
        union = AuthenticatorUnion(*methods.by_certificate)
        identities = []
        for company in (self.company, other):
            issued = company.issue(subject("jane"), self.now - DAY, self.now + DAY)
            chain = sent(issued)
            shake(self.serving.context, client_context(self.serving_ca, shows=issued))
            identities.append(union.authenticate(Presented(chain[0], None, None, partial(list, chain))))
        second.write_bytes(self.company.pem)
        methods.check_files()
        union.check(identities[0])  # type: ignore[arg-type]
        self.assertRaises(Unauthorized, union.check, identities[1])
        second.write_bytes(b"")
        with self.assertRaises(ConfigurationError) as caught:
            self.methods()
        self.assertIn(f"--client-ca-file {second}: missing content", str(caught.exception))

    def test_tokens(self) -> None:
        """The method follows the file; TLS goes on as before."""
        self.file.write_bytes(b"t0ken,jane,1\n")
        self.options = [f"--token-auth-file={self.file}"]
        methods = self.methods()
        context, union = self.serving.context, AuthenticatorUnion(*methods.by_token)
        identity = union.authenticate(Presented(None, b"t0ken"))
        self.file.write_bytes(b"other,jane,1\n")
        methods.check_files()
        self.assertRaises(Unauthorized, union.check, identity)
        self.assertEqual(self.changes, 1)
        self.assertIs(self.serving.context, context)
        self.file.write_bytes(b"t0ken\n")
        with self.assertRaises(ConfigurationError) as caught:
            self.methods()
        self.assertIn(f"--token-auth-file {self.file}: token file", str(caught.exception))

    def test_resumption_after_a_change(self) -> None:
        """A change of the file ends resumption: the CAs below those in it have to be sent again."""
        methods = self.methods()
        union = AuthenticatorUnion(*methods.by_certificate)
        issued = self.company.below(now=self.now).issue(subject("jane"), self.now - DAY, self.now + DAY)
        client = client_context(self.serving_ca, shows=issued)
        session = shake(self.serving.context, client)[1].session
        self.file.write_bytes(b"a comment\n" + self.company.pem)
        methods.check_files()
        near, far = shake(self.serving.context, client, session=session)
        self.assertFalse(near.session_reused)
        shown = sent(issued)[0]
        union.authenticate(Presented(shown, None, None, lambda: peer_chain(near)))
        again, _ = shake(self.serving.context, client, session=far.session)
        self.assertTrue(again.session_reused)
        found = union.authenticate(Presented(shown, None, None, lambda: peer_chain(again)))
        self.assertEqual(found.user, "jane")  # type: ignore[union-attr]

    def test_hangup(self) -> None:
        """SIGHUP reads the file at once."""
        self.methods()
        context = self.serving.context
        self.file.write_bytes(Company.root("other", now=self.now).pem)
        self.reloads.run()
        self.assertIsNot(self.serving.context, context)
        self.assertEqual(self.changes, 1)

    def test_front_proxies(self) -> None:
        """Front proxies have other CAs than users, or names, because every user could be one otherwise."""
        front = Company.root("front", now=self.now)
        file = self.folder / "front.crt"
        file.write_bytes(front.pem)
        self.options += [f"--requestheader-client-ca-file={file}", "--requestheader-username-headers=X-User"]
        methods = self.methods()
        self.assertEqual([each.method for each in methods.by_certificate], ["request-header", "x509"])
        issued = front.issue(subject("proxy"), self.now - DAY, self.now + DAY)
        shake(self.serving.context, client_context(self.serving_ca, shows=issued))
        file.write_bytes(front.pem + self.company.pem)
        with self.assertRaises(ConfigurationError) as caught:
            self.methods()
        self.assertIn("--requestheader-allowed-names must be specified", str(caught.exception))
        methods.check_files()
        user = self.company.issue(subject("jane"), self.now - DAY, self.now + DAY)
        claims = IdentityFields([b"x-user"])
        shown = Presented(sent(user)[0], None, Fields(b"Host: a\r\nX-User: admin\r\n\r\n", claims))
        found = AuthenticatorUnion(*methods.by_certificate).authenticate(shown)
        self.assertEqual(found.user, "jane")  # type: ignore[union-attr]
        self.options.append("--requestheader-allowed-names=proxy")
        self.methods()

    def test_own_authority(self) -> None:
        """Tower's own CA in the file, or the next one of a rotation, is an error at the start."""
        following = authority("next", now=self.now)
        self.users.other = tuple(following.certificates)
        for each in (self.users.current, following):
            self.file.write_bytes(self.company.pem + each.pem)
            with self.assertRaises(ConfigurationError) as caught:
                self.methods()
            self.assertIn(f"--client-ca-file {self.file}: has Tower's own CA", str(caught.exception))
