"""A member's API server: address, trusted CAs and credential, from a kubeconfig or a service account.

These may change at run time: tokens and certificates are rotated, an administrator edits a file.
`APIServer.refresh` reloads them; while the new ones are invalid, the last valid ones stay in use.
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from attrs import field, frozen
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.kube.head_fields import Upstream
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.net.addresses import parse_address
from tower.net.tls.client_certificate import load_pair
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published, trust_system

#: Directory of a pod's service account.
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

#: Longest token read, B.
TOKEN_LIMIT = 64 * 1024

_PRINTABLE = re.compile(r"[!-~]+")
_PORTS = {"https": 443, "http": 80}

#: Identity of the files' contents: modification time, size and inode of each.
_Signature = tuple[tuple[int, int, int] | None, ...]


def in_cluster_access(environ: Mapping[str, str], directory: Path = SERVICE_ACCOUNT) -> KubeAccess:
    """Return the access of a pod's service account.

    :raise ConfigurationError: this process is not in a pod, or the pod has no service account.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError(
            "not running in a pod (KUBERNETES_SERVICE_HOST is not set): set the cluster's kubeconfig with "
            "--kubeconfig FILE"
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
        server=f"https://{host}:{port}", ca_data=ca_data, token_file=directory / "token", files=(authority,)
    )


@frozen
class Material:
    """The agent's credential for the API server, and the CAs that verify it.  Secret.

    :ivar authority: CAs in PEM; None: the system's.
    :ivar certificate: PEM, with `key`; empty without one.
    :ivar token: bearer token; empty without one.
    """

    authority: bytes | None = field(repr=False)
    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)
    token: bytes = field(repr=False)
    insecure: bool


@frozen
class _Loaded(Upstream):
    """The values that were last loaded."""

    access: KubeAccess
    host: str
    port: int
    token: bytes = field(repr=False)
    server_name: str
    tls: ssl.SSLContext | None


