"""A hostile proxy's heads, and the Pythons whose regular expressions once let them pass."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.attacks.agentbench import CLUSTER, TOKEN, AgentBench, environment, old_python
from tests.integration.backends import ROOT
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, PATIENCE, clean_environment

LINE = b"GET /api/v1/secrets HTTP/1.1\r\n"
JANE = b"Impersonate-User: jane\r\n"
HOST = b"Host: x\r\n"

#: Heads, without the empty line, that would change or remove the user.
BAD = (
    LINE + HOST,
    LINE + b"Impersonate-User: \r\n" + HOST,
    LINE + JANE + b"Impersonate-User: root\r\n" + HOST,
    LINE + JANE + HOST + b"Impersonate-User: root\r\n",
    LINE + JANE + HOST + b"IMPERSONATE-USER: root\r\n",
    LINE + JANE + b"Impersonate-Group: system:masters\r\n" + HOST,
    LINE + JANE + b"Impersonate-Group: dev\r\nImpersonate-Group: system:masters\r\n" + HOST,
    LINE + JANE + HOST + b"Impersonate-Group: dev\r\n",
    LINE + JANE + HOST + b"Impersonate_User: root\r\n",
    LINE + JANE + HOST + b"X-Remote-User: root\r\n",
    LINE + JANE + HOST + b"Authorization: Bearer x\r\n",
    LINE + JANE + HOST + b"Connection: Impersonate-User\r\n",
    LINE + JANE + HOST + b"Transfer-Encoding: chunked\r\n",
    LINE + b"Content-Length: 0\r\nContent-Length: 40\r\n" + JANE + HOST,
    LINE + b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n" + JANE + HOST,
    LINE + JANE + HOST + b"A: b\nAuthorization: Bearer x\r\n",
    LINE + JANE + HOST + b"A: b\rImpersonate-User: root\r\n",
    LINE + JANE + HOST + b"A : b\r\n",
    LINE + JANE + HOST + b"A: b\r\n c\r\n",
    b"CONNECT /a HTTP/1.1\r\n" + JANE + HOST,
)

#: Tests of all readers of untrusted input.
READERS = (
    *(
        "tests.kube.test_head_policy",
        "tests.kube.test_self_test",
        "tests.test_patterns",
        "tests.http.test_paths",
    ),
    *(
        "tests.http.test_requests",
        "tests.http.test_responses",
        "tests.http.test_bodies",
        "tests.websocket.test_frames",
    ),
    *(
        "tests.http.test_field_lines",
        "tests.websocket.test_server_handshake",
        "tests.member.test_apiserver_relay",
    ),
)

#: Runs a Twisted program whose check of fields accepts all of them.
BROKEN = (
    "import tower.kube.head_policy; from tower.kube.head_fields import CheckedFields; "
    r"tower.kube.head_policy.check_fields = "
    r"lambda block, *_: CheckedFields(block.split(b'\r\n')[:-2], [], [], False); "
    "from twisted.scripts.twistd import run; run()"
)


def any_old_python() -> str:
    """Return a Python with the defect."""
    python = old_python()
    if not python:
        raise SkipTest(
            "there is no Python 3.11.0 to 3.11.4 on the PATH that takes this environment's packages"
        )
    return python


class PolicyTests(SynchronousTestCase):
    """The agent with this Python."""

    @classmethod
    def python(cls) -> str:
        """Return the environment of the agent."""
        return sys.executable

    def setUp(self) -> None:
        """Start an agent."""
        self.bench = AgentBench(python=self.python())
        self.addCleanup(self.bench.stop)

    def test_heads(self) -> None:
        """No head that would change the user reaches the API server."""
        for head in BAD:
            for again in range(2):
                code, body = self.bench.ask(head + b"\r\n")
                self.assertEqual(code, 403, f"{head!r}, try {again}")
                self.assertEqual(json.loads(body)["reason"], "Forbidden")
        self.assertEqual(self.bench.server.heads, [])
        for fields in (b"", b"Impersonate-Group: dev\r\n"):
            good = LINE + JANE + fields
            self.assertEqual(self.bench.ask(good + HOST + b"\r\n"), (200, b"ok"))
            host = f"Host: {LOOPBACK}:{self.bench.server.port}\r\n".encode()
            credential = f"Authorization: Bearer {TOKEN}\r\n\r\n".encode()
            self.assertEqual(self.bench.server.heads.pop(), good + host + credential)


class OldPythonTests(PolicyTests):
    """The agent with a Python whose ``re`` is broken."""

    @classmethod
    def python(cls) -> str:
        """Return a broken Python."""
        return any_old_python()

    def test_units(self) -> None:
        """The tests of all readers pass with it, too."""
        with tempfile.TemporaryDirectory() as folder:
            run = subprocess.run(
                [self.python(), "-m", "twisted.trial", f"--temp-directory={folder}/trial", *READERS],
                env=environment(self.python()),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
        self.assertEqual(run.returncode, 0, run.stdout[-4000:] + run.stderr)
        ran = re.search(r"Ran ([0-9]+) tests", run.stdout)
        self.assertGreater(int(ran[1]) if ran else 0, 150)


class SelfTestTests(SynchronousTestCase):
    """Both programs with a broken check."""

    def test_programs(self) -> None:
        """They end with one line and exit code 1, without making a file."""
        ports = f"--port={free_port()}", f"--secure-port={free_port()}", f"--host={LOOPBACK}"
        join = f"--proxy-server=ws://{LOOPBACK}:9", f"--name={CLUSTER}", "--host-key=SHA256:" + "a" * 43
        for program, options in (("tower-agent", join), ("tower-proxy", ports)):
            with tempfile.TemporaryDirectory() as folder:
                state = Path(folder, "state")
                run = subprocess.run(
                    [
                        *(sys.executable, "-c", BROKEN, "-n", "--pidfile=", program),
                        *(f"--state-dir={state}", *options),
                    ],
                    env=clean_environment(),
                    cwd=ROOT,
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=PATIENCE,
                )
                output = run.stdout + run.stderr
                self.assertEqual(run.returncode, 1, output)
                self.assertRegex(
                    run.stderr, f"\\A{program}: the self-test of the request policy failed on Python .*\n\\Z"
                )
                self.assertFalse(state.exists(), output)
