"""Tests of `tower.web.access.authentication.service_accounts`; for the texts see `test_as_kube_apiserver`."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import NOW, account_key_id, ec_key, id_token, public_pem, rsa_key
from tower.clusters.credentials import PREFIX
from tower.errors import Unauthorized
from tower.web.access.authentication import service_accounts
from tower.web.access.authentication.account_keys import read_public_keys
from tower.web.access.authentication.identity import FOREIGN_TOKEN_LIMIT, Identity
from tower.web.access.authentication.oidc.key_set import KeySet
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.service_accounts import LEEWAY, ServiceAccountAuthenticator

ISSUER, AUDIENCE = "https://kubernetes.default.svc", "tower"
ACCOUNT = {"name": "robot", "uid": "u-1"}
KUBERNETES = "kubernetes.io"
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": [AUDIENCE],
    "sub": "system:serviceaccount:default:robot",
    "iat": int(NOW),
    "nbf": int(NOW),
    "exp": int(NOW) + 600,
    "jti": "a-1",
    KUBERNETES: {"namespace": "default", "serviceaccount": ACCOUNT},
}
OBJECT = "authentication.kubernetes.io"


class Keys:
    """Keys that may change, or be gotten later."""

    def __init__(self, *keys: Any) -> None:
        self.sets: KeySet | None = self.made(*keys) if keys else None
        self.newest: KeySet | None = None
        self.fetches: Deferred[None] | None = None

    def made(self, *keys: Any) -> KeySet:
        """Return the set of these keys."""
        return read_public_keys(b"".join(map(public_pem, keys)))

    def of(self, issuer: str) -> KeySet | None:
        """See `AccountKeys`."""
        return self.sets

    def newer(self, issuer: str) -> Deferred[None] | None:
        """See `AccountKeys`."""
        return self.fetches

    def problem(self, issuer: str) -> str:
        """See `AccountKeys`."""
        return "no answer"

    def has(self, thumbprint: str) -> bool:
        """See `AccountKeys`."""
        return self.sets is not None and thumbprint in self.sets.thumbprints


class ServiceAccountTests(SynchronousTestCase):
    """Tokens of service accounts."""

    def setUp(self) -> None:
        """Create the method."""
        self.now, self.keys = NOW, Keys(rsa_key())
        self.method = ServiceAccountAuthenticator([ISSUER], [AUDIENCE], self.keys, lambda: self.now)

    def token(self, *, without: str = "", key: Any = None, kid: str | None = "", **changes: Any) -> bytes:
        """Return a signed token: a good one with *changes*, and without a claim."""
        claims = {name: value for name, value in CLAIMS.items() if name != without}
        name = account_key_id(rsa_key()) if kid == "" else kid
        return id_token(claims, name, key=key or rsa_key(), **changes)

    def private(self, **changes: Any) -> bytes:
        """Return a token with other private claims."""
        claims: dict[str, Any] = {KUBERNETES: {**CLAIMS[KUBERNETES], **changes}}
        return self.token(**claims)

    def user(self, token: bytes) -> Identity:
        """Return the user, who is known at once."""
        found = self.method.authenticate(Presented(None, token))
        assert isinstance(found, Identity)
        return found

    def rejected(self, token: bytes) -> Unauthorized:
        """Return the rejection."""
        error = self.assertRaises(Unauthorized, self.method.authenticate, Presented(None, token))
        assert isinstance(error, Unauthorized)
        return error

    def test_account(self) -> None:
        """Name, groups, UID and facts are kube-apiserver's."""
        found = self.user(self.token())
        self.assertEqual(
            (found.user, found.groups, found.uid, found.extra, found.expires),
            (
                "system:serviceaccount:default:robot",
                ("system:serviceaccounts", "system:serviceaccounts:default"),
                "u-1",
                ((f"{OBJECT}/credential-id", ("JTI=a-1",)),),
                NOW + 600 + LEEWAY,
            ),
        )
        bound = {"pod": {"name": "p", "uid": "1"}, "node": {"name": "n", "uid": "2"}}
        extra = dict(self.user(self.private(**bound)).extra)
        self.assertEqual(
            {name: extra[f"{OBJECT}/{name}"] for name in ("pod-name", "pod-uid", "node-name", "node-uid")},
            {"pod-name": ("p",), "pod-uid": ("1",), "node-name": ("n",), "node-uid": ("2",)},
        )

    def test_not_asked(self) -> None:
        """Tokens of others are not of this method."""
        for token in (
            None,
            b"abc",
            PREFIX.encode() + b"x",
            self.token(iss="https://other.example"),
            self.token(iss=ISSUER + "/"),
            self.token(without="iss"),
            self.token(x="y" * FOREIGN_TOKEN_LIMIT),
        ):
            self.assertIsNone(self.method.authenticate(Presented(None, token)))

    def test_rejected(self) -> None:
        """The reasons are kube-apiserver's, and the client also gets the cure."""
        now = int(NOW)
        for token, reason, kind in (
            (self.token(exp=now - 61), "service account token has expired", "expired"),
            (self.token(nbf=now + 61), "service account token is not valid yet", "not-yet-valid"),
            (self.token(iat=now + 61), "service account token is issued in the future", "not-yet-valid"),
            (
                self.token(aud=["a", "b"]),
                'token audiences ["a" "b"] is invalid for the target audiences ["tower"]',
                "other",
            ),
            (self.token(kid="x"), "invalid signature, no keys found", "other"),
            (self.token(key=rsa_key("x")), "go-jose/go-jose: error in cryptographic primitive", "other"),
            (self.token(without="exp"), "the token never expires", "other"),
            (self.token(iss="kubernetes/serviceaccount"), "never expire", "other"),
            (self.private(warnafter=now - 61), "service account token has expired", "expired"),
            (self.token(sub="system:serviceaccount:default:joe"), "does not name", "other"),
            (self.token(without=KUBERNETES), "does not name", "other"),
            (self.private(namespace="x:y"), "does not name", "other"),
            (self.private(serviceaccount={"name": "a/b"}), "does not name", "other"),
            (self.token(exp="1"), "expected number value to unmarshal NumericDate", "other"),
            (self.token(exp=True), "NumericDate", "other"),
            (self.token(exp=10**400), "NumericDate", "other"),
            (self.token(aud=7), "unmarshal to Audience", "other"),
            (self.token(aud=[7]), "unmarshal to Audience", "other"),
            (self.token(jti=7), "cannot unmarshal number", "other"),
            (self.token(**{KUBERNETES: "x"}), "cannot unmarshal string", "other"),
        ):
            error = self.rejected(token)
            self.assertIn(reason, error.reason)
            self.assertEqual((error.kind, str(error).startswith("Unauthorized: ")), (kind, True), reason)
            self.assertNotIn(token.decode(), str(error))

    def test_forged(self) -> None:
        """No algorithm without a signature, and none with a shared secret."""
        header, payload, signature = self.token().split(b".")
        none = b"eyJhbGciOiJub25lIn0"  # {"alg":"none"}
        secret = public_pem(rsa_key())
        for token in (
            b"%b.%b." % (none, payload),
            b"%b.%b.%b" % (none, payload, signature),
            b"%b.%b." % (header, payload),
            b"%b.%b.%b" % (header, payload, signature[:-6]),
            id_token(CLAIMS, None, key=secret.replace(b"-", b"_"), algorithm="HS256"),
        ):
            self.assertIn("error in cryptographic primitive", self.rejected(token).reason)

    def test_leeway(self) -> None:
        """All times have a minute of tolerance."""
        now = int(NOW)
        for token in (self.token(exp=now - 59), self.token(nbf=now + 59), self.token(iat=now + 59)):
            self.user(token)
        self.assertEqual(self.user(self.private(warnafter=now + 30)).expires, now + 30 + LEEWAY)

    def test_audiences(self) -> None:
        """A token without an audience is for the API server, and so for Tower."""
        self.user(self.token(without="aud"))
        self.user(self.token(aud=AUDIENCE))
        self.user(self.token(aud=["x", AUDIENCE]))

    def test_remembered(self) -> None:
        """A token is verified once in a while, and no longer than its key is in use."""
        token = self.token()
        found = self.user(token)
        self.assertIs(self.user(token), found)
        self.method.check(found)
        self.keys.sets = self.keys.made(ec_key())
        self.assertEqual(self.assertRaises(Unauthorized, self.method.check, found).kind, "removed")
        self.assertIn("no keys found", self.rejected(token).reason)
        self.keys.sets = self.keys.made(ec_key(), rsa_key())
        self.now += 600 + LEEWAY
        self.assertEqual(self.assertRaises(Unauthorized, self.method.check, found).kind, "expired")
        self.now += 1
        self.assertEqual(self.rejected(token).kind, "expired")

    def test_bounds(self) -> None:
        """The least recently used tokens are forgotten."""
        self.patch(service_accounts, "REMEMBERED_LIMIT", 2)
        first = self.token()
        found = self.user(first)
        for number in range(2):
            self.user(self.token(jti=str(number)))
        again = self.user(first)
        self.assertEqual(again, found)
        self.assertIsNot(again, found)

    def test_reads(self) -> None:
        """A token that one of the keys has signed is the door's, also when it has expired."""
        for token, is_read in (
            (self.token(), True),
            (self.token(exp=1), True),
            (self.token(iss="https://other.example"), False),
            (self.token(kid="x"), False),
            (self.token(key=rsa_key("x")), False),
            (b"x" * 20_000, False),
        ):
            self.assertIs(self.method.reads(token), is_read)
        self.keys.sets = None
        self.assertFalse(self.method.reads(self.token()))

    def test_newer_keys(self) -> None:
        """With an issuer that publishes keys, they are gotten again for a token with an unknown key."""
        self.keys.sets, self.keys.fetches = None, Deferred()
        waiting = self.method.authenticate(Presented(None, self.token()))
        assert isinstance(waiting, Deferred)
        self.keys.sets = self.keys.made(rsa_key())
        self.keys.fetches.callback(None)
        found = self.successResultOf(waiting)
        assert found is not None
        self.assertEqual(found.uid, "u-1")
        self.keys.fetches = Deferred()
        waiting = self.method.authenticate(Presented(None, self.token(kid="x")))
        assert isinstance(waiting, Deferred)
        self.keys.fetches.callback(None)
        error: Any = self.failureResultOf(waiting, Unauthorized).value
        self.assertEqual(error.reason, "invalid signature, no keys found (fetching keys: no answer)")
