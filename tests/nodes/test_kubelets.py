"""Tests of `tower.nodes.kubelets`: kubelets are TLS servers on pipes in memory."""

from __future__ import annotations

import os
import ssl
from pathlib import Path
from typing import Any, cast

from twisted.internet.defer import Deferred

from tests.fakes.certificates import DAY, NOW, PUBLISHED
from tests.fakes.kubelets import CA, OTHER, KubeletPipe
from tests.fakes.node_tunnels import FakeNodeDialer
from tests.fakes.receivers import Recorder
from tests.nodes.kubelets_case import KubeletsCase
from tower.clusters.node import Node
from tower.errors import ClusterUnreachable, StreamRefused, TunnelLost
from tower.kube.kubeconfig import KubeAccess
from tower.kube.status import StatusError
from tower.kube.system_identities import SystemIdentities
from tower.nodes.kubelets import Kubelets
from tower.trust.pki import Authority

NO_WAY = KubeAccess("https://10.0.0.9:6443", proxy_url="http://proxy")
HEAD = b"GET /stats/summary HTTP/1.1\r\n"


class OpenTests(KubeletsCase):
    """Streams to kubelets."""

    def open(self, name: str, pipe: KubeletPipe, kubelets: Kubelets | None = None) -> Deferred[Any]:
        """Open a stream."""
        opening = (kubelets or self.kubelets).open(name)
        pipe.serve()
        return opening

    def kubelet(self, of: Authority = CA, name: str = "n1") -> KubeletPipe:
        """Put a kubelet behind the tunnel to n1."""
        pipe = KubeletPipe(of, name)
        self.nodes.tunnels["n1"] = FakeNodeDialer(pipe)
        return pipe

    def refused(self, opening: Deferred[Any]) -> StreamRefused:
        """Return why nothing was opened."""
        return cast(StreamRefused, self.failureResultOf(opening, StreamRefused).value)

    def test_own_tunnel(self) -> None:
        """A kubelet is reached by its node's tunnel, as that node sees it, and known by its name."""
        pipe = self.kubelet()
        stream = self.successResultOf(self.open("n1", pipe))
        self.assertEqual(self.nodes.tunnels["n1"].dialed, [("127.0.0.1", 10250)])
        stream.receiver = Recorder()
        stream.resume()
        stream.send(b"GET / HTTP/1.1\r\n")
        pipe.serve()
        self.assertEqual(pipe.got, b"GET / HTTP/1.1\r\n")
        self.assertEqual(self.nodes.dialed, [])

    def test_aliases(self) -> None:
        """A node is found by any of its names; its certificate must have the cluster's name for it."""
        pipe = self.kubelet()
        self.successResultOf(self.open("10.0.0.1", pipe))

    def test_other_port(self) -> None:
        """Kubelets may listen elsewhere."""
        pipe = self.kubelet()
        self.successResultOf(self.open("n1", pipe, self.make(kubelet_port=11250)))
        self.assertEqual(self.nodes.tunnels["n1"].dialed, [("127.0.0.1", 11250)])

    def test_without_tunnel(self) -> None:
        """A node without a tunnel is reached from any other, at its private address."""
        self.nodes.answer = pipe = KubeletPipe(CA, "n1")
        self.successResultOf(self.open("n1", pipe))
        self.assertEqual(self.nodes.dialed, [("10.0.0.1", 10250)])

    def test_without_tunnel_or_private_address(self) -> None:
        """Without a private address the known address is used."""
        self.nodes.answer = pipe = KubeletPipe(CA, "n2")
        self.successResultOf(self.open("n2", pipe))
        self.assertEqual(self.nodes.dialed, [("n2.example", 10250)])

    def test_unknown(self) -> None:
        """A node that is not there is no stream."""
        self.failureResultOf(self.kubelets.open("n9"), StatusError)

    def test_authority_file(self) -> None:
        """The CAs in a file count instead of the API server's, as they are now; without them nothing does."""
        path = Path(self.mktemp())
        kubelets = self.make(kubelet_authority=str(path))
        self.assertIn("No such file", str(self.refused(kubelets.open("n1"))))
        path.write_bytes(OTHER.pem)
        self.successResultOf(self.open("n1", self.kubelet(OTHER), kubelets))
        self.refused(self.open("n1", self.kubelet(CA), kubelets))
        path.write_bytes(CA.pem)
        self.successResultOf(self.open("n1", self.kubelet(CA), kubelets))
        path.write_text(PUBLISHED)
        self.assertIn("is public", str(self.refused(kubelets.open("n1"))))
        path.write_bytes(b"nothing")
        self.assertIn("not a PEM", str(self.refused(kubelets.open("n1"))))
        path.unlink()
        os.mkfifo(path)
        self.assertIn("Not a regular file", str(self.refused(kubelets.open("n1"))))

    def test_other_node(self) -> None:
        """A certificate of another node is rejected."""
        error = self.refused(self.open("n1", self.kubelet(name="n2")))
        self.assertEqual(error.code, "tls")
        self.assertIn("mismatch", str(error))
        self.assertIn("list the node by a name in its certificate", str(error))

    def test_not_trusted(self) -> None:
        """So is one of an unknown CA; the error has the option for the CA."""
        error = self.refused(self.open("n1", self.kubelet(OTHER)))
        self.assertEqual(error.code, "tls")
        self.assertIn("verify failed", str(error))
        self.assertIn("'tower cluster set beta --kubelet-certificate-authority FILE'", str(error))

    def test_insecure(self) -> None:
        """Verification can be turned off."""
        self.successResultOf(self.open("n1", self.kubelet(OTHER, "nobody"), self.make(kubelet_insecure=True)))

    def test_client_certificate(self) -> None:
        """A credential that is a certificate is shown to kubelets."""
        issued = CA.client_certificate("admin", (), "beta", "uid", 3650 * DAY, NOW)
        self.access = KubeAccess(
            "https://10.0.0.9:6443",
            ca_data=CA.pem,
            client_certificate=issued.certificate_pem,
            client_key=issued.key_pem,
        )
        pipe = self.kubelet()
        self.successResultOf(self.open("n1", pipe, self.make()))
        self.assertEqual(pipe.client, ssl.PEM_cert_to_DER_cert(issued.certificate_pem.decode()))

    def test_tunnel_lost(self) -> None:
        """A tunnel lost meanwhile is reported as such."""
        self.nodes.tunnels["n1"] = FakeNodeDialer(TunnelLost("gone"))
        self.failureResultOf(self.kubelets.open("n1"), TunnelLost)

    def test_nothing_listens(self) -> None:
        """The node's error is reported."""
        self.nodes.tunnels["n1"] = FakeNodeDialer(StreamRefused("refused", "connect failed"))
        self.assertEqual(str(self.refused(self.kubelets.open("n1"))), "connect failed")

    def test_no_credential(self) -> None:
        """Without a credential no stream is opened."""
        self.access = NO_WAY
        self.assertIn("no usable credential", str(self.refused(self.make().open("n1"))))

    def test_replaced(self) -> None:
        """Streams that were opened with an earlier credential take no new requests."""
        stream = self.successResultOf(self.open("n1", self.kubelet()))
        self.assertFalse(stream.is_leaving)
        self.kubelets.draining = True
        self.assertTrue(stream.is_leaving)


