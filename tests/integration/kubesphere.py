"""Stand-ins for KubeSphere 4 in a host cluster: its admission webhook, and its controller of clusters.

Both reach a member through the kubeconfig in its object, as those of KubeSphere do.  The address of a Service
does not work on this machine: they dial its target port, and verify the address in the certificate.
"""

from __future__ import annotations

import base64
import http.client
import http.server
import json
import socket
import ssl
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.integration.member import Member
from tests.integration.person import Answer, Person
from tests.integration.programs import LOOPBACK, wait_for
from tower.trust.pki import self_signed

DAY = 86400.0
FINALIZER = "finalizer.cluster.kubesphere.io"
WEBHOOK = "vcluster.kb.io"
TIMEOUT = 10.0  # s


def caller_of(cluster: dict[str, Any]) -> Person:
    """Return the user of the kubeconfig in an object; fails if there is none."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(base64.b64decode(cluster["spec"]["connection"]["kubeconfig"]))
        file.flush()
        return Person(Path(file.name))


def is_accepted(cluster: dict[str, Any], name: str) -> bool:
    """Return whether the port of a cluster proves to be *name*."""
    caller, port = caller_of(cluster), cluster["spec"]["connection"]["kubernetesAPIServerPort"]
    try:
        with socket.create_connection((LOOPBACK, port), TIMEOUT) as plain:
            caller.tls.wrap_socket(plain, server_hostname=name).close()
    except ssl.SSLCertVerificationError:
        return False
    return True


def ask_member(cluster: dict[str, Any], path: str, **headers: str) -> Answer:
    """Get *path* from the member through the kubeconfig in its object; fails if there is none."""
    caller, port = caller_of(cluster), cluster["spec"]["connection"]["kubernetesAPIServerPort"]
    plain = socket.create_connection((LOOPBACK, port), TIMEOUT)
    asking = http.client.HTTPSConnection(caller.host, timeout=TIMEOUT)
    with caller.tls.wrap_socket(plain, server_hostname=caller.host) as asking.sock:
        answer = caller.ask(asking, path, headers={k.replace("_", "-"): v for k, v in headers.items()})
        return Answer(answer.status, dict(answer.getheaders()), answer.read())


def is_reached(cluster: dict[str, Any]) -> bool:
    """Return whether the member answers through the kubeconfig in its object."""
    try:
        return ask_member(cluster, "/version").status == 200
    except OSError:  # the proxy adopts the cluster: its port is not open, or without the Service's address
        return False


def uid_of_member(cluster: dict[str, Any]) -> str:
    """Return the uid of the member's namespace kube-system.

    :raise OSError: the member does not answer.
    """
    answer = ask_member(cluster, "/api/v1/namespaces/kube-system")
    if answer.status != 200:
        raise OSError(answer.body.decode())
    uid: str = json.loads(answer.body)["metadata"]["uid"]
    return uid


def denial(review: dict[str, Any]) -> str:
    """Return why KubeSphere's webhook denies an update; empty: it does not."""
    before = review["oldObject"].get("status", {}).get("uid", "")
    try:
        if before and uid_of_member(review["object"]) != before:
            return "this kubeconfig corresponds to a different cluster than the previous one"
    except (OSError, KeyError, ValueError) as e:
        return f"{type(e).__name__}: {e}"
    return ""


class ClusterWebhook:
    """KubeSphere's webhook of Cluster objects.

    :param folder: for its certificate.
    :param host: where it is registered.
    :ivar denials: reasons, of all updates so far; empty for those that it allowed.
    """

    def __init__(self, folder: Path, host: Member) -> None:
        self._host = host
        self.denials: list[str] = []
        now = time.time()
        authority = self_signed(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhook")]), DAY, now)
        issued = authority.server_certificate([LOOPBACK], DAY, now)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        for name, content in (("webhook.crt", issued.certificate_pem), ("webhook.key", issued.key_pem)):
            (folder / name).write_bytes(content)
        context.load_cert_chain(folder / "webhook.crt", folder / "webhook.key")
        denials = self.denials

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                reason = denial(review["request"])
                denials.append(reason)
                answer = {"uid": review["request"]["uid"], "allowed": not reason}
                if reason:
                    answer["status"] = {"code": 403, "reason": "Forbidden", "message": reason}
                body = json.dumps({**review, "request": None, "response": answer}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = http.server.ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._authority = authority.pem

    def register(self) -> None:
        """Let the API server ask it about each update of a Cluster object."""
        port = self._server.server_address[1]
        rule = {
            "apiGroups": ["cluster.kubesphere.io"],
            "apiVersions": ["v1alpha1"],
            "operations": ["UPDATE"],
            "resources": ["clusters"],
        }
        manifest = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "cluster.kubesphere.io"},
            "webhooks": [
                {
                    "name": WEBHOOK,
                    "admissionReviewVersions": ["v1"],
                    "clientConfig": {
                        "url": f"https://{LOOPBACK}:{port}/validate",
                        "caBundle": base64.b64encode(self._authority).decode(),
                    },
                    "failurePolicy": "Fail",
                    "rules": [rule],
                    "sideEffects": "None",
                    "timeoutSeconds": 30,
                }
            ],
        }
        self._host.kubectl("apply", "-f", "-", stdin=json.dumps(manifest).encode())

    @property
    def denied(self) -> int:
        """Number of updates that it denied so far."""
        return sum(map(bool, self.denials))

    def stop(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


class KubeSphereController:
    """The steps of KubeSphere's controller of clusters for one object."""

    def __init__(self, host: Member, name: str) -> None:
        self._host = host
        self._name = name

    def get(self) -> dict[str, Any]:
        """Return the object; empty: it does not exist."""
        found = self._host.kubectl("get", "cluster", self._name, "--ignore-not-found", "-o", "json")
        cluster: dict[str, Any] = json.loads(found) if found else {}
        return cluster

    def join(self) -> None:
        """Add its finalizer, and what it learns from the member."""
        wait_for("the finalizer", lambda: self._replaced(self._joined(self.get())))

    def clean_up(self) -> None:
        """Read the member of a deleted cluster, and remove its finalizer."""
        wait_for("the end of the finalizer", lambda: self._replaced(self._cleaned_up(self.get())))

    def _joined(self, cluster: dict[str, Any]) -> dict[str, Any]:
        cluster["metadata"].setdefault("finalizers", []).append(FINALIZER)
        ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "Cluster is available now"}
        status = cluster.setdefault("status", {})
        status |= {"uid": uid_of_member(cluster), "kubernetesVersion": "v1.36.3", "nodeCount": 1}
        status.setdefault("conditions", []).append(ready)
        return cluster

    def _cleaned_up(self, cluster: dict[str, Any]) -> dict[str, Any]:
        assert "deletionTimestamp" in cluster["metadata"], cluster["metadata"]
        assert ask_member(cluster, "/api/v1/namespaces/kubesphere-system").status in (200, 404)
        cluster["metadata"]["finalizers"].remove(FINALIZER)
        return cluster

    def _replaced(self, cluster: dict[str, Any]) -> bool:
        """Write the object; return whether no other program has changed it in between."""
        try:
            self._host.kubectl("replace", "-f", "-", stdin=json.dumps(cluster).encode())
        except AssertionError as e:
            if "(Conflict)" not in str(e):
                raise
            return False
        return True
