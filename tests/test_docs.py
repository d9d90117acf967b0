"""Pages that name tests as their proof."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests(?:\.\w+)+)`")
LEAST = 40  # names on the page: with fewer the expression has missed them


class SecurityModelTests(SynchronousTestCase):
    """`docs/security-model.md` names a test for each promise."""

    def test_named_tests_exist(self) -> None:
        """Every test that the page names is there, as a module, a class or a method."""
        named = NAMED.findall((ROOT / "docs" / "security-model.md").read_text())
        self.assertGreater(len(named), LEAST)
        self.assertEqual([name for name in named if not _exists(name)], [])


def _exists(name: str) -> bool:
    """Return whether *name* is a module of tests, or a class or method in one."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        path = ROOT.joinpath(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return _defines(ast.parse(path.read_text()).body, parts[count:])
    return False


def _defines(body: list[ast.stmt], names: list[str]) -> bool:
    if not names:
        return True
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == names[0]
        and _defines(node.body, names[1:])
        for node in body
    )
