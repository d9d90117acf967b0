"""Tests for `tower.cli.completion`."""

from __future__ import annotations

import io
import os

from argcomplete.finders import CompletionFinder

from tests.fakes.cli import CommandTestCase
from tower.cli.arguments import SHELLS, parser
from tower.cli.client import CommandFailed, TowerClient
from tower.cli.command import find_access
from tower.cli.completion import complete


class CompletionTests(CommandTestCase):
    """Completions of a command line."""

    def setUp(self) -> None:
        """Keep argcomplete from using, and later closing, descriptor 9, which may be the reactor's."""
        super().setUp()
        self.patch(CompletionFinder, "_init_debug_stream", lambda _: None)

    def completed(self, line: str, *, is_reachable: bool = True) -> set[str]:
        """Return the completions of the last word of *line*."""
        variables = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "COMP_LINE": line}
        variables["COMP_POINT"] = str(len(line))
        for name, value in variables.items():
            self.patch(os, "environ", {**os.environ, name: value})

        def connect(options: object) -> TowerClient:
            if not is_reachable:
                raise CommandFailed("no proxy")
            return self.client(find_access(options, environ))  # type: ignore[arg-type]

        out, codes = io.StringIO(), list[int]()
        environ = {"TOWER_STATE_DIR": self.state}
        complete(parser(environ), connect, out, codes.append)
        self.assertEqual(codes, [0])
        return set(out.getvalue().split())

    def test_words(self) -> None:
        """Commands, options and values are completed."""
        self.assertEqual(self.completed("tower clus"), {"cluster"})
        self.assertEqual(self.completed("tower cluster li"), {"list"})
        self.assertIn("--selector", self.completed("tower cluster list --s"))
        self.assertEqual(self.completed("tower cluster list -o "), {"table", "wide", "json", "yaml", "name"})
        self.assertEqual(self.completed("tower completion f"), {"fish"})

    def test_names(self) -> None:
        """Names of clusters and credentials are those that exist."""
        self.add("alpha")
        self.add("beta")
        for line in ("cluster show ", "kubeconfig ", "forward ", "join ", "credential list --cluster "):
            self.assertLessEqual({"alpha", "beta"}, self.completed(f"tower {line}"), line)
        self.assertEqual(self.completed("tower cluster remove b"), {"beta"})
        self.assertEqual(self.completed("tower cluster add b"), set())
        self.good("kubeconfig", "alpha", "--user", "jane")
        (name,) = self.store.snapshot("credentials")
        self.assertIn(name, self.completed("tower credential revoke "))

    def test_no_proxy(self) -> None:
        """Without a proxy there are no names, and no error."""
        self.assertEqual(self.completed("tower cluster show al", is_reachable=False), set())

    def test_scripts(self) -> None:
        """Each shell has a script, which needs no proxy."""
        for shell in SHELLS:
            code, out, err = self.run_tower("completion", shell, state=False)
            self.assertEqual((code, err), (0, ""))
            self.assertIn("tower", out)
        self.assertIn("did you mean bash?", self.wrong("completion", "bsh"))
