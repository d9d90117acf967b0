"""Tests of `tower.options.upstream_names`."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import tower
from tower.options.command_line import CommandLine
from tower.options.upstream_names import ALIASES, LEFT_OUT, RENAMED, hint
from tower.options.variables import OPTIONS

PAGE = Path(tower.__file__).parents[1] / "docs" / "not-carried.md"


class HintTests(SynchronousTestCase):
    """Hints about options of kube-apiserver."""

    def error(self, program: str, word: str) -> str:
        """Return the error of an unknown option."""
        errors: list[Exception] = []
        CommandLine(program, "v:", ["host=", "advertise-address="], errors).options([word])
        (error,) = errors
        return str(error)

    def test_cures(self) -> None:
        """The proxy names its own option, or where the reason is; the agent does not."""
        for name, ours in RENAMED.items():
            self.assertIn(f"its name is now --{ours}", self.error("tower-proxy", f"--{name}=a"))
        for name in (
            "etcd-servers",
            "insecure-port",
            "watch-cache-sizes",
            "default-watch-cache-size",
            "enable-admission-plugins",
            "experimental-keystone-ca-file",
            "ir-data-source",
        ):
            self.assertIn("docs/not-carried.md", self.error("tower-proxy", f"--{name}=1"))
        for name in ALIASES:
            self.assertIn("it is an option of tower-proxy", self.error("tower-agent", f"--{name}=a"))
        self.assertIn("did you mean --advertise-address", self.error("tower-proxy", "--advertise-adress=::1"))

    def test_page(self) -> None:
        """The page has each option that is left out, and all its options have the hint."""
        named = set(re.findall(r"`--([a-z0-9-]+)[^`]*`", PAGE.read_text()))
        self.assertEqual(LEFT_OUT - named, set())
        self.assertEqual(
            {name for name in {*RENAMED.values(), *ALIASES, *ALIASES.values()} if name not in OPTIONS}, set()
        )
        self.assertEqual({name for name in LEFT_OUT | RENAMED.keys() if name in OPTIONS}, set())
        self.assertTrue(all(map(hint, LEFT_OUT)))
