"""Tests of `tower.web.access.authentication.oidc.expressions`."""

from __future__ import annotations

from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tower.web.access.authentication.oidc.expression_values import ExpressionError
from tower.web.access.authentication.oidc.expressions import EXPRESSION_LIMIT, parsed_expression

CLAIMS = {
    "sub": "jane",
    "n": 7,
    "yes": True,
    "null": None,
    "roles": ["a", "b"],
    "realm_access": {"roles": ["x"]},
    "https://example.org/groups": ["y"],
}


class ExpressionTests(SynchronousTestCase):
    """Values of expressions."""

    def value(self, text: str) -> Any:
        """Return the value."""
        return parsed_expression(text, "claims").evaluate("claims", CLAIMS)

    def test_values(self) -> None:
        """Each supported part."""
        for text, value in (
            ("claims.sub", "jane"),
            ("claims['sub']", "jane"),
            ('claims["https://example.org/groups"]', ["y"]),
            ("claims.realm_access.roles", ["x"]),
            ("'a:' + claims.sub + \"-\"", "a:jane-"),
            ("claims.roles + claims.realm_access.roles", ["a", "b", "x"]),
            ("claims.?email_verified.orValue(true) == true", True),
            ("claims.?realm_access.roles.orValue([])", ["x"]),
            ("claims.?other.roles.orValue(['z'])", ["z"]),
            ("claims.?other.?roles.orValue([])", []),
            ("has(claims.sub) && !has(claims.email)", True),
            ("has(claims.other) ? claims.other : 'none'", "none"),
            ("claims.n == 7 && claims.yes == true", True),
            ("claims.yes == 1", False),
            ("claims.n == '7'", False),
            ("claims.n != 8", True),
            ("claims.null == null", True),
            ("claims.sub == 'joe' || claims.sub == 'jane'", True),
            ("'a' in claims.roles", True),
            ("'c' in claims.roles", False),
            ("claims.sub in ['joe', 'jane',]", True),
            ("'sub' in claims", True),
            ("claims.roles.all(r, r.size() == 1)", True),
            ("claims.roles.exists(r, r == 'b' && claims.yes)", True),
            ("claims.roles.exists(r, r.contains('z'))", False),
            ("!(claims.sub.startsWith('system:'))", True),
            ("!!claims.yes", True),
            ("claims.sub.endsWith('ne')", True),
            ("(claims.yes ? ['a'] : [])", ["a"]),
            ("claims.n - 3 <= 4 && claims.n - 3 < 5", True),
            ("claims.n > 7 || claims.n >= 8", False),
            ("-claims.n + 1 == -6", True),
            ("'a' < 'b'", True),
            ("'a,b'.split(',')", ["a", "b"]),
            ("'ab'.split('')", ["a", "b"]),
            ("claims.roles.join('-') + claims.roles.join()", "a-bab"),
            ("'JÄNE'.lowerAscii()", "jÄne"),
            ("size(claims.roles) + size('abc')", 5),
            ("claims.roles.map(r, 'team:' + r)", ["team:a", "team:b"]),
            ("claims.roles.filter(r, r != 'a')", ["b"]),
            ("claims.roles.exists_one(r, r >= 'a')", False),
            ("claims.roles[0] + claims.roles[2 - 1]", "ab"),
        ):
            self.assertEqual(self.value(text), value, text)

    def test_no_value(self) -> None:
        """A missing claim, or one of another type, is an error."""
        for text in (
            "claims.other",
            "claims.sub.other",
            "claims.roles['a']",
            "claims.n.startsWith('7')",
            "claims.sub + claims.n",
            "claims.n && true",
            "!claims.n",
            "'a' in claims.sub",
            "claims.sub.all(r, true)",
            "claims.roles.all(r, r)",
            "claims.sub.orValue('x')",
            "claims.?other",
            "claims.?other == null",
            "claims.n.size()",
            "claims.other || true",
            "claims.sub - 1",
            "claims.sub < 1",
            "claims.yes < 1",
            "-claims.sub",
            "claims.roles[2]",
            "claims.roles[-1]",
            "claims.roles.split(',')",
            "claims.sub.join(',')",
            "claims.roles.filter(r, r)",
            "claims.sub.map(r, r)",
        ):
            self.assertRaises(ExpressionError, self.value, text)

    def test_not_supported(self) -> None:
        """Everything else is rejected when the expression is read, with the part in the error."""
        for text, part in (
            ("", "ends too early"),
            ("claims.", "ends too early"),
            ("claims.n * 2", "'*"),
            ("claims.sub.split()", "split() with 0 arguments"),
            ("claims.roles.join(',', ',')", "join() with 2 arguments"),
            ("claims.roles.map(r, true, r)", "','"),
            ("claims.n < 1 < 2", "'<'"),
            ("claims.sub.matches('x')", "matches"),
            ("user.username", "'user'"),
            ("r", "'r'"),
            ("claims.roles.all(r, true) && r == 'a'", "'r'"),
            ("claims claims", "'claims'"),
            ("'a\\n'", "'\\''"[1:2]),
            ("'a", "'"),
            ("claims.sub == 'a' == true", "'=='"),
            ("has(claims)", "has()"),
            ("has(claims['sub'])", "has()"),
            ("true ? 1", "':'"),
            ("__import__('os')", "__import__"),
            ("(" * 100 + "true" + ")" * 100, "nested"),
            ("[" * 3000, "nested"),
            ("'" + "a" * EXPRESSION_LIMIT + "'", "characters"),
        ):
            error = self.assertRaises(ExpressionError, parsed_expression, text, "claims")
            self.assertIn(part, str(error), text)

    def test_equal(self) -> None:
        """Expressions with the same text are equal."""
        self.assertEqual(parsed_expression("claims.a", "claims"), parsed_expression("claims.a", "claims"))
