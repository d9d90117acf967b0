"""2: a hostile proxy asks a real agent to act as the cluster itself, and as its administrators."""

from __future__ import annotations

import base64
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.head_server import BOOTSTRAPPERS, NAMES, HeadServer
from tests.integration.harness import PATIENT
from tests.integration.member import member
from tests.integration.opening import opening
from tests.integration.programs import LOOPBACK, Program, script
from tests.integration.raw_peer import CONFIRM, DATA, END, RawPeer, RawProxy

CLUSTER = "alpha"

CSRS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"


class HostileProxyTestCase(SynchronousTestCase):
    """Each test has a proxy with the host key that agents pin."""

    def setUp(self) -> None:
        """Listen."""
        self.folder = Path(tempfile.mkdtemp(prefix="tower-attack-02-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.proxy = RawProxy()
        self.addCleanup(self.proxy.close)
        self.streams = 0

    def tunnel(self, kubeconfig: Path, *options: str) -> RawPeer:
        """Start an agent; return its tunnel."""
        self.agent = Program(
            "tower-agent",
            [
                *(script("twistd"), "-n", "--pidfile=", "tower-agent", f"--name={CLUSTER}"),
                f"--proxy-server=ws://{LOOPBACK}:{self.proxy.port}",
                f"--host-key={self.proxy.host_key.fingerprint}",
                f"--state-dir={tempfile.mkdtemp(dir=self.folder)}",
                f"--kubeconfig={kubeconfig}",
                *(PATIENT, *options),
            ],
            self.folder,
        )
        self.addCleanup(self.agent.stop)
        self.agent.start()
        peer = self.proxy.accept()
        self.addCleanup(peer.close)
        peer.authenticate()
        return peer

    def ask(
        self,
        peer: RawPeer,
        user: str,
        groups: Sequence[str] = (),
        request: str = "GET /api",
        body: bytes = b"",
    ) -> tuple[int, bytes]:
        """Send the agent a request with these users to impersonate on a new stream; return code and body."""
        self.streams += 1
        peer.say(opening("kubernetes", ours=self.streams))
        confirmed = peer.next(CONFIRM)
        fields = [
            f"Impersonate-User: {user}",
            *(f"Impersonate-Group: {group}" for group in groups),
            "Host: x",
        ]
        framing = []
        if body:
            framing, fields = [f"Content-Length: {len(body)}"], [*fields, "Content-Type: application/json"]
        head = "\r\n".join((f"{request} HTTP/1.1", *framing, *fields, "", "")).encode()
        remote = int.from_bytes(confirmed[5:9], "big")
        peer.data(remote, head + body)
        answer = b""
        while True:
            head, found, rest = answer.partition(b"\r\n\r\n")
            length = re.search(rb"(?i)\r\ncontent-length: ([0-9]+)", head)
            if found and length is not None and len(rest) >= int(length[1]):
                return int(head[9:12]), rest
            message = peer.next(DATA, END)
            self.assertEqual(message[0], DATA, answer)
            answer += message[9:]

    def assertRefused(self, answer: tuple[int, bytes], name: str) -> None:
        """The answer is a Status that names the forbidden identity, and the fix."""
        self.assertEqual(answer[0], 403, name)
        status = json.loads(answer[1])
        self.assertEqual((status["kind"], status["code"]), ("Status", 403))
        self.assertIn(f'not allow users to act as "{name}"', status["message"])
        self.assertIn(f"--allow-system-identity {name}", status["message"])


class HeadTests(HostileProxyTestCase):
    """The heads that reach the API server."""

    def setUp(self) -> None:
        """Start an API server."""
        super().setUp()
        self.server = HeadServer()
        self.addCleanup(self.server.close)
        self.kubeconfig = self.server.kubeconfig(self.folder)

    def assertReached(self, *lines: str) -> None:
        """One request reached the API server since the last one, with this identity."""
        self.assertEqual(self.server.identities(), [list(lines)])

    def test_no_user_acts_as_the_system(self) -> None:
        """No name of the system and of no administrator passes, as user, as group, or behind other groups."""
        peer = self.tunnel(self.kubeconfig)
        for name in NAMES:
            self.assertRefused(self.ask(peer, name), name)
            self.assertRefused(self.ask(peer, "jane", [name]), name)
            self.assertRefused(self.ask(peer, "jane", ["dev", "system:authenticated", name, "qa"]), name)
            self.assertRefused(self.ask(peer, f"{name} "), name)
        self.assertRefused(self.ask(peer, "system:authenticated"), "system:authenticated")
        self.assertEqual(self.server.heads, [])
        self.assertEqual(self.ask(peer, "jane", ["dev"])[0], 200)
        self.assertReached("Impersonate-User: jane", "Impersonate-Group: dev")

    def test_one_that_is_allowed(self) -> None:
        """The one name that the owner allows passes, and no other; the log names it."""
        allowed = "system:cluster-admins"
        peer = self.tunnel(self.kubeconfig, f"--allow-system-identity={allowed}")
        for name in NAMES:
            if name != allowed:
                self.assertRefused(self.ask(peer, name), name)
                self.assertRefused(self.ask(peer, "jane", [allowed, name]), name)
        self.assertRefused(self.ask(peer, "jane", [f"{allowed}2"]), f"{allowed}2")
        self.assertEqual(self.server.heads, [])
        self.assertEqual(self.ask(peer, "jane", [allowed])[0], 200)
        self.assertReached("Impersonate-User: jane", f"Impersonate-Group: {allowed}")
        self.assertEqual(self.ask(peer, allowed)[0], 200)
        self.assertReached(f"Impersonate-User: {allowed}")
        self.assertIn(f"--allow-system-identity {allowed}", self.agent.output())

    def test_all_allowed(self) -> None:
        """All pass if the owner allows it, and the log warns that this is not secure."""
        peer = self.tunnel(self.kubeconfig, "--allow-system-identities")
        for name in NAMES:
            self.assertEqual(self.ask(peer, name, [name])[0], 200)
            self.assertReached(f"Impersonate-User: {name}", f"Impersonate-Group: {name}")
        self.assertIn("--allow-system-identities is insecure", self.agent.output())

    def test_authenticated(self) -> None:
        """The group that Kubernetes adds by itself is left out."""
        peer = self.tunnel(self.kubeconfig)
        self.assertEqual(self.ask(peer, "jane", ["system:authenticated", "dev"])[0], 200)
        self.assertReached("Impersonate-User: jane", "Impersonate-Group: dev")


class CertificateTests(HostileProxyTestCase):
    """A certificate of a node, from a real API server with the rights that kubeadm gives."""

    def setUp(self) -> None:
        """Let kubeadm's bootstrap tokens request certificates, as kubeadm does."""
        super().setUp()
        self.member = member()
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "kubeadm:kubelet-bootstrap"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "system:node-bootstrapper",
            },
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": BOOTSTRAPPERS}],
        }
        self.member.kubectl("apply", "-f", "-", stdin=json.dumps(binding).encode())
        self.addCleanup(self.member.kubectl, "delete", "clusterrolebinding", "kubeadm:kubelet-bootstrap")

    def request(self, peer: RawPeer, name: str) -> tuple[int, bytes]:
        """Request a certificate of the node evil by a CertificateSigningRequest of this name."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
            x509.NameAttribute(NameOID.COMMON_NAME, "system:node:evil"),
        ]
        wanted = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
        pem = wanted.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
        body = {
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": base64.b64encode(pem).decode(),
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "usages": ["digital signature", "client auth"],
            },
        }
        return self.ask(peer, "jane", [BOOTSTRAPPERS], f"POST {CSRS}", json.dumps(body).encode())

    def known(self, name: str) -> bool:
        """Return whether the API server has a CertificateSigningRequest of this name."""
        return name in self.member.kubectl("get", "csr", "-o", "name")

    def test_node_certificate(self) -> None:
        """A request for system:node:evil is refused and leaves nothing; allowed by name, it is made."""
        peer = self.tunnel(self.member.agent)
        self.assertRefused(self.request(peer, "evil-refused"), BOOTSTRAPPERS)
        self.assertFalse(self.known("evil-refused"))
        peer.close()
        self.agent.stop()
        peer = self.tunnel(self.member.agent, f"--allow-system-identity={BOOTSTRAPPERS}")
        self.addCleanup(self.member.kubectl, "delete", "csr", "evil-allowed", "--ignore-not-found")
        code, answer = self.request(peer, "evil-allowed")
        self.assertEqual(code, 201, answer)
        self.assertTrue(self.known("evil-allowed"))
