"""Tests of `tower.web.access.authentication.oidc.configuration`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.certificates import authority
from tower.web.access.authentication.oidc.configuration import FILE_LIMIT, ISSUERS_LIMIT, read_configuration
from tower.web.access.authentication.oidc.expressions import Expression, parsed_expression
from tower.web.access.authentication.oidc.issuer import (
    ALGORITHMS,
    ClaimSource,
    IssuerSettings,
    ValidationRule,
)

URL = "https://issuer.example"
ISSUER: dict[str, Any] = {"url": URL, "audiences": ["tower"]}
ENTRY: dict[str, Any] = {
    "issuer": ISSUER,
    "claimMappings": {"username": {"claim": "sub", "prefix": "x:"}},
}
TOP = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}


def with_value(value: Any, path: str, new: Any) -> Any:
    """Return a copy of *value* whose field *path* is *new*."""
    made = deepcopy(value)
    place = made
    *names, last = path.split(".")
    for name in names:
        place = place.setdefault(name, {})
    place[last] = new
    return made


class ConfigurationTests(SynchronousTestCase):
    """Issuers in files."""

    def read(self, *entries: Any, **top: Any) -> tuple[IssuerSettings, ...]:
        """Return the issuers of a file."""
        return read_configuration(json.dumps({**TOP, "jwt": list(entries), **top}).encode()).issuers

    def problem(self, path: str, value: Any, entry: Any = ENTRY) -> str:
        """Return the error of an entry with one field that is changed."""
        return self.error(with_value(entry, path, value))

    def error(self, *entries: Any, **top: Any) -> str:
        """Return the error of a file, without the hint about CEL."""
        text = str(self.assertRaises(ValueError, self.read, *entries, **top))
        return text.replace("jwt[0].", "")

    def test_least(self) -> None:
        """The least file, and one without issuers."""
        expected = IssuerSettings(URL, ("tower",), ClaimSource("sub", "x:"), algorithms=ALGORITHMS)
        self.assertEqual(self.read(ENTRY), (expected,))
        self.assertEqual(self.read(ENTRY, apiVersion="apiserver.config.k8s.io/v1beta1"), (expected,))
        self.assertEqual(self.read(), ())
        self.assertEqual(read_configuration(json.dumps(TOP).encode()).issuers, ())
        self.assertEqual(self.read(anonymous={"enabled": False}), ())

    def test_all(self) -> None:
        """Every field."""
        pem = authority().pem
        entry = {
            "issuer": {
                "url": URL,
                "discoveryURL": "https://inside.example/.well-known/openid-configuration",
                "certificateAuthority": pem.decode(),
                "audiences": ["a", "b"],
                "audienceMatchPolicy": "MatchAny",
            },
            "claimValidationRules": [
                {"claim": "hd", "requiredValue": "example.org"},
                {"claim": "empty"},
                {"expression": "claims.a == 'b'", "message": "not b"},
            ],
            "claimMappings": {
                "username": {"claim": "email", "prefix": ""},
                "groups": {"expression": "claims.realm_access.roles"},
                "uid": {"claim": "oid"},
                "extra": [{"key": "example.org/tenant", "valueExpression": "claims.tenant"}],
            },
            "userValidationRules": [{"expression": "!user.username.startsWith('system:')", "message": "m"}],
        }
        (found,) = self.read(entry)
        by = parsed_expression
        self.assertEqual(
            found,
            IssuerSettings(
                URL,
                ("a", "b"),
                ClaimSource("email"),
                by("claims.realm_access.roles", "claims"),
                ClaimSource("oid"),
                (("example.org/tenant", by("claims.tenant", "claims")),),
                (("hd", "example.org"), ("empty", "")),
                (ValidationRule(by("claims.a == 'b'", "claims"), "not b"),),
                (ValidationRule(by("!user.username.startsWith('system:')", "user"), "m"),),
                "https://inside.example/.well-known/openid-configuration",
                authorities=pem,
                algorithms=ALGORITHMS,
            ),
        )
        self.assertEqual(found.document_url, found.discovery_url)
        self.assertNotEqual(found.fingerprint, self.read(ENTRY)[0].fingerprint)
        self.assertIsInstance(found.groups, Expression)

    def test_issuer(self) -> None:
        """Errors of the issuer have upstream's texts."""
        for path, value, text in (
            ("url", "", "issuer.url: Required value"),
            ("url", "http://a", 'issuer.url: Invalid value: "http://a": URL scheme must be https'),
            (
                "url",
                "https://u:p@a",
                'issuer.url: Invalid value: "https://u:p@a": URL must not contain a username',
            ),
            ("url", "https://a?b", 'issuer.url: Invalid value: "https://a?b": URL must not contain a query'),
            (
                "url",
                "https://a#b",
                'issuer.url: Invalid value: "https://a#b": URL must not contain a fragment',
            ),
            ("url", "https://[", 'issuer.url: Invalid value: "https://[": '),
            ("url", "https://a:99999", 'issuer.url: Invalid value: "https://a:99999": '),
            (
                "url",
                7,
                "json: cannot unmarshal number into Go struct field Issuer.jwt.issuer.url of type string",
            ),
            ("discoveryURL", URL + "/", "discoveryURL must be different from URL"),
            (
                "discoveryURL",
                "http://b",
                'issuer.discoveryURL: Invalid value: "http://b": URL scheme must be',
            ),
            ("audiences", [], "issuer.audiences: Required value: at least one issuer.audiences is required"),
            ("audiences", [""], "issuer.audiences[0]: Required value"),
            ("audiences", ["a", "b"], "audienceMatchPolicy must be MatchAny for multiple audiences"),
            ("audienceMatchPolicy", "All", "must be empty or MatchAny for single audience"),
            ("certificateAuthority", "x", 'issuer.certificateAuthority: Invalid value: "<omitted>": '),
            ("egressSelectorType", "cluster", "issuer.egressSelectorType: Invalid value: "),
            ("other", 1, 'strict decoding error: unknown field "issuer.other"'),
        ):
            self.assertIn(text, self.problem(f"issuer.{path}", value), (path, value))
        self.assertIn(
            'issuer.audiences[1]: Duplicate value: "a"', self.problem("issuer.audiences", ["a", "a"])
        )

    def test_mappings(self) -> None:
        """Errors of the mappings have upstream's texts."""
        for path, value, text in (
            ("username", {}, "claimMappings.username: Required value: claim or expression is required"),
            (
                "username",
                {"claim": "a"},
                "username.prefix: Required value: prefix is required when claim is set.",
            ),
            ("username", {"claim": "a", "expression": "claims.a"}, "claim and expression can't both be set"),
            (
                "username",
                {"expression": "claims.a", "prefix": "p"},
                'username.prefix: Invalid value: "p": may not be specified when expression is set',
            ),
            (
                "username",
                {"expression": "claims.email"},
                "claims.email_verified must be used in claimMappings.",
            ),
            ("groups", {"claim": "a"}, "claimMappings.groups.prefix: Required value"),
            (
                "groups",
                {"expression": "claims.a.matches('x')"},
                "the function matches, which Tower does not support",
            ),
            ("uid", {"claim": "a", "expression": "claims.a"}, "claimMappings.uid: Invalid value"),
            ("uid", {"claim": "a", "prefix": "b"}, 'unknown field "claimMappings.uid.prefix"'),
            ("extra", [{"key": "a", "valueExpression": "claims.a"}], "extra[0].key: Invalid value"),
            ("extra", [{"key": "A.org/b", "valueExpression": "claims.a"}], "extra[0].key: Invalid value"),
            (
                "extra",
                [{"key": "x.k8s.io/b", "valueExpression": "claims.a"}],
                "are reserved for Kubernetes use",
            ),
            ("extra", [{"key": "a.org/b"}], "extra[0].valueExpression: Required value"),
            (
                "extra",
                [{"key": "a.org/b", "valueExpression": "claims.a"}] * 2,
                "extra[1].key: Duplicate value",
            ),
            ("extra", ["a"], "json: cannot unmarshal string into Go struct field ClaimMappings.jwt.claim"),
        ):
            self.assertIn(text, self.problem(f"claimMappings.{path}", value), (path, value))
        verified = with_value(ENTRY, "claimMappings.username", {"expression": "claims.email"})
        rules = [{"expression": "claims.?email_verified.orValue(true) == true"}]
        self.assertEqual(len(self.read({**verified, "claimValidationRules": rules})), 1)

    def test_documented_expressions(self) -> None:
        """The expressions in the example of Kubernetes' documentation are accepted."""
        mappings = {
            "username": {"expression": "claims.username + ':external-user'"},
            "groups": {"expression": "claims.roles.split(',')"},
            "uid": {"expression": "claims.sub"},
            "extra": [{"key": "example.com/tenant", "valueExpression": "claims.tenant"}],
        }
        rules = [
            {"expression": "claims.hd == 'example.com'"},
            {"expression": "claims.exp - claims.nbf <= 86400"},
        ]
        users = [
            {"expression": "!user.username.startsWith('system:')"},
            {"expression": "user.groups.all(group, !group.startsWith('system:'))"},
        ]
        entry = {
            **ENTRY,
            "claimMappings": mappings,
            "claimValidationRules": rules,
            "userValidationRules": users,
        }
        self.assertEqual(len(self.read(entry)), 1)

    def test_rules(self) -> None:
        """Errors of the rules have upstream's texts."""
        for value, text in (
            ([{}], "claimValidationRules[0]: Required value: claim or expression is required"),
            ([{"claim": "a", "expression": "true"}], "claim and expression can't both be set"),
            (
                [{"claim": "a", "message": "b"}],
                'message: Invalid value: "b": may not be specified when claim is set',
            ),
            ([{"expression": "true", "requiredValue": "b"}], "may not be specified when expression is set"),
            ([{"claim": "a"}] * 2, 'claimValidationRules[1].claim: Duplicate value: "a"'),
            ([{"expression": "claims.exp * 2 > 2"}], "claimValidationRules[0].expression: Invalid value"),
        ):
            self.assertIn(text, self.problem("claimValidationRules", value))
        self.assertIn(
            "userValidationRules[0].expression: Required value", self.problem("userValidationRules", [{}])
        )
        text = self.problem("userValidationRules", [{"expression": "claims.a"}])
        self.assertIn("has 'claims', which Tower does not support there", text)
        self.assertIn("Tower supports a part of CEL (docs/authentication.md)", text)

    def test_file(self) -> None:
        """Errors of the whole file, all of them in one line."""
        for data, text in (
            (b"", "empty config data"),
            (b"a: [", "is not YAML"),
            (b"\xff", "is not YAML"),
            (b"[" * 50_000, "is not YAML"),
            (b"a: &a [1]\nb: *a", "aliases are not supported"),
            (b"kind: a\nkind: b", 'key "kind" already set in map'),
            (b"7", "Object 'apiVersion' is missing"),
            (b"kind: Secret", "Object 'apiVersion' is missing"),
            (
                b"kind: AuthenticationConfiguration\napiVersion: v9",
                'no kind "AuthenticationConfiguration" is registered for version "v9"',
            ),
            (b" " * (FILE_LIMIT + 1), f"more than {FILE_LIMIT} B"),
        ):
            error = self.assertRaises(ValueError, read_configuration, data)
            self.assertIn(text, str(error))
        self.assertIn('unknown field "other"', self.error(other=1))
        self.assertIn("jwt: Too many", self.error(*[ENTRY] * (ISSUERS_LIMIT + 1)))
        unknown = with_value(with_value(ENTRY, "other", 1), "issuer.x", 2)
        self.assertEqual(
            self.error(unknown, third=3),
            'strict decoding error: unknown field "issuer.x", unknown field "other", unknown field "third"',
        )
        wrong = with_value(ENTRY, "issuer.url", "https://a?b#c")
        problems = (
            'issuer.url: Invalid value: "https://a?b#c": URL must not contain a query',
            'issuer.url: Invalid value: "https://a?b#c": URL must not contain a fragment',
            'jwt[1].issuer.url: Duplicate value: "https://a?b#c"',
        )
        text = self.error(wrong, wrong).replace("jwt[1].issuer.url: Invalid", "")
        self.assertTrue(
            text.startswith(f"invalid authentication configuration: [{', '.join(problems[:2])}, ")
        )
        self.assertTrue(text.endswith(f", {problems[2]}]"))
