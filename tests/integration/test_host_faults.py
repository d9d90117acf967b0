"""Faults of the host cluster's API server under a running proxy: streams go on, and records converge.

``FROZEN=60 python -m tests.watchdog tests.integration.test_host_faults`` freezes the API server for 60 s,
under a proxy with its usual periods.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from tests.integration.harness import Tower, TowerTestCase
from tests.integration.host_kit import HostServer
from tests.integration.kubernetes_tower import CRDS, NAMESPACE, KubernetesTower
from tests.integration.long_streams import BlockServer, Download, LongStream
from tests.integration.member import member
from tests.integration.mounted_secret import MountedSecret
from tests.integration.person import Answer, Person
from tests.integration.ports import free_port
from tests.integration.programs import LOOPBACK, PATIENCE, Program, wait_for
from tests.integration.relay import Relay
from tower.trust.pki import Authority

ROOT = Path(__file__).resolve().parent.parent.parent
FROZEN = float(os.environ.get("FROZEN", "0"))  # s
SHORT = 8.0  # s, of a proxy that notices it sooner
SIZE, SHARE = 1 << 30, 1 << 23  # B of the download, and of a part
DAY = 86400.0
CLUSTERS = "/apis/cluster.kubesphere.io/v1alpha1/clusters"
NAME, CONFIG_MAPS = "host-faults", "/api/v1/namespaces/default/configmaps"
FINALIZERS = "jsonpath={.metadata.finalizers}"
NOTICED = 60.0  # s; the longest delay between two attempts is 30 to 60 s


class Watching(LongStream):
    """A user's watch of a ConfigMap of a member."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self._seen: set[str] = set()
        self._count = 0
        self._write("POST", CONFIG_MAPS)
        self._connection = person.connect(timeout=10 * PATIENCE)
        path = f"{person.prefix}{CONFIG_MAPS}?watch=1"
        self._response = person.ask(self._connection, path)
        assert self._response.status == 200, self._response.read()
        super().__init__()

    def _run(self) -> None:
        while line := self._response.readline():
            self._seen.add(json.loads(line)["object"]["metadata"].get("labels", {}).get("count", ""))
        raise AssertionError("the watch ended")

    def _write(self, method: str, path: str) -> None:
        metadata = {"name": NAME, "labels": {"count": str(self._count)}}
        body = json.dumps({"metadata": metadata}).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind}
        answer = self._person.request(method, self._person.prefix + path, body=body, headers=headers)
        assert answer.status in (200, 201), answer.body

    def check(self) -> None:
        """Change the object; its event must arrive."""
        self._count += 1
        self._write("PATCH", f"{CONFIG_MAPS}/{NAME}")
        wait_for("the event", lambda: self.failure or str(self._count) in self._seen)
        assert not self.failure, self.failure

    def close(self) -> None:
        """Disconnect, and remove the object."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)  # the thread reads from it
        self._thread.join(PATIENCE)
        self._connection.close()
        self._person.request("DELETE", f"{self._person.prefix}{CONFIG_MAPS}/{NAME}")


class HostFaultTests(TowerTestCase):
    """The proxy has the rights of ``deploy/host-rbac.yaml``, with a token of a mounted Secret."""

    def new_tower(self) -> Tower:
        """Start the host, with a relay in front of it; return the proxy."""
        folder = self.folder / "host"
        folder.mkdir()
        self.host = HostServer(folder)
        self.addCleanup(self.host.running.halt)
        real = self.host.member
        real.kubectl("create", "namespace", NAMESPACE)
        real.kubectl("apply", "-f", str(CRDS), "-f", str(ROOT / "deploy" / "host-rbac.yaml"))
        self.relay = Relay(self.host_port)
        self.addCleanup(self.relay.close)
        self.tokens: dict[str, str] = {}
        self.secret = MountedSecret(self.folder / "secret")
        self.secret.swap({"token": self.new_token("first"), "ca": real.ca.read_bytes()})
        self.kubeconfig = self.folder / "host.kubeconfig"
        self.use_credential({"tokenFile": str(self.secret.path("token"))})
        self.hosted = KubernetesTower(self.folder, self.kubeconfig, clusters=8)
        if not FROZEN:
            argv = [sys.executable, "-m", "tests.integration.hurried_proxy", *self.hosted.proxy.argv[1:]]
            self.hosted.proxy = Program("proxy", argv, self.folder, {"PYTHONPATH": str(ROOT)})
        return self.hosted

    def setUp(self) -> None:
        """Connect the agent of a real member, and begin the streams."""
        super().setUp()
        source = BlockServer(SIZE)
        self.addCleanup(source.close)
        self.tower.add("alpha", member().agent, source.option)
        jane = self.tower.person("alpha", "jane", "--group", "dev")
        self.download = Download(jane, SIZE)
        self.addCleanup(self.download.close)
        self.watching = Watching(jane)
        self.addCleanup(self.watching.close)
        self.jane = jane

    @property
    def host_port(self) -> int:
        """The port of the host's API server now."""
        port: int = self.host.member.info["ports"]["kube-apiserver"]
        return port

    def new_token(self, secret: str) -> str:
        """Return a token of the proxy's service account, valid as long as a Secret of this name exists."""
        kubectl = self.host.member.kubectl
        kubectl("-n", NAMESPACE, "create", "secret", "generic", secret)
        bound = ("--bound-object-kind=Secret", f"--bound-object-name={secret}")
        token = self.tokens[secret] = kubectl("-n", NAMESPACE, "create", "token", "tower", *bound).strip()
        return token

    def use_credential(self, user: dict[str, Any]) -> None:
        """Write the proxy's kubeconfig."""
        server = f"https://{LOOPBACK}:{self.relay.port}"
        cluster = {"server": server, "certificate-authority": str(self.secret.path("ca"))}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "host", "cluster": cluster}],
            "users": [{"name": "tower", "user": user}],
            "contexts": [{"name": "host", "context": {"cluster": "host", "user": "tower"}}],
            "current-context": "host",
        }
        draft = self.folder / "draft.kubeconfig"
        draft.touch(0o600)
        draft.write_text(json.dumps(config))
        draft.replace(self.kubeconfig)

    def go_on(self) -> None:
        """Check the streams and a new request."""
        self.download.check()
        self.download.release(self.download.received + SHARE)
        self.watching.check()
        self.assertEqual(self.jane.get("/api/v1/namespaces/default").status, 200)

    def mark(self, name: str, text: str) -> None:
        """Change a cluster with kubectl, directly."""
        self.host.member.kubectl("label", "--overwrite", "cluster", name, f"mark={text}")

    def in_host(self) -> dict[str, Any]:
        """Return the labels of all clusters, by name, as the host has them."""
        return _labels(self.host.member.kubectl("get", "clusters", "-o", "json"))

    def in_tower(self) -> dict[str, Any]:
        """Return the same as Tower's users see them."""
        return _labels(self.tower.admin().get(CLUSTERS).body)

    def try_to_add(self, name: str) -> Answer:
        """Add a cluster with Tower's API; return the answer."""
        obj = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "Cluster", "metadata": {"name": name}}
        headers = {"Content-Type": "application/json"}
        return self.tower.admin().request("POST", CLUSTERS, body=json.dumps(obj).encode(), headers=headers)

    def add(self, name: str) -> None:
        """Add a cluster with Tower's API, which must succeed."""
        answer = self.try_to_add(name)
        self.assertEqual(answer.status, 201, answer.body)

    def metric(self, name: str) -> float:
        """Return the sum of a metric's samples; *name* may have a label."""
        connection = http.client.HTTPConnection(LOOPBACK, self.hosted.metrics_port, timeout=PATIENCE)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        finally:
            connection.close()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def converge(self, what: str) -> None:
        """Wait until a change by kubectl is seen; then Tower has the records of the host, and writes."""
        self.mark("alpha", what)
        wait_for(
            f"the change after {what}", lambda: self.in_tower()["alpha"].get("mark") == what, NOTICED, 0.5
        )
        wait_for(f"equal records after {what}", lambda: self.in_tower() == self.in_host(), NOTICED, 0.5)
        self.add(f"after-{what}")
        self.assertIn(f"after-{what}", self.in_host())
        self.go_on()

    def test_faults(self) -> None:
        """No stream notices a fault, and changes made meanwhile are refused with the cause, or arrive."""
        self.go_on()
        self.frozen()
        self.stopped_and_compacted()
        self.with_another_certificate()
        self.with_another_token()
        self.download.check()
        self.assertNotIn("Traceback", self.tower.proxy.output())

    def frozen(self) -> None:
        """The API server is frozen while Tower writes; the change arrives or is refused."""
        until, logged = time.monotonic() + (FROZEN or SHORT), len(self.tower.proxy.output())
        self.host.freeze()
        try:
            self.go_on()
            if FROZEN:
                answer = self.try_to_add("late")
                self.assertEqual(answer.status, 503)
                self.assertIn(b"it took longer than 15 s", answer.body)
            while time.monotonic() < until:
                self.go_on()
                time.sleep(0.5)
            wait_for("the notice", lambda: "not following" in self.tower.proxy.output()[logged:])
        finally:
            self.host.thaw()
        self.converge("freeze")

    def stopped_and_compacted(self) -> None:
        """The proxy misses changes that etcd forgets, then the API server is stopped and started.

        The proxy's watches are expired (410), so it lists again.
        """
        expired = self.metric('tower_host_watch_restarts_total{reason="expired"}')
        self.add("removed")
        kubectl = self.host.member.kubectl
        wait_for(
            "the finalizer", lambda: "/cluster" in kubectl("get", "cluster", "removed", "-o", FINALIZERS)
        )
        self.relay.target = free_port()
        self.relay.cut()
        self.mark("alpha", "missed")
        kubectl("delete", "cluster", "removed", "--wait=false")
        kubectl("patch", "cluster", "removed", "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        version = json.loads(kubectl("get", "cluster", "alpha", "-o", "json"))["metadata"]["resourceVersion"]
        self.host.compact(version)
        self.host.running.halt()
        self.go_on()
        answer = self.try_to_add("refused")
        self.assertEqual(answer.status, 503)
        self.assertIn(b"cannot write clusters refused to the host cluster: POST /apis/", answer.body)
        self.assertIn(b"no answer", answer.body)
        self.assertEqual(sorted(self.in_tower()), ["after-freeze", "alpha", "removed"])
        self.assertEqual(self.metric("tower_host_synced"), 0)
        self.host.running.resume()
        self.relay.target = self.host_port
        self.converge("stop")
        self.assertGreater(self.metric('tower_host_watch_restarts_total{reason="expired"}'), expired)
        self.assertEqual(sorted(self.in_tower()), ["after-freeze", "after-stop", "alpha"])

    def with_another_certificate(self) -> None:
        """The API server has another certificate, with another key, from now on."""
        pki = self.host.member.place / "pki"
        (certificate,) = x509.load_pem_x509_certificates((pki / "ca.crt").read_bytes())
        key: Any = load_pem_private_key((pki / "ca.key").read_bytes(), None)
        issued = Authority((certificate,), key).server_certificate([LOOPBACK], DAY, time.time())
        before = ssl.get_server_certificate((LOOPBACK, self.host_port))
        for name, content in (("key", issued.key_pem), ("crt", issued.certificate_pem)):
            draft = pki / "draft"
            draft.touch(0o600)
            draft.write_bytes(content)
            draft.replace(pki / f"kube-apiserver.{name}")
        wait_for(
            "the new certificate",
            lambda: ssl.get_server_certificate((LOOPBACK, self.host_port)) != before,
            2 * PATIENCE,
            0.5,
        )
        self.relay.cut()
        self.converge("certificate")

    def with_another_token(self) -> None:
        """The token in the Secret is replaced, later the one in the kubeconfig; the old ones are revoked."""
        self.secret.swap({"token": self.new_token("second"), "ca": self.host.member.ca.read_bytes()})
        self.revoke("first")
        self.converge("token")
        self.use_credential({"token": self.new_token("third")})
        self.relay.cut()
        self.converge("kubeconfig")

    def revoke(self, secret: str) -> None:
        """Delete the Secret of a token; when the API server rejects it, cut the connections."""
        token = self.tokens[secret]
        self.host.member.kubectl("-n", NAMESPACE, "delete", "secret", secret)
        wait_for("the rejection of the token", lambda: self.status_of(token) == 401, every=0.5)
        self.relay.cut()

    def status_of(self, token: str) -> int:
        """Return the status of the API server's answer to a token."""
        context = ssl.create_default_context(cafile=str(self.host.member.ca))
        connection = http.client.HTTPSConnection(LOOPBACK, self.host_port, context=context, timeout=PATIENCE)
        try:
            connection.request("GET", "/api", headers={"Authorization": f"Bearer {token}"})
            return connection.getresponse().status
        finally:
            connection.close()


def _labels(answer: str | bytes) -> dict[str, Any]:
    items = json.loads(answer)["items"]
    return {item["metadata"]["name"]: item["metadata"].get("labels", {}) for item in items}
