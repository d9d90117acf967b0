"""Programs that give credentials, really run."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.trial.unittest import TestCase

from tower.cloud.aws import command
from tower.cloud.aws.command import OUTPUT_LIMIT, Command
from tower.cloud.aws.credentials import NoCredentials
from tower.cloud.aws.signing import AWSCredentials

reactor: Any = _reactor


class CommandTests(TestCase):
    """Scripts in Python, run by their first line or by name."""

    timeout = 60

    def run_it(self, text: str, arguments: str = "") -> Deferred[AWSCredentials]:
        """Run a script."""
        path = Path(self.mktemp()).absolute()
        path.write_text(f"#!{sys.executable}\nimport json, os, sys, time\n{text}\n")
        path.chmod(0o700)
        environ = {**os.environ, "MINE": "of mine"}
        asked = Command(reactor, environ).credentials(f"{path} {arguments}", "it")
        return Deferred.fromCoroutine(asked)

    async def test_credentials(self) -> None:
        """Its output is used; it gets its arguments and the environment, and no input."""
        text = (
            "assert sys.stdin.read() == ''\n"
            "print('discarded', file=sys.stderr)\n"
            "fields = {'Version': 1, 'AccessKeyId': sys.argv[1], 'SecretAccessKey': os.environ['MINE']}\n"
            "print(json.dumps({**fields, 'Expiration': '2040-01-02T03:04:05+00:00'}))"
        )
        found = await self.run_it(text, "'a $HOME;b'")
        self.assertEqual((found.access_key, found.secret_key), ("a $HOME;b", "of mine"))
        self.assertEqual(found.expires, 2209086245.0)

    async def test_fails(self) -> None:
        """Its status is in the error, and no output."""
        failed = await self.assertFailure(self.run_it("sys.exit('a secret')"), NoCredentials)
        self.assertIn("failed with status 1", str(failed))
        self.assertNotIn("secret", str(failed))

    async def test_too_long(self) -> None:
        """It is killed after a timeout."""
        self.patch(command, "TIMEOUT", 1.0)
        mark = Path(self.mktemp()).absolute()
        text = f"open({str(mark)!r}, 'w').write(str(os.getpid()))\ntime.sleep(100)"
        failed = await self.assertFailure(self.run_it(text), NoCredentials)
        self.assertIn("did not end within 1 s", str(failed))
        number = int(mark.read_text())
        for _ in range(100):
            if not Path(f"/proc/{number}").exists():
                break
            waiting: Deferred[None] = Deferred()
            reactor.callLater(0.1, waiting.callback, None)
            await waiting
        self.assertFalse(Path(f"/proc/{number}").exists())

    async def test_too_much(self) -> None:
        """It is ended when it does not stop to write."""
        text = "while True:\n    sys.stdout.write('x' * 4096)"
        failed = await self.assertFailure(self.run_it(text), NoCredentials)
        self.assertIn(f"more than {OUTPUT_LIMIT} B", str(failed))

    async def test_large_and_good(self) -> None:
        """Much, but not too much, is fine."""
        said = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": "s", "More": "x" * (OUTPUT_LIMIT - 200)}
        path = Path(self.mktemp()).absolute()
        path.write_text(json.dumps(said))
        found = await self.run_it(f"print(open({str(path)!r}).read())")
        self.assertEqual(found.access_key, "a")
