"""The page about kube-apiserver's options, compared with a real one."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.guide import DOCS
from tests.integration.member import member
from tests.integration.programs import run
from tower.options.variables import OPTIONS


class OptionTests(SynchronousTestCase):
    """The page about kube-apiserver's options."""

    def test_all(self) -> None:
        """It has all options that both programs have, and no others."""
        program = Path(f"/proc/{member().info['pids']['kube-apiserver']}/exe").resolve()
        help_text = run([str(program), "--help"], timeout=60).stdout.decode()
        upstream = set(re.findall(r"^ +--([a-z0-9-]+)", help_text, re.MULTILINE))
        table = re.findall(r"^\| (.*?) \|", (DOCS / "kube-apiserver-options.md").read_text(), re.MULTILINE)
        listed = {name for cell in table for name in re.findall(r"`--([a-z0-9-]+)`", cell)}
        self.assertGreater(len(listed), 60)
        self.assertEqual(listed, OPTIONS & upstream)
