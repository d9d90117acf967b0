"""A real agent between a scripted proxy and an API server that records its requests."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import threading
from base64 import b64encode
from functools import cache
from pathlib import Path

from twisted.conch.ssh.common import NS

from tests.integration.backends import ROOT, Backend
from tests.integration.harness import PATIENT
from tests.integration.offences import STREAM
from tests.integration.programs import LOOPBACK, Program, clean_environment, script
from tests.integration.raw_peer import ADJUST, CONFIRM, DATA, OPEN, REFUSE, RawPeer, RawProxy, number

CLUSTER = "alpha"
TOKEN = "the-agents-own"
MIB = 1 << 20
PACKET = 48 * 1024  # B, if the agent has room for it

#: The agent's only request of its own to a server that is not an API server: `tower.kube.member_check`.
CHECK = re.compile(
    rb"GET [^ ?]*/version HTTP/1\.1\r\nAccept: application/json\r\nHost: [^\r]+\r\n"
    rb"Authorization: Bearer the-agents-own\r\nUser-Agent: tower-agent\r\n\r\n"
)

#: Pythons whose ``re`` gets possessive quantifiers wrong (CPython issues 100061 and 106052).
OLD = re.compile(r"3\.11\.[0-4]")


@cache
def old_python() -> str:
    """Return the path of a Python of `OLD` that works with this environment's packages, or ""."""
    named = (f"{folder}/{name}" for folder in os.get_exec_path() for name in ("python3.11", "python3"))
    for path in (sys.executable, *filter(os.path.exists, named)):
        asked = subprocess.run(
            [path, "-c", "import platform, tower.agent, tower.proxy; print(platform.python_version())"],
            env=environment(path),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if OLD.fullmatch(asked.stdout.strip()):
            return path
    return ""


def environment(python: str) -> dict[str, str]:
    """Return the settings with which *python* finds the packages of this environment."""
    if python == sys.executable:
        return clean_environment()
    return clean_environment({"PYTHONPATH": f"{ROOT}:{sysconfig.get_path('purelib')}"})


class RecordingServer:
    """An API server with TLS that answers every request with 200.

    :ivar heads: of all requests, in order, without the agent's own checks.
    """

    def __init__(self, folder: Path) -> None:
        backend = Backend(folder, CLUSTER)  # for its certificate
        self.authority = backend.authority
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(folder / "backend.crt", folder / "backend.key")
        self._listener = socket.create_server((LOOPBACK, 0), backlog=64)
        self.port: int = self._listener.getsockname()[1]
        self.heads: list[bytes] = []
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(sock)
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError), self._context.wrap_socket(sock, server_side=True) as secure:
            data = b""
            while piece := secure.recv(1 << 16):
                data += piece
                while (end := data.find(b"\r\n\r\n") + 4) >= 4:
                    if CHECK.fullmatch(data, 0, end) is None:
                        self.heads.append(data[:end])
                    data = data[end:]
                    secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    def close(self) -> None:
        """Serve no more."""
        self._listener.close()
        for sock in self._sockets:
            sock.close()


class AgentBench:
    """One agent with its two sides.

    :param options: the agent's, in addition to the usual ones.
    :param path: of the server in its kubeconfig.
    :param python: what it runs with.
    """

    def __init__(self, *options: str, path: str = "", python: str = sys.executable) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tower-attack-"))
        self.server = RecordingServer(self.folder)
        self.proxy = RawProxy()
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.touch(0o600)
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: it\n"
            "contexts: [{name: it, context: {cluster: it, user: it}}]\n"
            f"users: [{{name: it, user: {{token: {TOKEN}}}}}]\n"
            f"clusters: [{{name: it, cluster: {{server: 'https://{LOOPBACK}:{self.server.port}{path}', "
            f"certificate-authority-data: {b64encode(self.server.authority).decode()}}}}}]\n"
        )
        argv = [
            *(python, script("twistd"), "-n", "--pidfile=", "tower-agent", f"--name={CLUSTER}"),
            f"--proxy-server=ws://{LOOPBACK}:{self.proxy.port}",
            f"--host-key={self.proxy.host_key.fingerprint}",
            f"--state-dir={self.folder / 'agent'}",
            f"--kubeconfig={kubeconfig}",
            *("--max-retry-interval=0.1s", PATIENT),
            *options,
        ]
        self.agent = Program("tower-agent", argv, self.folder, environment(python))
        self.agent.start()
        self._peer: RawPeer | None = None
        self._streams = 0

    def peer(self) -> RawPeer:
        """Return the agent's tunnel, authenticated."""
        if self._peer is None:
            self._peer = self.proxy.accept()
            self._peer.authenticate()
        return self._peer

    def ask(self, *pieces: bytes) -> tuple[int, bytes]:
        """Send *pieces* on a new stream, no two in one packet.

        :return: the status of the first answer, and its body.
        """
        peer = self.peer()
        self._streams += 1
        peer.say(bytes((OPEN,)) + STREAM + number(self._streams, MIB, MIB) + NS(b"kubernetes"))
        answer = peer.next(CONFIRM, REFUSE)
        assert answer[0] == CONFIRM, answer
        stream, _, credit = (int.from_bytes(answer[at : at + 4], "big") for at in (5, 1, 9))
        for piece in pieces:
            for start in range(0, len(piece), PACKET):
                packet = piece[start : start + PACKET]
                while credit < len(packet):
                    message = peer.next(ADJUST, DATA)
                    if message[1:5] == number(self._streams):
                        if message[0] == DATA:
                            return self._answered(peer, message[9:])
                        credit += int.from_bytes(message[5:9], "big")
                peer.data(stream, packet)
                credit -= len(packet)
        return self._answered(peer)

    def _answered(self, peer: RawPeer, data: bytes = b"") -> tuple[int, bytes]:
        while True:
            head, end, body = data.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", head)
            if end and length and len(body) >= int(length[1]):
                return int(head[9:12]), body
            message = peer.next(DATA)
            if message[1:5] == number(self._streams):
                data += message[9:]

    def stop(self) -> None:
        """End all of it."""
        if self._peer is not None:
            self._peer.close()
        self.agent.stop()
        self.proxy.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)
