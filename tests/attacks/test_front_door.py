"""Every method of authentication at once: no credential opens more than it should, in any combination."""

from __future__ import annotations

import hmac
import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import TypeAlias

from attrs import frozen
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.bastion import AuthorityFile, Bastion, TokensFile, bearer, claims_of
from tests.fakes.certificates import DAY, NOW
from tests.fakes.client_certificates import Company
from tests.fakes.gateway import FakeUser, get
from tests.fakes.id_tokens import id_token, rsa_key
from tests.fakes.pipes import FakePipe
from tests.holes.towerkit import done, status_of
from tower.web.access.authentication.oidc.provider import REFRESH, RETRY
from tower.web.access.authorization.cluster_entry import KEPT
from tower.web.access.authorization.decision_cache import USERS

API = b"/apis/cluster.kubesphere.io/v1alpha1/clusters"
TARGETS = (b"/clusters/alpha/api", b"/clusters/beta/api", b"/clusters/nope/api", b"/api", API)
WATCH = b"/clusters/alpha/api/v1/pods?watch=1"
OTHER_AUDIENCE = "another"


@frozen
class Known:
    """The user of a credential.

    :ivar cluster: the cluster of a credential of Tower; "API" for Tower's own; empty: policies decide.
    """

    user: str
    groups: tuple[str, ...] = ()
    cluster: str = ""


#: A certificate's bytes, or a token's, and the user; None: it has no valid user.
Credentials: TypeAlias = "dict[str, tuple[bytes | None, Known | None]]"

#: Fields of a request, and the user that they name to Tower; None: none that it may name.
FIELDS: dict[str, tuple[tuple[bytes, ...], Known | None]] = {
    "none": ((), None),
    "user": ((b"X-Remote-User: fay", b"X-Remote-Group: dev"), Known("fay", ("dev",))),
    "other field": ((b"x-webauth-user: fay", b"X-REMOTE-GROUP: ops"), Known("fay", ("ops",))),
    "no group": ((b"X-Remote-User: fay",), Known("fay")),
    "named by Connection": ((b"X-Webauth-User: fay", b"Connection: x-webauth-user"), Known("fay")),
    "system user": ((b"X-Remote-User: system:admin",), None),
    "system group": ((b"X-Remote-User: fay", b"X-Remote-Group: system:masters"), None),
    "Tower's group": ((b"X-Remote-User: fay", b"X-Remote-Group: tower:admins"), None),
    "two users": ((b"X-Remote-User: fay", b"X-Remote-User: root"), None),
    "group only": ((b"X-Remote-Group: dev",), None),
    "underscores": ((b"X_Remote_User: fay",), None),
    "impersonation": ((b"Impersonate-User: root",), None),
    "both spellings": ((b"X-Remote-User: fay", b"X_Remote-User: root"), Known("fay")),
    "user and impersonation": (
        (b"X-Remote-User: fay", b"impersonate_group: system:masters"),
        Known("fay"),
    ),
}

#: Those with a field that is not the front proxy's.
MIXED = ("both spellings", "user and impersonation")


def credentials(bastion: Bastion) -> tuple[Credentials, Credentials]:
    """Return the certificates and the tokens of a door."""
    made = bastion.certificate
    other = Company.root("users")
    certificates: Credentials = {
        "none": (None, None),
        "jane": (made("jane", "dev"), Known("jane", ("dev",))),
        "omar": (made("omar", "ops"), Known("omar", ("ops",))),
        "expired": (made("jane", "dev", end=NOW - 1), None),
        "other CA of the name": (made("jane", "dev", by=other), None),
        "masters": (made("jane", "dev", "system:masters"), None),
        "Tower's group": (made("jane", "tower:admins"), None),
        "system user": (made("system:admin", "dev"), None),
        "of alpha": (bastion.registered("alpha", "carl"), Known("carl", ("dev",), "alpha")),
        "no certificate": (b"DER", None),
        "proxy": (made("proxy", by=bastion.front), None),
        "expired proxy": (made("proxy", by=bastion.front, end=NOW - 1), None),
        "proxy of users": (made("proxy", "dev"), Known("proxy", ("dev",))),
        "other name": (made("jane", "dev", by=bastion.front), None),
        "proxy by another CA": (made("proxy", by=Company.root("front")), None),
    }
    revoked = bastion.issued("alpha", "rita")
    done(bastion.credentials.revoke(revoked[0]))
    good = id_token(sub="olga", groups=["dev"], exp=int(NOW) + 3000)
    header, payload, signature = good.split(b".")
    tokens: Credentials = {
        "none": (None, None),
        "of alpha": (bastion.issued("alpha", "tom")[1], Known("tom", ("dev",), "alpha")),
        "of beta": (bastion.issued("beta", "bea")[1], Known("bea", ("dev",), "beta")),
        "administrator": (bastion.admin(), Known("root", ("tower:admins",), "API")),
        "revoked": (revoked[1], None),
        "in the file": (b"file-token", Known("tess", ("dev",))),
        "also in the file": (b"other-token", Known("omar", ("ops",))),
        "not in the file": (b"file-token2", None),
        "issued": (good, Known("olga", ("dev",))),
        "key of an attacker": (id_token(sub="olga", groups=["dev"], key=rsa_key("attacker")), None),
        "unknown key": (id_token(name="attacker", sub="olga", groups=["dev"]), None),
        "expired": (id_token(sub="olga", groups=["dev"], exp=int(NOW) - 1), None),
        "for another": (id_token(sub="olga", groups=["dev"], aud=OTHER_AUDIENCE), None),
        "of another issuer": (id_token(sub="olga", groups=["dev"], iss="https://other.example"), None),
        "unsigned": (forged(payload, "none"), None),
        "key confusion": (forged(payload, "HS256"), None),
        "cut": (header + b"." + payload + b".", None),
        "changed": (header + b"." + payload + b"." + signature[::-1], None),
        "system user": (id_token(sub="system:admin", groups=["dev"]), None),
        "masters": (id_token(sub="olga", groups=["dev", "system:masters"]), None),
        "Tower's group": (id_token(sub="olga", groups=["tower:admins"]), None),
        "distribution's group": (id_token(sub="olga", groups=["kubeadm:cluster-admins"]), None),
        "huge": (b"eyJ" + b"A" * 20_000 + b".e30.x", None),
        "garbage": (b"\xff\x00"[:1] + b"x", None),
    }
    return certificates, tokens


