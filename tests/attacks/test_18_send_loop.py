"""18: a peer breaks during a loop of sends to it; the process goes on with everything else."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.integration.programs import LOOPBACK, PATIENCE, Program, die_with_parent, wait_for

#: Connects to a port, with TLS or without, prints a line, and then neither reads nor writes.
PEER = """
import socket, ssl, sys, time
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])))
if sys.argv[3] == "TLS":
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    peer = context.wrap_socket(peer)
peer.sendall(b"here")
print("up", flush=True)
time.sleep(3600)
"""


class SendLoopTests(SynchronousTestCase):
    """See `tests.attacks.sender`."""

    def begin(self, kind: str) -> None:
        """Start the program, and connect to its control port."""
        folder = Path(tempfile.mkdtemp(prefix="tower-18-"))
        self.addCleanup(shutil.rmtree, folder)
        self.program = Program("sender", [sys.executable, "-m", "tests.attacks.sender", kind], folder)
        self.addCleanup(self.program.kill)
        self.program.start()
        wait_for("the ports", lambda: self.program.output().endswith("\n"))
        self.port, control = map(int, self.program.output().split())
        self.control = socket.create_connection((LOOPBACK, control), timeout=PATIENCE)
        self.addCleanup(self.control.close)
        self.assertEqual(self.asked(b"ping"), 0)

    def asked(self, line: bytes) -> int:
        """Return the number of peers; fail if the program does not answer."""
        self.control.sendall(line + b"\n")
        return self.answer()

    def answer(self) -> int:
        """Return the next answer."""
        answer = b""
        while not answer.endswith(b"\n"):
            try:
                answer += self.control.recv(1)
            except TimeoutError:
                self.fail("the program is busy with a disconnected peer")
        return int(answer)

    def peer(self, kind: str) -> subprocess.Popen[bytes]:
        """Return a connected program."""
        peer = subprocess.Popen(
            [sys.executable, "-c", PEER, LOOPBACK, str(self.port), kind],
            stdout=subprocess.PIPE,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (one system call)
        )
        assert peer.stdout is not None
        self.addCleanup(peer.stdout.close)
        self.addCleanup(peer.wait)
        self.addCleanup(peer.kill)
        self.assertEqual(peer.stdout.readline(), b"up\n")
        wait_for("the peer", lambda: self.asked(b"ping") == 1)
        return peer

    def attack(self, kind: str) -> None:
        """Kill peers, with bytes unread or without, such that only the sender finds out."""
        self.begin(kind)
        for is_full in (False, True):
            peer = self.peer(kind)
            if is_full:
                self.assertEqual(self.asked(b"go"), 1)
            self.program.pause()
            self.control.sendall(b"go\n")
            peer.kill()
            peer.wait()
            self.program.resume()
            self.answer()
            wait_for("its end", lambda: self.asked(b"ping") == 0)

    def test_plain(self) -> None:
        """A peer on a plain socket is killed."""
        self.attack("PLAIN")

    def test_tls(self) -> None:
        """A peer with TLS is killed."""
        self.attack("TLS")
