"""Tests of `tower.web.access.authentication.oidc.claimed_user`."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.id_tokens import GOOD, ISSUER
from tower.kube.system_identities import NAME_LIMIT
from tower.web.access.authentication.identity import UserInfo
from tower.web.access.authentication.oidc.claimed_user import (
    CREDENTIAL_ID,
    refreshed_user,
    user_of,
)
from tower.web.access.authentication.oidc.expressions import parsed_expression
from tower.web.access.authentication.oidc.issuer import ClaimSource, IssuerSettings, ValidationRule
from tower.web.access.authentication.oidc.tokens import TokenRejected
from tower.web.access.authentication.reserved_names import GROUPS_LIMIT

EMAIL = evolve(ISSUER, username=ClaimSource("email"))


def by(text: str, variable: str = "claims") -> Any:
    """Return an expression."""
    return parsed_expression(text, variable)


class ClaimedUserTests(SynchronousTestCase):
    """Users of claims."""

    def user(self, issuer: IssuerSettings = ISSUER, **claims: Any) -> UserInfo:
        """Return the user of good claims with changes."""
        return user_of(issuer, {**GOOD, **claims})

    def rejected(self, issuer: IssuerSettings = ISSUER, **claims: Any) -> str:
        """Return the text of the error."""
        error: TokenRejected = self.assertRaises(TokenRejected, user_of, issuer, {**GOOD, **claims})
        self.assertNotIn("\n", str(error))
        return error.reason

    def test_prefixes(self) -> None:
        """Prefixes are prepended to the user and to each group."""
        issuer = evolve(ISSUER, username=ClaimSource("sub", "u:"), groups=ClaimSource("groups", "g:"))
        self.assertEqual(self.user(issuer, groups=["a", "b", "a"]), UserInfo("u:jane", ("g:a", "g:b")))

    def test_refreshed(self) -> None:
        """Each claim replaces its part of the user; missing ones and expressions do not."""
        issuer = evolve(
            ISSUER,
            username=ClaimSource("email", "u:"),
            groups=ClaimSource("groups", "g:"),
            uid=by("claims.oid"),
            required=(("hd", "example.org"),),
        )
        before = UserInfo("u:j@example.org", ("g:a",), "7", (("x", ("y",)),))
        self.assertEqual(refreshed_user(issuer, before, {"sub": "jane"}), before)
        claims = {"email": "j@example.org", "groups": ["b"], "oid": "8", "hd": "example.org"}
        self.assertEqual(refreshed_user(issuer, before, claims), evolve(before, groups=("g:b",)))
        self.assertEqual(refreshed_user(issuer, before, {"email": "x"}).name, "u:x")
        self.assertEqual(refreshed_user(evolve(issuer, uid=ClaimSource("oid")), before, claims).uid, "8")
        for bad in ({"hd": "other"}, {"groups": 7}, {"email": "x", "email_verified": False}):
            self.assertRaises(TokenRejected, refreshed_user, issuer, before, bad)

    def test_groups(self) -> None:
        """Groups are a text, a list of texts, null or missing; empty ones are omitted."""
        value: Any
        for value, groups in (("a", ("a",)), (["a", ""], ("a",)), ([], ()), (None, ()), ("", ())):
            self.assertEqual(self.user(groups=value).groups, groups)
        self.assertEqual(self.user().groups, ())
        self.assertEqual(self.user(evolve(ISSUER, groups=None), groups=["a"]).groups, ())
        for value, kind in (
            (7, "number"),
            (["a", 7], "array"),
            ([["a"]], "array"),
            ({}, "object"),
            (True, "bool"),
        ):
            text = f"json: cannot unmarshal {kind} into Go value of type string"
            self.assertEqual(self.rejected(groups=value), f'oidc: parse groups claim "groups": {text}')

    def test_username(self) -> None:
        """The user name is a text, and not empty."""
        self.assertEqual(self.rejected(EMAIL), 'oidc: parse username claims "email": claim not present')
        value: Any
        for value in (7, None, "", ["jane"], {}):
            self.assertIn('parse username claims "sub": ', self.rejected(sub=value))

    def test_email(self) -> None:
        """An e-mail address must not be unverified; other claims do not depend on that."""
        self.assertEqual(self.user(EMAIL, email="j@example.org").name, "j@example.org")
        self.assertEqual(self.user(EMAIL, email="j@example.org", email_verified=True).name, "j@example.org")
        self.assertEqual(
            self.rejected(EMAIL, email="j@example.org", email_verified=False), "oidc: email not verified"
        )
        value: Any
        for value in ("true", 1, None):
            self.assertIn("parse 'email_verified'", self.rejected(EMAIL, email="j", email_verified=value))
        self.assertEqual(self.user(email_verified=False).name, "jane")

    def test_required(self) -> None:
        """Required claims are texts with exactly these values."""
        issuer = evolve(ISSUER, required=(("hd", "example.org"),))
        self.user(issuer, hd="example.org")
        self.assertEqual(self.rejected(issuer), "oidc: required claim hd not present in ID token")
        text = "oidc: required claim hd value does not match. Got = example.com, want = example.org"
        self.assertEqual(self.rejected(issuer, hd="example.com"), text)
        value: Any
        for value in (["example.org"], True, {"example.org": 1}):
            self.assertIn("oidc: parse claim hd: json: cannot unmarshal", self.rejected(issuer, hd=value))

    def test_uid_and_extra(self) -> None:
        """The uid and additional facts are read; the ID of a token is a fact."""
        issuer = evolve(
            ISSUER,
            uid=ClaimSource("oid"),
            extra=(("example.org/tenant", by("claims.tenant")), ("example.org/none", by("''"))),
        )
        user = self.user(issuer, oid="7", tenant=["a", "b"], jti="x")
        self.assertEqual(user.uid, "7")
        self.assertEqual(user.extra, ((CREDENTIAL_ID, ("JTI=x",)), ("example.org/tenant", ("a", "b"))))
        self.assertEqual(self.user(jti=7).extra, ())
        self.assertEqual(self.user(jti="a\r\nb").extra, ())
        self.assertIn('parse uid claim "oid": claim not present', self.rejected(issuer, tenant="a"))
        self.assertIn("no such key: tenant", self.rejected(issuer, oid="7"))
        self.assertIn("a string or a list of strings", self.rejected(issuer, oid="7", tenant=[7]))
        self.assertIn("short printable text", self.rejected(issuer, oid="7\n", tenant="a"))

    def test_expressions(self) -> None:
        """Names may be the values of expressions, such as nested claims."""
        issuer = evolve(ISSUER, username=by("'kc:' + claims.sub"), groups=by("claims.realm_access.roles"))
        self.assertEqual(self.user(issuer, realm_access={"roles": ["a"]}), UserInfo("kc:jane", ("a",)))
        self.assertIn("error evaluating group claim expression", self.rejected(issuer))
        self.assertIn("must return a string", self.rejected(evolve(ISSUER, username=by("claims.exp"))))
        empty = "oidc: empty username via CEL expression is not allowed"
        self.assertEqual(self.rejected(evolve(ISSUER, username=by("''"))), empty)

    def test_rules(self) -> None:
        """Rules about claims and about the user must be true."""
        issuer = evolve(
            ISSUER,
            claim_rules=(ValidationRule(by("claims.hd == 'a'"), "not a"),),
            user_rules=(ValidationRule(by("user.groups.all(g, g.startsWith('team-'))", "user"), "no team"),),
        )
        self.user(issuer, hd="a", groups=["team-1"])
        text = "validation expression 'claims.hd == 'a'' failed: not a"
        rejected = self.rejected(issuer, hd="b")
        self.assertEqual(rejected, f"oidc: error evaluating claim validation expression: {text}")
        self.assertIn("no such key: hd", self.rejected(issuer))
        self.assertIn("failed: no team", self.rejected(issuer, hd="a", groups=["x"]))
        broken = evolve(ISSUER, user_rules=(ValidationRule(by("user.username", "user")),))
        self.assertIn("validation expression must return a boolean", self.rejected(broken))

    def test_distributed(self) -> None:
        """Groups that the provider keeps elsewhere are an error, not a user without groups."""
        names: dict[str, Any] = {
            "_claim_names": {"groups": "a"},
            "_claim_sources": {"a": {"endpoint": "https://x"}},
        }
        self.assertIn("oidc: could not expand distributed claims", self.rejected(**names))
        self.assertEqual(self.user(groups=["a"], **names).groups, ("a",))
        self.assertEqual(self.user(_claim_names={"photo": "a"}).groups, ())

    def test_reserved(self) -> None:
        """Names that Kubernetes or Tower reserve never come from a provider."""
        for name in ("system:admin", "tower:x", "kube:admin", "clusterAdmin", "system:serviceaccount:a:b"):
            self.assertIn(f"oidc: user {name!r}: ", self.rejected(sub=name))
            self.assertIn(f"oidc: group {name!r}: ", self.rejected(groups=["a", name]))
        self.assertIn("group 'system:masters'", self.rejected(groups="system:masters"))
        prefixed = evolve(ISSUER, groups=ClaimSource("groups", "sys"))
        self.assertIn("group 'system:masters'", self.rejected(prefixed, groups=["tem:masters"]))
        self.assertEqual(self.user(groups=["a", "system:authenticated"]).groups, ("a",))

    def test_names(self) -> None:
        """Names fit a header field."""
        for name in (
            "a\nb",
            "a\r\nImpersonate-Group: x",
            " a",
            "a ",
            "a\x00",
            "a" * (NAME_LIMIT + 1),
            "\u202e",
        ):
            self.assertIn("printable", self.rejected(sub=name))
            self.assertIn("printable", self.rejected(groups=[name]))
        self.assertEqual(self.user(sub="Zoë", groups=["Équipe 1"]), UserInfo("Zoë", ("Équipe 1",)))
        many = [str(i) for i in range(GROUPS_LIMIT + 1)]
        self.assertIn(f"the limit is {GROUPS_LIMIT}", self.rejected(groups=many))