def forged(payload: bytes, algorithm: str) -> bytes:
    """Return a token without the private key, with the public one as secret."""
    header = json.dumps({"alg": algorithm, "kid": "first"}).encode()
    text = urlsafe_b64encode(header).rstrip(b"=") + b"." + payload
    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signature = b"" if algorithm == "none" else hmac.digest(public, text, "sha256")
    return text + b"." + urlsafe_b64encode(signature).rstrip(b"=")


def user_of(
    certificate: str, token: str, fields: str, known: tuple[Credentials, Credentials]
) -> tuple[Known | None, bool]:
    """Return the user of a request, and whether its fields still claim another one."""
    lines, named = FIELDS[fields]
    if certificate == "proxy" and named is not None:
        return named, fields in MIXED
    return known[0][certificate][1] or known[1][token][1], bool(lines)


def enters(user: Known | None, *, claims: bool, target: bytes) -> str:
    """Return the cluster that a request reaches, "API" for Tower's own; empty: none."""
    if user is None or claims:
        return ""
    if target == API or (target == b"/api" and user.cluster == "API"):
        return "API" if user.cluster == "API" else ""
    asked = user.cluster if target == b"/api" else target.split(b"/")[2].decode()
    if user.cluster:
        return asked if asked == user.cluster else ""
    return (
        asked if asked in {"dev": ("alpha",), "ops": ("alpha", "beta")}.get("".join(user.groups), ()) else ""
    )


class CombinationTests(SynchronousTestCase):
    """Requests with any certificate, token and fields, by new and kept-alive connections."""

    def setUp(self) -> None:
        """Make all credentials."""
        self.bastion = Bastion()
        self.addCleanup(self.bastion.stop)
        self.known = credentials(self.bastion)

    def check(self, certificate: str, requests: Sequence[tuple[str, str, bytes]]) -> int:
        """Make requests (token, fields, target) by one connection; return how many were accepted."""
        bastion, accepted = self.bastion, 0
        user = bastion.connect(self.known[0][certificate][0])
        for token, fields, target in requests:
            if user.closing or user.lost:
                user = bastion.connect(user.certificate)
            secret = self.known[1][token][0]
            lines = [*FIELDS[fields][0], *([] if secret is None else [bearer(secret)])]
            code, reached = bastion.ask(user, get(target, *lines))
            where = (certificate, token, fields, target, code)
            identity, claims = user_of(certificate, token, fields, self.known)
            place = enters(identity, claims=claims, target=target)
            if place in ("", "API"):
                self.assertEqual(reached, [], where)
            if place == "":
                self.assertIn(code, (400, 401, 403, 404, 431), where)
            else:
                self.assertEqual(code, 200, where)
            if identity is None:
                self.assertIn(code, (400, 401, 431), where)
            if place not in ("", "API"):
                assert identity is not None
                ((cluster, sent),) = [(each.cluster, each.claims) for each in reached]
                self.assertEqual((cluster, sent), (place, claims_of(identity.user, *identity.groups)), where)
            accepted += code == 200
        return accepted

    def test_each(self) -> None:
        """Each certificate with each token or each kind of fields, for each target."""
        accepted = 0
        for certificate in self.known[0]:
            for target in TARGETS:
                requests = [(token, "none", target) for token in self.known[1]]
                accepted += self.check(certificate, requests)
                accepted += self.check(certificate, [("none", fields, target) for fields in FIELDS])
        self.assertGreater(accepted, 200)

    @settings(max_examples=100, deadline=None)
    @given(data=st.data())
    def test_any(self, data: st.DataObject) -> None:
        """Any requests by one connection: nothing of an earlier one counts for the next."""
        certificate = data.draw(st.sampled_from(sorted(self.known[0])))
        one = st.tuples(
            st.sampled_from(sorted(self.known[1])), st.sampled_from(sorted(FIELDS)), st.sampled_from(TARGETS)
        )
        self.check(certificate, data.draw(st.lists(one, min_size=1, max_size=8)))


