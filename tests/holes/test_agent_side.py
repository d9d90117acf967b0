"""Holes 10, 17, 18, 19 and 31: the agent's credentials, addresses and messages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from twisted.internet.defer import Deferred
from twisted.internet.testing import MemoryReactorClock
from twisted.python.failure import Failure

from tests.fakes.agent_options import line
from tests.fakes.chains import family, issue, pem
from tests.fakes.gateway import get
from tests.holes.agentkit import MemoryAgent
from tests.holes.case import HoleTestCase
from tests.holes.towerkit import status_of
from tower.agent import Agent, Options, makeService
from tower.kube.apiserver import APIServer, in_cluster_access
from tower.kube.kubeconfig import KubeAccess
from tower.net.connecting import ConnectFailed
from tower.tunnels.targets import Target

API = b"/clusters/alpha/api"
STREAM = (b"Connection: Upgrade", b"Upgrade: tower-stream")


class CredentialTests(HoleTestCase):
    """Holes 10 and 31: the agent's token in a file."""

    def with_token(self, content: str) -> tuple[MemoryAgent, Path]:
        """Return an agent that has its token in a file, and the file."""
        path = Path(self.mktemp())
        path.write_text(content)
        access = KubeAccess(server="https://10.0.0.1:6443", token_file=path, insecure=True)
        return self.agent(member=APIServer(lambda: access)), path

    def test_hole_10_a_rotated_token_counts_at_once(self) -> None:
        """Hole 10: after a rotation the next request has the new token, on the same kept connection too."""
        agent, path = self.with_token("one")
        jane = self.tower.credential("alpha")
        user = self.tower.user()
        self.assertIn(b"\r\nAuthorization: Bearer one\r\n", self.through(agent, user, API, jane))
        path.write_text("two")
        os.utime(path, (1, 1))
        self.assertTrue(agent.member.refresh())
        self.assertIn(b"\r\nAuthorization: Bearer two\r\n", self.through(agent, user, API, jane))
        self.assertEqual(len(agent.dialed), 1)

    def test_hole_31_line_ends_around_tokens(self) -> None:
        """Hole 31: blanks and line ends around the token in a file are not part of it."""
        for content in ("word\n", "word\r\n", "\n word \n\n"):
            agent, _ = self.with_token(content)
            asked = self.through(agent, self.tower.user(), API, self.tower.credential("alpha"))
            self.assertEqual(asked.count(b"\r\nAuthorization: Bearer word\r\n"), 1, content)
            agent.service.stopService()
            self.tower.pump()

    def test_hole_31_join_token_in_a_file(self) -> None:
        """Hole 31: the same for a join token."""
        path = Path(self.mktemp()).absolute()
        path.write_text("tower-abc\r\n")
        options = Options({})
        options.parse([*line(), f"--token-file={path}"])
        self.assertEqual(options.secret("token"), "tower-abc")


class StreamTests(HoleTestCase):
    """Holes 17 and 18: raw streams, and when they are reported as open."""

    def setUp(self) -> None:
        """Open a target, and a stream to it."""
        super().setUp()
        self.connected = self.agent(targets=(Target("db", "10.0.0.5", 5432),))
        self.jane = self.tower.credential("alpha")
        self.user = self.tower.user()

    def open(self) -> bytes:
        """Request the stream; return the answer."""
        return self.tower.ask(self.user, get(b"/clusters/alpha/targets/db", self.jane, *STREAM))

    def test_hole_17_the_tail_after_a_half_close(self) -> None:
        """Hole 17: after a user's end, the rest of the answer still comes, all of it."""
        self.assertEqual(status_of(self.open()), 101)
        target = self.server(self.connected)
        self.user.deliver(b"query")
        self.user.end()
        self.tower.pump()
        self.assertEqual((target.taken(), target.finished, target.closing), (b"query", True, False))
        answer = bytes(range(256)) * 4096
        target.deliver(answer)
        target.end()
        self.tower.pump()
        self.assertEqual(self.user.taken(), answer)
        self.assertTrue(self.user.finished)

    def test_hole_17_the_tail_of_an_upload(self) -> None:
        """Hole 17: after a target's end, the user's further data reaches it."""
        self.open()
        target = self.server(self.connected)
        target.deliver(b"go on")
        target.end()
        self.tower.pump()
        self.assertEqual((self.user.taken(), self.user.finished, self.user.closing), (b"go on", True, False))
        self.user.deliver(b"b" * 300_000)
        self.user.end()
        self.tower.pump()
        self.assertEqual((target.taken(), target.finished), (b"b" * 300_000, True))

    def test_hole_18_open_means_reached(self) -> None:
        """Hole 18: a stream is open when its target has answered the agent, and not before."""
        dialing: Deferred[Any] = Deferred()
        self.connected.reach = lambda: dialing
        (tunnel,) = self.tower.tunnels.live("alpha")
        opening = tunnel.open("db")
        self.tower.pump()
        self.assertEqual(self.connected.dialed, [("10.0.0.5", 5432)])
        self.assertNoResult(opening)
        dialing.errback(Failure(ConnectFailed("refused", "10.0.0.5:5432: connection refused")))
        self.tower.pump()
        error: Any = self.failureResultOf(opening).value
        self.assertEqual((error.code, error.peer_text), ("refused", "10.0.0.5:5432: connection refused"))

    def test_hole_18_a_user_gets_a_status(self) -> None:
        """Hole 18: the user who wanted the stream gets a Status in place of a 101 and an end."""

        def refuse() -> Any:
            raise ConnectFailed("refused", "10.0.0.5:5432: connection refused")

        self.connected.reach = refuse
        answer = self.open()
        self.assertEqual(status_of(answer), 503)
        self.assertIn(b"connection refused", answer)