class RewriteTests(KubeletsCase):
    """Heads of requests to kubelets."""

    def test_credential(self) -> None:
        """The kept credential is the only identity that a kubelet sees."""
        head = (
            HEAD
            + b"Content-Length: 2\r\nAUTHORIZATION: Basic eDp5\r\nAccept: */*\r\nImpersonate-User: root\r\n"
            b"impersonate-extra-a: b\r\nX-Remote-User: root\r\nHost: front.example:6443\r\n\r\n"
        )
        self.assertEqual(
            self.kubelets.rewrite(head, plain=True),
            HEAD
            + b"Host: kubelet\r\nAuthorization: Bearer sesame\r\nContent-Length: 2\r\nAccept: */*\r\n\r\n",
        )

    def test_upgrade(self) -> None:
        """Headers of an upgrade are kept."""
        fields = b"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
        self.assertTrue(self.kubelets.rewrite(HEAD + b"Host: x\r\n" + fields, plain=True).endswith(fields))

    def test_certificate(self) -> None:
        """With a certificate as the credential the head has none."""
        self.access = KubeAccess("https://10.0.0.9:6443", ca_data=CA.pem)
        self.assertEqual(
            self.make().rewrite(HEAD + b"Host: x\r\n\r\n", plain=True), HEAD + b"Host: kubelet\r\n\r\n"
        )

    def test_no_credential(self) -> None:
        """Without a credential nothing is sent."""
        self.access = NO_WAY
        self.assertRaises(StatusError, self.make().rewrite, HEAD + b"Host: x\r\n\r\n", plain=True)