class TargetTests(SynchronousTestCase):
    """Tokens that accompany a client certificate on the path to a target, which gets them."""

    def test_door_tokens(self) -> None:
        """A target gets its own tokens, and none that opens the door, on new and kept-alive connections."""
        bastion = Bastion()
        self.addCleanup(bastion.stop)
        spec = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": {"names": ["alpha"]}}
        bastion.policies.put("dev", {**spec, "targets": ["kubernetes", "wiki"]})
        for certificate in (bastion.certificate("jane", "dev"), bastion.registered("alpha", "carl")):
            for token, code in (
                (b"file-token", 403),
                (id_token(sub="olga"), 403),
                (bastion.issued("beta", "bea")[1], 200),
                (id_token(sub="olga", aud=OTHER_AUDIENCE), 200),
                (id_token(sub="olga", nbf=int(NOW) + 300), 403),
                (id_token(name="second", sub="olga"), 403),
                (id_token(sub="olga", key=rsa_key("attacker")), 403),
                (id_token(sub="olga", exp=int(NOW) - 1), 200),
                (b"of-the-target", 200),
            ):
                user = bastion.connect(certificate)
                for _ in range(2):
                    found, reached = bastion.ask(user, get(b"/clusters/alpha/targets/wiki/x", bearer(token)))
                    self.assertEqual(found, code, token)
                    forwarded = [line for each in reached for line in each.claims]
                    is_own = code == 200 and not token.startswith(b"towerk-")
                    self.assertEqual(forwarded, [bearer(token)] if is_own else [])
            user = bastion.connect(certificate)
            found, _ = bastion.ask(user, get(b"/clusters/alpha/api", bearer(b"file-token")))
            self.assertEqual(found, 200)  # the token is not forwarded


