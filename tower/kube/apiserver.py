"""The member cluster's API server as the agent reaches it: address, trust, and the agent's credential.

What a kubeconfig or a service account says may change while the agent runs (tokens and certificates are
rotated, an administrator edits a file).  `APIServer.refresh` follows, and keeps what worked when what is
there now does not.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from attrs import frozen
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.kube.head_policy import Upstream
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.net.addresses import parse_address
from tower.net.tls.client_certificate import load_pair
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published, trust_system

#: Where Kubernetes puts a pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Longest token read, B.
TOKEN_LIMIT = 64 * 1024

_PRINTABLE = re.compile(r"[!-~]+")
_PORTS = {"https": 443, "http": 80}

#: Identity of a file's content: when none of it changed, neither did the content.
_Signature = tuple[tuple[int, int, int] | None, ...]


def in_cluster_access(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> KubeAccess:
    """Return the way in that Kubernetes gives each pod.

    :raise ConfigurationError: this is no pod, or it has no service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError(
            "this is not a pod (KUBERNETES_SERVICE_HOST is not set): say with --kubeconfig FILE "
            "how the cluster is reached"
        )
    authority = directory / "ca.crt"
    try:
        ca_data = authority.read_bytes()
    except OSError as e:
        raise ConfigurationError(
            f"{authority}: {e.strerror}; does the pod have automountServiceAccountToken: false?"
        ) from e
    refuse_published(str(authority), ca_data, ANOTHER_CA_CURE)
    host = f"[{host}]" if ":" in host else host
    return KubeAccess(
        server=f"https://{host}:{port}",
        ca_data=ca_data,
        token_file=directory / "token",
        files=(authority,),
    )


@frozen
class Material:
    """The agent's credential for the API server and whom it trusts, as they were read.  Secret.

    :ivar authority: CAs in PEM that verify the API server; None: those of the system.
    :ivar certificate: PEM, with `key`; empty without one.
    :ivar token: bearer token; empty without one.
    :ivar insecure: the API server is not verified.
    """

    authority: bytes | None = attrs.field(repr=False)
    certificate: bytes = attrs.field(repr=False)
    key: bytes = attrs.field(repr=False)
    token: bytes = attrs.field(repr=False)
    insecure: bool


@frozen
class _Upstream:
    """What was last read, in the form in which it is used."""

    access: KubeAccess
    host: str
    port: int
    prefix: bytes
    host_line: bytes
    token: bytes = attrs.field(repr=False)
    server_name: str
    tls: ssl.SSLContext | None
    credential_line: bytes = attrs.field(init=False, repr=False)

    @credential_line.default
    def _line(self) -> bytes:
        return b"Authorization: Bearer %b\r\n" % self.token if self.token else b""