class AddressTests(HoleTestCase):
    """Hole 19: the options and files with the address of the API server and the agent's trust in it."""

    def folder_with(self, **files: bytes) -> Path:
        """Return a new folder with *files*."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder

    def kubeconfig(self, folder: Path, user: dict[str, Any], **cluster: Any) -> str:
        """Write a kubeconfig and return its path."""
        content = {
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443", **cluster}}],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(content))
        return str(path)

    def test_hole_19_kubernetes_service(self) -> None:
        """Hole 19: `--kubernetes-service` counts, over a kubeconfig and over a pod's environment."""
        folder = self.folder_with(**{"ca.crt": pem(issue("ca")[0]), "token": b"t"})
        path = self.kubeconfig(folder, {"token": "t"})
        environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
        jane = self.tower.credential("alpha")
        for member in (
            APIServer.from_kubeconfig(path, "api.example:7443"),
            APIServer(lambda: in_cluster_access(environ, folder), "api.example:7443"),
        ):
            agent = self.agent(member=member)
            asked = self.through(agent, self.tower.user(), API, jane)
            self.assertEqual(agent.dialed, [("api.example", 7443)])
            self.assertIn(b"\r\nHost: api.example:7443\r\n", asked)
            agent.service.stopService()
            self.tower.pump()

    def test_hole_19_credentials_in_files(self) -> None:
        """Hole 19: a kubeconfig that names files has the credentials in them; so has one with a token."""
        certificate, key = issue("agent")
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        files = {
            "ca.crt": pem(family()[0][0]),
            "client.crt": pem(certificate),
            "client.key": private,
            "token": b"word\n",
        }
        folder = self.folder_with(**files)
        pair = {"client-certificate": "client.crt", "client-key": "client.key"}
        shown = APIServer.from_kubeconfig(
            self.kubeconfig(folder, pair, **{"certificate-authority": "ca.crt"})
        )
        assert shown.tls is not None
        self.assertEqual(len(shown.tls.get_ca_certs()), 1)
        self.assertEqual(shown.warnings, [])
        for user in ({"tokenFile": "token"}, {"token": "word"}):
            member = APIServer.from_kubeconfig(self.kubeconfig(folder, user))
            self.assertEqual(member.upstream().credential_line, b"Authorization: Bearer word\r\n")

    def test_hole_19_ipv6(self) -> None:
        """Hole 19: an IPv6 address is in brackets where a port follows, and bare where it is dialed."""
        access = KubeAccess(server="https://[fd00::1]:6443", token="t", insecure=True)
        agent = self.agent(member=APIServer(lambda: access))
        asked = self.through(agent, self.tower.user(), API, self.tower.credential("alpha"))
        self.assertEqual(agent.dialed, [("fd00::1", 6443)])
        self.assertIn(b"\r\nHost: [fd00::1]:6443\r\n", asked)

    def test_hole_19_kubesphere_service(self) -> None:
        """Hole 19: a `--kubesphere-service` without a port, as it is by default, is dialed at port 80."""
        folder = self.folder_with()
        options = Options({})
        options.parse(
            [
                *line(),
                f"--kubeconfig={self.kubeconfig(folder, {'token': 't'})}",
                f"--state-dir={folder / 'state'}",
                "--kubesphere-service=ks-apiserver.kubesphere-system.svc",
            ]
        )
        reactor: Any = MemoryReactorClock()
        agent = makeService(options, reactor)
        assert isinstance(agent, Agent)
        target = agent.targets.find("kubesphere")
        self.assertEqual((target.host, target.port), ("ks-apiserver.kubesphere-system.svc", 80))