class LiveTests(SynchronousTestCase):
    """Watches that were admitted end within 2 s of the change that no longer admits them."""

    def setUp(self) -> None:
        """Start a door with rules, which allow the group dev to watch."""
        self.bastion = Bastion(rules=True)
        self.addCleanup(self.bastion.stop)
        self.bastion.allow("watchers", "dev", "watch")
        self.bastion.allow("others", "ops", "get")

    def watch(self, certificate: bytes | None, *lines: bytes) -> tuple[FakeUser, FakePipe]:
        """Begin a watch; return the user's connection and the member's."""
        user = self.bastion.connect(certificate)
        user.deliver(get(WATCH, *lines))
        ((cluster, pipe),) = [(each.cluster, each.pipe) for each in self.bastion.members.take()]
        self.assertEqual(cluster, "alpha")
        pipe.deliver(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n")
        self.assertEqual(status_of(user.taken()), 200)
        return user, pipe

    def everyone(self) -> dict[str, tuple[FakeUser, FakePipe]]:
        """Begin a watch by each method; each user is of the group dev."""
        bastion = self.bastion
        self.revocable, secret = bastion.issued("alpha", "tom")
        exp = int(NOW) + 3000
        proxy = bastion.certificate("proxy", by=bastion.front)
        return {
            "x509": self.watch(bastion.certificate("jane", "dev")),
            "proxy": self.watch(proxy, b"X-Remote-User: fay", b"X-Remote-Group: dev"),
            "tower": self.watch(None, bearer(secret)),
            "file": self.watch(None, bearer(b"file-token")),
            "first key": self.watch(None, bearer(id_token(sub="olga", groups=["dev"], exp=exp))),
            "second key": self.watch(
                None, bearer(id_token(name="second", sub="otto", groups=["dev"], exp=exp))
            ),
        }

    def ended(self, change: Callable[[], object]) -> set[str]:
        """Return the names of the watches that *change* ends within 2 s, at both ends."""
        watches = self.everyone()
        self.bastion.sweep(5)
        for name, (user, pipe) in watches.items():
            self.assertFalse(user.lost or user.closing or pipe.aborted, name)
        change()
        self.bastion.sweep(2)
        ended = {name for name, (user, _) in watches.items() if user.lost or user.closing}
        for name, (_, pipe) in watches.items():
            self.assertEqual(pipe.aborted or pipe.closing, name in ended, name)
        return ended

    def test_policy(self) -> None:
        """A removed policy ends all that it admitted, and no holder of a credential of Tower."""
        ended = self.ended(lambda: self.bastion.policies.drop("dev"))
        self.assertEqual(ended, {"x509", "proxy", "file", "first key", "second key"})

    def test_lesser_policy(self) -> None:
        """So do another subject, and less access: the connection might be used for more than its watch."""
        alpha = {"names": ["alpha"]}
        less = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": alpha, "access": "read-only"}
        ended = self.ended(lambda: self.bastion.policies.put("dev", less))
        self.assertEqual(ended, {"x509", "proxy", "file", "first key", "second key"})
        jane = {"kind": "User", "name": "jane"}
        ended = self.ended(lambda: self.bastion.policies.put("dev", {"subjects": [jane], "clusters": alpha}))
        self.assertEqual(ended, {"proxy", "file", "first key", "second key"})

    def test_rules(self) -> None:
        """A removed binding ends all, of every method."""
        ended = self.ended(lambda: self.bastion.forbid("watchers"))
        self.assertEqual(ended, {"x509", "proxy", "tower", "file", "first key", "second key"})

    def test_revoked(self) -> None:
        """A revoked credential of Tower ends alone."""
        ended = self.ended(lambda: self.bastion.credentials.revoke(self.revocable))
        self.assertEqual(ended, {"tower"})

    def test_files(self) -> None:
        """Users of a token or of a CA that left its file end."""

        def change(file: AuthorityFile | TokensFile, value: object) -> None:
            file.value = value
            self.bastion.changed()

        other = AuthorityFile.of(Company.root("other")).value
        self.assertEqual(self.ended(lambda: change(self.bastion.front_file, other)), {"proxy"})
        self.bastion.stop()
        self.setUp()
        self.assertEqual(self.ended(lambda: change(self.bastion.users_file, other)), {"x509"})
        self.bastion.stop()
        self.setUp()
        no_tess = TokensFile()
        no_tess.replace('file-token,omar,1,"dev"\n')
        self.assertEqual(self.ended(lambda: change(self.bastion.tokens, no_tess.value)), {"file"})

    def test_keys(self) -> None:
        """Users of a key that the provider removed end, with the next look at its keys."""

        def change() -> None:
            self.bastion.provider.rotate("second", "third")
            self.bastion.clock.pump([RETRY] * int(REFRESH / RETRY))

        self.assertEqual(self.ended(change), {"first key"})

    def test_expiry(self) -> None:
        """Expired tokens and certificates end; a token of the file has no expiry."""
        ended = self.ended(lambda: self.bastion.clock.advance(3000))
        self.assertEqual(ended, {"first key", "second key"})
        self.bastion.stop()
        self.setUp()
        ended = self.ended(lambda: self.bastion.clock.advance(2 * DAY))
        self.assertEqual(ended, {"x509", "proxy", "tower", "first key", "second key"})

    def test_ttl(self) -> None:
        """The longest connection of a policy counts for all users that it admits."""
        spec = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": {"names": ["alpha"]}}
        self.bastion.policies.put("dev", {**spec, "ttl": "1m"})
        ended = self.ended(lambda: self.bastion.sweep(55))
        self.assertEqual(ended, {"x509", "proxy", "file", "first key", "second key"})


class BoundTests(SynchronousTestCase):
    """Nothing that a door remembers grows with the number of its users."""

    def test_users(self) -> None:
        """Thousands of users of one front proxy, and of one provider, and their requests."""
        bastion = Bastion(rules=True)
        self.addCleanup(bastion.stop)
        bastion.allow("readers", "dev", "*")
        proxy = bastion.connect(bastion.certificate("proxy", by=bastion.front))
        for number in range(5000):
            lines = (b"X-Remote-User: u%d" % number, b"X-Remote-Group: dev")
            code, _ = bastion.ask(proxy, get(b"/clusters/alpha/api/v1/pods/p%d" % number, *lines))
            self.assertEqual(code, 200)
        user = bastion.connect()
        code, _ = bastion.ask(user, get(WATCH, bearer(id_token(groups=["dev"]))))
        self.assertEqual(code, 200)
        self.assertLessEqual(len(bastion.policies.entry._kept), KEPT)
        self.assertLessEqual(len(bastion.cache._users), USERS)
        self.assertLessEqual(len(bastion.sessions), 2)
        self.assertLessEqual(len(bastion.sessions.admitted), 2)
        for each in (proxy, user):
            each.lose()
        self.assertEqual((len(bastion.sessions), len(bastion.gateway._channels)), (0, 0))