class APIServer:
    """:param load: reads the way in anew.
    :param service: `host:port` that goes before the server's address (`--kubernetes-service`), or empty.
    :raise ConfigurationError: one line that names the file or the flag, and the cure.
    """

    _log = Logger()

    def __init__(self, load: Callable[[], KubeAccess], service: str = "") -> None:
        self._load = load
        self._service = service
        self._complaint = ""
        access = load()
        self._signature = _signature(access)
        self._upstream = self._built(access, None)

    @classmethod
    def from_kubeconfig(cls, path: str, service: str = "") -> APIServer:
        """Return the cluster of the current context of the kubeconfig at *path*."""
        return cls(lambda: load_kubeconfig(path), service)

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str] = os.environ, service: str = "") -> APIServer:
        """Return the cluster that we are a pod of."""
        return cls(lambda: in_cluster_access(environ), service)

    @property
    def host(self) -> str:
        """Name or address of the API server, IPv6 without brackets."""
        return self._upstream.host

    @property
    def port(self) -> int:
        """Port of the API server."""
        return self._upstream.port

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How its TLS is verified, with our client certificate if we have one; None: there is no TLS."""
        return self._upstream.tls

    @property
    def server_name(self) -> str:
        """The name that its certificate must have."""
        return self._upstream.server_name

    @property
    def address(self) -> str:
        """What the API server is called in the URLs that it makes, without the scheme."""
        upstream = self._upstream
        return (upstream.host_line.removeprefix(b"Host: ").strip() + upstream.prefix).decode("ascii")

    @property
    def material(self) -> Material:
        """The credential itself, for a peer that needs it: `kubesphere-v1` alone has such."""
        access = self._upstream.access
        return Material(
            authority=access.ca_data,
            certificate=access.client_certificate or b"",
            key=access.client_key or b"",
            token=self._upstream.token,
            insecure=access.insecure,
        )

    def upstream(self) -> Upstream:
        """Return what the heads of requests need; another object after each change."""
        return self._upstream

    @property
    def warnings(self) -> list[str]:
        """What the owner should know about this way in."""
        access, found = self._upstream.access, []
        if access.insecure:
            found.append("insecure-skip-tls-verify: anybody on the way can pose as the API server")
        if not self._upstream.credential_line and access.client_certificate is None:
            found.append("the agent has no credential for the API server, which will refuse most requests")
        return found

    def refresh(self) -> bool:
        """Read again what changed.

        :return: whether anything did.  What cannot be used is logged, once, and what was stays.
        """
        try:
            signature = _signature(self._upstream.access)
            if signature == self._signature:
                return False
            access = self._load()
            if access.files != self._upstream.access.files:
                signature = _signature(access)
            upstream = self._built(access, self._upstream)
        except ConfigurationError as e:
            if str(e) != self._complaint:
                self._complaint = str(e)
                self._log.warn("keeping the last good way into the cluster: {reason}", reason=str(e))
            return False
        self._complaint = ""
        self._upstream, self._signature = upstream, signature
        return True

    def _built(self, access: KubeAccess, last: _Upstream | None) -> _Upstream:
        if access.proxy_url:
            raise ConfigurationError("proxy-url: the agent reaches the API server directly, without a proxy")
        if _PRINTABLE.fullmatch(access.server) is None:
            raise ConfigurationError("server is not a URL like https://HOST:PORT")
        parts = urlsplit(access.server)
        scheme = parts.scheme
        host, port = parts.hostname or "", parts.port or _PORTS[scheme]
        if self._service:
            host, port = parse_address(self._service, _PORTS[scheme])
        token = _token(access)
        if token and scheme == "http":
            raise ConfigurationError(
                f"server {access.server}: over http the agent's token could be read by anybody; use https"
            )
        authority = f"[{host}]" if ":" in host else host
        if port != _PORTS[scheme]:
            authority += f":{port}"
        return _Upstream(
            access=access,
            host=host,
            port=port,
            prefix=parts.path.rstrip("/").encode("ascii"),
            host_line=f"Host: {authority}\r\n".encode("ascii"),
            token=token.encode("ascii"),
            server_name=access.tls_server_name or host,
            tls=self._context(access, last) if scheme == "https" else None,
        )

    def _context(self, access: KubeAccess, last: _Upstream | None) -> ssl.SSLContext:
        """Return a context for *access*, the last one if it is still right."""
        if last is not None and last.tls is not None and _trust(last.access) == _trust(access):
            return last.tls
        return client_context(access)


def _trust(access: KubeAccess) -> tuple[object, ...]:
    return access.ca_data, access.client_certificate, access.client_key, access.insecure


def client_context(access: KubeAccess) -> ssl.SSLContext:
    """Return a context that trusts whom *access* trusts, as client-go does.

    :raise ConfigurationError: a certificate or the key cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif access.ca_data is None:
        trust_system(context)
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # what the owner names is trusted, root or not
        try:
            context.load_verify_locations(cadata=access.ca_data.decode("ascii"))
        except (ssl.SSLError, UnicodeDecodeError) as e:
            raise ConfigurationError(
                f"server {access.server}: its certificate authority is not a PEM certificate"
            ) from e
    if access.client_certificate is not None and access.client_key is not None:
        try:
            load_pair(context, access.client_certificate, access.client_key)
        except ValueError as e:
            raise ConfigurationError(f"server {access.server}: {e}") from e
    return context


def _token(access: KubeAccess) -> str:
    """Return the bearer token, or nothing; a file goes before what stands in the kubeconfig."""
    token, place = access.token or "", f"server {access.server}: the token"
    if access.token_file is not None:
        place = f"token file {access.token_file}"
        try:
            with access.token_file.open("rb") as file:
                token = file.read(TOKEN_LIMIT + 1).decode("ascii", "replace").strip()
        except OSError as e:
            raise ConfigurationError(f"{place}: {e.strerror}") from e
        if not token:
            raise ConfigurationError(f"{place} is empty")
    if token and (_PRINTABLE.fullmatch(token) is None or len(token) > TOKEN_LIMIT):
        raise ConfigurationError(f"{place} is not one word of printable characters")
    return token


def _signature(access: KubeAccess) -> _Signature:
    files = access.files if access.token_file is None else (*access.files, access.token_file)
    return tuple(_identity(path) for path in files)


def _identity(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
