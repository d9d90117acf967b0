"""The locks of the container image."""

from __future__ import annotations

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

ROOT = Path(__file__).resolve().parent.parent
PIN = re.compile(r"(?m)^([A-Za-z0-9._-]+)==(\S+)")


def pins(path: Path) -> dict[str, str]:
    """Return the version of each package, by its normalized name."""
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in PIN.findall(path.read_text())}


class LockTests(SynchronousTestCase):
    """`tools/image/*.lock`."""

    def test_versions(self) -> None:
        """The image has exactly the tested versions."""
        tested = pins(ROOT / "requirements.lock")
        self.assertGreater(len(tested), 10)
        self.assertEqual(pins(ROOT / "tools/image/runtime.lock"), tested)

    def test_compiler(self) -> None:
        """The data path is compiled with exactly the tested versions."""
        tested = pins(ROOT / "requirements.lock") | pins(ROOT / "requirements-native.lock")
        self.assertIn("mypy", tested)
        self.assertEqual(pins(ROOT / "tools/image/native.lock"), tested)

    def test_digests(self) -> None:
        """Each package has at least one digest."""
        for path in (ROOT / "tools/image").glob("*.lock"):
            blocks = re.split(r"(?m)^(?=\S)", path.read_text())
            packages = [block for block in blocks if PIN.match(block)]
            self.assertEqual(len(packages), len(pins(path)), path)
            for block in packages:
                self.assertIn("--hash=sha256:", block)
