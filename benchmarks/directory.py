"""The users of an organization: a CA, a provider of ID tokens, rules of RBAC, and access policies."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
import yaml
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from benchmarks.processes import LOOPBACK, BenchmarkFailed
from benchmarks.setting import Ground
from tower.trust.pki import self_signed

#: Number of access policies, and of bindings of RBAC.
POLICIES = 1000
BINDINGS = 10_000

#: Number of the policies that are for the user's group.
OWN = 20

_GROUPS = ["dev"]
_DAY = 86400.0
_CLIENT = "tower"
_RBAC = "/apis/rbac.authorization.k8s.io/v1/"
_POLICIES = "/apis/cluster.kubesphere.io/v1alpha1/accesspolicies"
_LEVELS = ("full", "edit", "no-exec", "read-only")


class Directory:
    """A server on loopback that is the provider, and the API server with the rules.

    :ivar options: of a proxy that authenticates its users.
    :ivar rules: options of one that also applies its rules.
    :ivar bearer: file with the token of the user.
    :ivar pair: files of the user's certificate and key.
    """

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._key = rsa.generate_private_key(65537, 2048)
        self._stopped = Event()
        self._objects = _rules()
        server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        server.daemon_threads = True
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(ground.folder / "server.crt", ground.folder / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        self._url = f"https://{LOOPBACK}:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        ground.stack.callback(server.shutdown)
        ground.stack.callback(self._stopped.set)

    @cached_property
    def pair(self) -> tuple[Path, Path]:
        """Issue the certificate."""
        now = time.time()
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "company")])
        company = self_signed(name, _DAY, now)
        issued = company.client_certificate("jane", _GROUPS, "", "", _DAY, now)
        write = self._ground.write
        write("company.crt", company.pem)
        return write("jane.crt", issued.certificate_pem), write("jane.key", issued.key_pem)

    @cached_property
    def bearer(self) -> Path:
        """Sign the token."""
        end = int(time.time() + _DAY)
        claims = {"iss": self._url, "aud": _CLIENT, "sub": "jane", "groups": _GROUPS, "exp": end}
        token = jwt.encode(claims, self._key, "RS256", {"kid": "first"})
        return self._ground.write("jane.bearer", token.encode())

    @property
    def options(self) -> tuple[str, ...]:
        """See the class."""
        return (
            f"--client-ca-file={self.pair[0].with_name('company.crt')}",
            f"--oidc-issuer-url={self._url}",
            f"--oidc-client-id={_CLIENT}",
            f"--oidc-ca-file={self._ground.authority}",
            "--oidc-username-prefix=-",
            "--oidc-groups-claim=groups",
        )

    @cached_property
    def rules(self) -> tuple[str, ...]:
        """See the class."""
        server = {"server": self._url, "certificate-authority": str(self._ground.authority)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "rules", "cluster": server}],
            "users": [{"name": "tower", "user": {"token": "any"}}],
            "contexts": [{"name": "rules", "context": {"cluster": "rules", "user": "tower"}}],
            "current-context": "rules",
        }
        file = self._ground.write("rules.kubeconfig", yaml.safe_dump(config).encode())
        return "--authorization-mode=RBAC", f"--authorization-kubeconfig={file}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        directory = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                url = urlsplit(self.path)
                if "watch" in parse_qs(url.query):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    directory._stopped.wait()
                    return
                body = json.dumps(directory._answer(url.path)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Write nothing."""

        return Handler

    def _answer(self, path: str) -> dict[str, Any]:
        if path.startswith(_RBAC):
            items = self._objects.get(path.removeprefix(_RBAC), [])
            return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
        if path == "/keys":
            public = jwt.algorithms.RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
            return {"keys": [{**public, "kid": "first", "use": "sig"}]}
        return {"issuer": self._url, "jwks_uri": f"{self._url}/keys"}


def admit(config: Path, cluster: str, count: int) -> None:
    """Write access policies with an administrator's kubeconfig; the first one admits the group dev.

    :raise BenchmarkFailed: one is rejected.
    """
    found = yaml.safe_load(config.read_text())
    server = urlsplit(found["clusters"][0]["cluster"]["server"])
    user = found["users"][0]["user"]
    data = found["clusters"][0]["cluster"]["certificate-authority-data"]
    context = ssl.create_default_context(cadata=base64.b64decode(data).decode())
    pair = config.with_name("admin.pem")
    pair.touch(0o600)
    parts = [base64.b64decode(user[f"client-{part}-data"]) for part in ("certificate", "key")]
    pair.write_bytes(b"".join(parts))
    context.load_cert_chain(pair)
    connection = http.client.HTTPSConnection(server.netloc, context=context)
    for number in range(count):
        group = _GROUPS[0] if number < OWN else f"group-{number}"
        policy = {
            "apiVersion": "cluster.kubesphere.io/v1alpha1",
            "kind": "AccessPolicy",
            "metadata": {"name": f"policy-{number}"},
            "spec": {
                "subjects": [{"kind": "Group", "name": group}],
                "clusters": {"names": [cluster]},
                "access": _LEVELS[number % len(_LEVELS)],
            },
        }
        connection.request("POST", _POLICIES, json.dumps(policy), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        if answer.status != 201:
            raise BenchmarkFailed(f"policy {number}: {answer.status}: {text[:300]!r}")
    connection.close()


def _rules() -> dict[str, list[dict[str, Any]]]:
    """Return a role for all requests, and its bindings: one for the group dev, the others for other users."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    role = {**_meta("all"), "rules": [everything, {"nonResourceURLs": ["*"], "verbs": ["*"]}]}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}
    bindings = []
    for number in range(BINDINGS):
        kind, name = ("User", f"user-{number}") if number else ("Group", "dev")
        bindings.append(
            {**_meta(f"binding-{number}"), "roleRef": reference, "subjects": [{"kind": kind, "name": name}]}
        )
    return {"clusterroles": [role], "clusterrolebindings": bindings}


def _meta(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"u-{name}", "resourceVersion": "1"}}
