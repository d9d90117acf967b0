"""An agent that is far away: windows grow with the round trip."""

from __future__ import annotations

import shlex
import shutil
import socket
import ssl
import tempfile
import threading
import time
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.link import Link
from tests.integration import harness
from tests.integration.backends import Backend
from tests.integration.old_peers import OldAgent
from tests.integration.programs import LOOPBACK

DELAY = 0.1  # s in each direction
RATE = 50e6  # B/s; two and a half times what a window of 4 MiB carries over this distance
WARM_UP = 4.0  # s until the windows have grown
MEASURED = 4.0  # s
PART = 0.6  # fraction of a plain connection's throughput
OLD_PART = 0.8  # the same with an old agent, to which a window of 2 MiB would leave a fifth


class Download:
    """Reads everything after a request, in a thread.

    :ivar rate: of the data, B/s, in the measured seconds.
    """

    def __init__(self, connection: socket.socket, request: str) -> None:
        self._connection = connection
        self._connection.settimeout(10 * DELAY + MEASURED)
        self._request = request
        self.rate = 0.0
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        buffer = bytearray(256 * 1024)
        size = 0
        with self._connection as connection:
            connection.sendall(self._request.encode())
            begin = time.monotonic() + WARM_UP
            while (now := time.monotonic()) < begin + MEASURED:
                count = connection.recv_into(buffer)
                if not count:
                    return
                size += count if now > begin else 0
        self.rate = size / MEASURED

    def wait(self) -> float:
        """Return the rate once it is known."""
        self._thread.join()
        return self.rate


class FarTestCase(SynchronousTestCase):
    """One proxy, and one cluster whose agent is at the other end of a long link."""

    def setUp(self) -> None:
        """Start proxy and backend."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = harness.Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.start()
        self.backend = Backend(self.folder, "alpha")
        self.addCleanup(self.backend.program.stop)
        self.backend.start()

    def link(self, port: int) -> int:
        """Return the near end of a link to *port*."""
        link = Link(port, delay=DELAY, rate=RATE)
        self.addCleanup(link.close)
        link.start()
        return link.port

    def assertFills(self, part: float) -> None:
        """Check that a download reaches *part* of a plain connection's speed over the same distance."""
        jane = self.tower.person("alpha", "jane", "--auth", "token")
        plain = socket.create_connection((LOOPBACK, self.link(self.backend.ports["alpha"]["http"])))
        tls = ssl.create_default_context(cadata=jane.ca)
        ours = tls.wrap_socket(socket.create_connection((jane.host, jane.port)), server_hostname=jane.host)
        head = f"Host: {jane.host}\r\nAuthorization: Bearer {jane.token}\r\n\r\n"
        downloads = [
            Download(plain, f"GET /flood HTTP/1.1\r\n{head}"),
            Download(ours, f"GET {jane.prefix}/flood HTTP/1.1\r\n{head}"),
        ]
        expected, measured = (download.wait() for download in downloads)
        self.assertGreater(expected, 0)
        self.assertGreater(measured / expected, part, (measured, expected))


class FarTests(FarTestCase):
    """A Tower agent."""

    def test_download(self) -> None:
        """A distant download is about as fast as over a plain connection."""
        self.tower.add("alpha", self.backend.kubeconfig("alpha"), via=self.link(self.tower.secure_port))
        self.assertFills(PART)


class OldFarTests(FarTestCase):
    """An old agent, which sends as much as its window allows."""

    def test_download(self) -> None:
        """A distant download is as fast, because the window is more than its own 2 MiB."""
        self.tower.tower("cluster", "add", "alpha")
        words = shlex.split(self.tower.tower("join", "alpha", "--protocol", "v1"))
        authority = self.folder / "backend-ca.crt"
        authority.write_bytes(self.backend.authority)
        bearer = self.folder / "bearer"
        bearer.write_text("the-agent-of-alpha")
        agent = OldAgent(
            self.folder,
            f"http://{LOOPBACK}:{self.link(self.tower.port)}",
            "alpha",
            words[words.index("--token") + 1],
            f"{LOOPBACK}:{self.backend.ports['alpha']['https']}",
            ca=authority,
            bearer=bearer,
        )
        self.addCleanup(agent.program.stop)
        agent.program.start()
        agent.wait_until_ready()
        self.assertFills(OLD_PART)