class AuthorizeTests(KubeletsCase):
    """Authorization."""

    def authorize(
        self,
        path: bytes = b"/stats/summary",
        method: bytes = b"GET",
        *,
        user: str = "jane",
        node: str = "n1",
        upgrade: bool = False,
    ) -> Any:
        """Authorize jane, and return the member's question."""
        asking = self.kubelets.authorize(user, ("dev",), node, method, path, upgrade=upgrade)
        if asking is not None:
            self.successResultOf(asking)
        return self.api.asked[-1][3]["spec"]["resourceAttributes"]

    def refused(self, *args: Any, **options: Any) -> StatusError:
        """Ask, and return why nothing was asked of the member."""
        error = self.assertRaises(StatusError, self.authorize, *args, **options)
        self.assertEqual(self.api.asked, [])
        return cast(StatusError, error)

    def test_asked(self) -> None:
        """The member is asked as the user, about the node by the name that it knows."""
        attributes = self.authorize(node="n1.example")
        self.assertEqual(self.api.asked[0][1:3], ("jane", ("dev",)))
        self.assertEqual(
            (attributes["name"], attributes["subresource"], attributes["verb"]), ("n1", "stats", "get")
        )

    def test_verbs(self) -> None:
        """Methods are called what kubelets call them."""
        for method, verb in (
            (b"HEAD", "get"),
            (b"POST", "create"),
            (b"PUT", "update"),
            (b"DELETE", "delete"),
        ):
            self.assertEqual(self.authorize(b"/pods", method)["verb"], verb)
        self.assertEqual(self.refusal_code(b"/pods", b"TRACE"), 405)

    def refusal_code(self, *args: Any) -> int:
        """Return how it was refused."""
        return cast(StatusError, self.assertRaises(StatusError, self.authorize, *args)).code

    def test_commands(self) -> None:
        """Running a command takes the right to create, by WebSocket too, where the method is GET."""
        attributes = self.authorize(b"/exec/default/pod/main", upgrade=True)
        self.assertEqual((attributes["verb"], attributes["subresource"]), ("create", "proxy"))

    def test_remembered(self) -> None:
        """Soon after the member is not asked again."""
        self.authorize()
        self.assertIsNone(self.kubelets.authorize("jane", ("dev",), "n1", b"GET", b"/stats", upgrade=False))

    def test_unknown_node(self) -> None:
        """The error about an unknown node names some known ones."""
        error = self.refused(node="n9")
        self.assertEqual((error.code, str(error)), (404, 'cluster beta has no node "n9"; it has n1, n2'))
        self.nodes.nodes = [Node(f"h{number}") for number in range(13)]
        self.assertTrue(
            str(self.refused(node="n9")).endswith("it has h0, h1, h2, h3, h4, h5, h6, h7, h8, h9 and 3 more")
        )
        self.nodes.nodes = []
        self.assertTrue(str(self.refused(node="n9")).endswith("it has none"))

    def test_names_go_first(self) -> None:
        """A node's name takes precedence over another node's alias."""
        self.nodes.nodes.insert(0, Node("h3", 22, "n3", frozenset({"n1"})))
        self.assertEqual(self.authorize(node="n1")["name"], "n1")

    def test_ambiguous_paths(self) -> None:
        """A path that a kubelet could read as another is refused."""
        for path in (
            b"/stats/../exec/a/b",
            b"/%73tats",
            b"//stats",
            b"/stats/.",
            b"/a\\b",
            b"/stats//x",
            b"/..",
        ):
            self.assertEqual(self.refused(path).code, 400, path)
        self.authorize(b"/logs/a..b/.hidden")

    def test_system(self) -> None:
        """Users cannot act as system identities, unless the cluster's owner allows it."""
        error = self.refused(user="system:masters")
        self.assertEqual(
            (error.code, str(error)),
            (403, 'the owner of this cluster does not allow users to act as "system:masters"; use a flag'),
        )
        self.identities = SystemIdentities(["system:masters"])
        self.kubelets = self.make()
        self.authorize(user="system:masters")

    def test_no_credential(self) -> None:
        """Without a credential all requests are rejected."""
        self.access = NO_WAY
        self.kubelets = self.make()
        self.assertRaises(ClusterUnreachable, self.authorize)