class APIServer:
    """An API server and the access to it, which may change.

    :param load: returns the current access.
    :param service: `host:port` that takes precedence over the server's address (`--kubernetes-service`).
    :param allow_proxy: the caller connects through the HTTP proxy of the access.
    :raise ConfigurationError: one line with the file or option and the cure.
    """

    _log = Logger()

    def __init__(
        self, load: Callable[[], KubeAccess], service: str = "", *, allow_proxy: bool = False
    ) -> None:
        self._load = load
        self._allow_proxy = allow_proxy
        self._service = service
        self._last_error = ""
        access = load()
        self._signature = _signature(access)
        self._loaded = self._build(access, None)

    @classmethod
    def from_kubeconfig(cls, path: str, service: str = "") -> APIServer:
        """Return the API server of the current context of the kubeconfig at *path*."""
        return cls(lambda: load_kubeconfig(path), service)

    @classmethod
    def in_cluster(cls, environ: Mapping[str, str] = os.environ, service: str = "") -> APIServer:
        """Return the API server of the cluster that this pod runs in."""
        return cls(lambda: in_cluster_access(environ), service)

    @property
    def host(self) -> str:
        """Name or address of the API server, IPv6 without brackets."""
        return self._loaded.host

    @property
    def port(self) -> int:
        """Port of the API server."""
        return self._loaded.port

    @property
    def tls(self) -> ssl.SSLContext | None:
        """TLS context, with the client certificate if there is one; None: no TLS."""
        return self._loaded.tls

    @property
    def server_name(self) -> str:
        """Required name in its certificate."""
        return self._loaded.server_name

    @property
    def address(self) -> str:
        """Authority and path of the API server's URL."""
        loaded = self._loaded
        return (loaded.host_line.removeprefix(b"Host: ").strip() + loaded.prefix).decode("ascii")

    @property
    def access(self) -> KubeAccess:
        """The access that is in use.  Secret."""
        return self._loaded.access

    @property
    def material(self) -> Material:
        """The credential itself, for proxies of `kubesphere-v1`."""
        access = self._loaded.access
        return Material(
            authority=access.ca_data,
            certificate=access.client_certificate or b"",
            key=access.client_key or b"",
            token=self._loaded.token,
            insecure=access.insecure,
        )

    def upstream(self) -> Upstream:
        """Return the values for heads; another object after each change."""
        return self._loaded

    @property
    def problem(self) -> str:
        """Why changed files are not used; empty if they are."""
        return self._last_error

    @property
    def warnings(self) -> list[str]:
        """Warnings about this access, for the cluster's owner."""
        access, found = self._loaded.access, []
        if access.insecure:
            found.append(
                "insecure-skip-tls-verify: the API server can be impersonated by a man in the middle"
            )
        if not self._loaded.credential_line and access.client_certificate is None:
            found.append("the agent has no credential for the API server, which will deny most requests")
        return found

    def refresh(self, *, reload: bool = False) -> bool:
        """Reload changed files; log invalid ones, once, and keep the last valid access.

        :param reload: load also if no file changed.
        :return: whether the access changed.
        """
        try:
            signature = _signature(self._loaded.access)
            if signature == self._signature and not reload:
                self._last_error = ""
                return False
            access = self._load()
            if access.files != self._loaded.access.files:
                signature = _signature(access)
            loaded = self._build(access, self._loaded)
        except ConfigurationError as e:
            if str(e) != self._last_error:
                self._last_error = str(e)
                self._log.warn(
                    "the changed kubeconfig or credential files are not used: {reason}", reason=str(e)
                )
            return False
        self._last_error = ""
        self._signature = signature
        if loaded == self._loaded:
            return False
        self._loaded = loaded
        return True

    def _build(self, access: KubeAccess, last: _Loaded | None) -> _Loaded:
        if access.proxy_url and not self._allow_proxy:
            raise ConfigurationError(
                "proxy-url: not supported: the agent connects to the API server without a proxy; remove it"
            )
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
                f"server {access.server}: http would send the token unencrypted: use https"
            )
        authority = f"[{host}]" if ":" in host else host
        if port != _PORTS[scheme]:
            authority += f":{port}"
        return _Loaded(
            access=access,
            host=host,
            port=port,
            prefix=parts.path.rstrip("/").encode("ascii"),
            host_line=f"Host: {authority}\r\n".encode("ascii"),
            credential_line=f"Authorization: Bearer {token}\r\n".encode("ascii") if token else b"",
            has_certificate=access.client_certificate is not None,
            token=token.encode("ascii"),
            server_name=access.tls_server_name or host,
            tls=self._context(access, last) if scheme == "https" else None,
        )

    def _context(self, access: KubeAccess, last: _Loaded | None) -> ssl.SSLContext:
        """Return a context for *access*; the last one if its trust did not change."""
        if last is not None and last.tls is not None and _trust(last.access) == _trust(access):
            return last.tls
        return client_context(access)


def _trust(access: KubeAccess) -> tuple[object, ...]:
    return access.ca_data, access.client_certificate, access.client_key, access.insecure


def client_context(access: KubeAccess) -> ssl.SSLContext:
    """Return a TLS context with the CAs and client certificate of *access*, as in client-go.

    :raise ConfigurationError: a certificate or the key is invalid.
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
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the given CA is trusted, root or not
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
    """Return the bearer token or an empty string; a token file takes precedence over an inline token."""
    token, source = access.token or "", f"server {access.server}: the token"
    if access.token_file is not None:
        source = f"token file {access.token_file}"
        try:
            with access.token_file.open("rb") as file:
                token = file.read(TOKEN_LIMIT + 1).decode("ascii", "replace").strip()
        except OSError as e:
            raise ConfigurationError(f"{source}: {e.strerror}") from e
        if not token:
            raise ConfigurationError(f"{source} is empty")
    if token and (_PRINTABLE.fullmatch(token) is None or len(token) > TOKEN_LIMIT):
        raise ConfigurationError(f"{source} is not one word of printable ASCII characters")
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
