"""Kubeconfig files: reading one context of a file, and writing a file for a user of Tower."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import yaml

from tower.errors import ConfigurationError
from tower.net.tls.published_authorities import ANOTHER_CA_CURE, refuse_published

#: Largest kubeconfig, or file that it refers to, B.
FILE_LIMIT = 4 << 20

#: Largest kubeconfig in YAML in a request, B: parsing YAML takes a hundred times as long as JSON.
YAML_LIMIT = 64 * 1024

#: Name of the extension with a cluster's settings for credential plugins.
_PLUGIN_EXTENSION = "client.authentication.k8s.io/exec"

#: Entries of users that Tower does not support.
_UNSUPPORTED = {
    "exec": "a credential plugin",
    "auth-provider": "an auth provider",
    "username": "a password",
    "password": "a password",
    "as": "impersonation",
    "as-uid": "impersonation",
    "as-groups": "impersonation",
    "as-user-extra": "impersonation",
}


@attrs.frozen
class KubeAccess:
    """Address of one API server, with its CAs and a credential.

    :ivar server: URL, without a trailing slash.
    :ivar ca_data: CAs in PEM; None: the system's.
    :ivar client_certificate: PEM, with `client_key`.
    :ivar token: bearer token; `token_file`, which may change, takes precedence.
    :ivar tls_server_name: name to verify instead of the URL's host.
    :ivar insecure: the server is not verified.
    :ivar plugin: entry ``exec`` of the user, unchecked; see `tower.kube.rest.exec_plugin`.
    :ivar plugin_config: the cluster's settings for the plugin.
    :ivar user: entry of the kubeconfig that has the credential; may be empty.  Not compared.
    :ivar namespace: the context's; may be empty.
    :ivar files: the kubeconfig and the files that it refers to, to detect changes.
    """

    server: str
    ca_data: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = attrs.field(default=None, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    token_file: Path | None = None
    tls_server_name: str | None = None
    insecure: bool = False
    proxy_url: str | None = None
    plugin: dict[str, Any] | None = attrs.field(default=None, repr=False)
    plugin_config: Any = attrs.field(default=None, repr=False)
    user: str = attrs.field(default="", eq=False)
    namespace: str = ""
    files: tuple[Path, ...] = ()


def load_kubeconfig(
    path: str | Path, context: str | None = None, *, allow_plugin: bool = False
) -> KubeAccess:
    """Return a context of the kubeconfig at *path*.

    :param context: None: its ``current-context``.
    :param allow_plugin: the caller runs credential plugins.
    :raise ConfigurationError: one line with the file, the entry and the cure.
    """
    path = Path(path)
    reader = KubeconfigReader(read_content(path), f"kubeconfig {path}", (path,))
    return reader.access(context, allow_plugin=allow_plugin)


def read_kubeconfig(data: bytes, name: str = "kubeconfig") -> KubeAccess:
    """Return the current context of a self-contained kubeconfig in JSON or YAML.

    :param name: its name in errors.
    :raise ConfigurationError: one line with the entry and the cure.
    """
    try:
        content = json.loads(data)
    except ValueError:
        if len(data) > YAML_LIMIT:  # the sender controls the cost of parsing
            raise ConfigurationError(
                f"{name}: larger than {YAML_LIMIT} B, the limit for YAML: convert it to JSON"
            ) from None
        content = _parsed(data, name)
    except RecursionError:
        raise ConfigurationError(f"{name}: not YAML") from None
    return KubeconfigReader(content, name).access(None)


def read_content(path: Path) -> Any:
    """Return the content of the kubeconfig at *path*.

    :raise ConfigurationError: it is not YAML; one line with the file and the cure.
    """
    name = f"kubeconfig {path}"
    return _parsed(_read(path, name), name)


def _parsed(data: bytes, name: str) -> Any:
    try:
        return yaml.safe_load(data)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark is not None else ""
        raise ConfigurationError(f"{name}: not YAML{line}") from e


class KubeconfigReader:
    """Reader of the content of a kubeconfig.

    :param name: name of the kubeconfig in errors.
    :param paths: the files; relative paths in them start at the directory of the first one.  Empty: the
        content must not refer to files.
    """

    def __init__(self, content: Any, name: str, paths: Sequence[Path] = ()) -> None:
        self._name = name
        self._path = paths[0] if paths else None
        self._files = list(paths)
        if not isinstance(content, dict):
            raise self._invalid("not a kubeconfig: it has no clusters and contexts")
        self._content = content

    def access(self, context: str | None, *, allow_plugin: bool = False) -> KubeAccess:
        """Return a context; see `load_kubeconfig`."""
        name = context or self._text(self._content, "current-context", "kubeconfig")
        if not name:
            raise self._invalid("has no current-context: choose one with 'kubectl config use-context NAME'")
        chosen = self._entry("contexts", "context", name)
        cluster_name = self._text(chosen, "cluster", f"context {name!r}")
        user_name = self._text(chosen, "user", f"context {name!r}")
        if not cluster_name:
            raise self._invalid(f"context {name!r} names no cluster")
        cluster = self._entry("clusters", "cluster", cluster_name)
        user = self._entry("users", "user", user_name) if user_name else {}
        place = f"user {user_name!r}"
        for key, what in _UNSUPPORTED.items():
            if user.get(key) and not (allow_plugin and key == "exec"):
                raise self._invalid(
                    f"{place} has {what} ({key}), which is not supported: "
                    "give it a token or a client certificate"
                )
        certificate = self._data(user, "client-certificate", place)
        private = self._data(user, "client-key", place)
        if (certificate is None) != (private is None):
            raise self._invalid(
                f"{place} has only one of client-certificate and client-key: both are required"
            )
        token_file = self._text(user, "tokenFile", place)
        plugin = user.get("exec") or None
        if plugin is not None and not isinstance(plugin, dict):
            raise self._invalid(f"exec of {place} is not a mapping")
        place = f"cluster {cluster_name!r}"
        insecure = cluster.get("insecure-skip-tls-verify", False)
        if not isinstance(insecure, bool):
            raise self._invalid(f"insecure-skip-tls-verify of {place} is neither true nor false")
        return KubeAccess(
            server=self._server(cluster, place),
            ca_data=self._authority(cluster, place),
            client_certificate=certificate,
            client_key=private,
            token=self._text(user, "token", f"user {user_name!r}"),
            token_file=self._beside(token_file, "tokenFile", "token") if token_file else None,
            tls_server_name=self._text(cluster, "tls-server-name", place),
            insecure=insecure,
            proxy_url=self._text(cluster, "proxy-url", place),
            plugin=plugin,
            plugin_config=_plugin_config(cluster) if plugin is not None else None,
            user=user_name or "",
            namespace=self._text(chosen, "namespace", f"context {name!r}") or "",
            files=tuple(self._files),
        )

    def _authority(self, cluster: dict[str, Any], place: str) -> bytes | None:
        key = "certificate-authority"
        ca_data = self._data(cluster, key, place)
        if ca_data is not None:
            what = key if cluster.get(f"{key}-data") else f"{key} {cluster[key]}"
            refuse_published(f"{self._name}: {what} of {place}", ca_data, ANOTHER_CA_CURE)
        return ca_data

    def _server(self, cluster: dict[str, Any], place: str) -> str:
        server = self._text(cluster, "server", place) or ""
        try:
            parts = urlsplit(server)
            good = parts.scheme in ("https", "http") and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        # urlsplit removes tabs and line ends
        good = good and server.isprintable() and " " not in server
        if not good or parts.query or parts.fragment or parts.username is not None:
            raise self._invalid(f"server of {place} is not a URL like https://HOST:PORT")
        return server.rstrip("/")

    def _entry(self, section: str, kind: str, name: str) -> dict[str, Any]:
        """Return the first entry *name* of the list *section*, as kubectl does."""
        entries = self._content.get(section) or []
        if not isinstance(entries, list):
            raise self._invalid(f"{section} is not a list")
        for entry in entries:
            if isinstance(entry, dict) and entry.get("name") == name:
                found = entry.get(kind) or {}
                if not isinstance(found, dict):
                    raise self._invalid(f"{kind} {name!r} is not a mapping")
                return found
        names = ", ".join(str(entry.get("name")) for entry in entries if isinstance(entry, dict))
        raise self._invalid(f"has no {kind} {name!r}; it has: {names or 'none'}")

    def _text(self, mapping: dict[str, Any], key: str, place: str) -> str | None:
        value = mapping.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self._invalid(f"{key} of {place} is not a string: put it in quotes")
        return value

    def _data(self, mapping: dict[str, Any], key: str, place: str) -> bytes | None:
        """Return the value of ``<key>-data``, which takes precedence, or of the file *key*."""
        inline = self._text(mapping, f"{key}-data", place)
        if inline is not None:
            try:
                return base64.b64decode(inline, validate=True)
            except (binascii.Error, ValueError) as e:
                raise self._invalid(f"{key}-data of {place} is not base64") from e
        name = self._text(mapping, key, place)
        if name is None:
            return None
        path = self._beside(name, key, f"{key}-data")
        self._files.append(path)
        return _read(path, f"{self._name}: {key} {path} of {place}")

    def _beside(self, name: str, key: str, instead: str) -> Path:
        """Return the path of a file in the kubeconfig; relative paths refer to its directory."""
        if self._path is None:
            raise self._invalid(
                f"{key} refers to the file {name!r}, which was not sent: put its content into {instead}"
            )
        return self._path.parent / name

    def _invalid(self, text: str) -> ConfigurationError:
        return ConfigurationError(f"{self._name}: {text}")


def _plugin_config(cluster: dict[str, Any]) -> Any:
    """Return the cluster's extension for credential plugins, or None."""
    extensions = cluster.get("extensions")
    for entry in extensions if isinstance(extensions, list) else ():
        if isinstance(entry, dict) and entry.get("name") == _PLUGIN_EXTENSION:
            return entry.get("extension")
    return None


def _read(path: Path, place: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_LIMIT + 1)
    except OSError as e:
        raise ConfigurationError(f"{place}: {e.strerror}") from e
    if len(data) > FILE_LIMIT:
        raise ConfigurationError(f"{place}: larger than {FILE_LIMIT} B")
    return data


def kubeconfig(
    *,
    server: str,
    ca_pem: bytes,
    cluster: str,
    user: str,
    certificate: tuple[bytes, bytes] | None = None,
    token: str | None = None,
    by_port: bool = False,
) -> str:
    """Return a kubeconfig for *user* with one context, which is the current one.

    Its names are unique per cluster and endpoint, so that files can be merged.

    :param ca_pem: CAs that verify the server; empty: those of the user's system.
    :param cluster: its name; empty for Tower's own API.
    :param certificate: certificate and key in PEM; or set *token*.
    :param by_port: *server* is the cluster's own port, not the front door.
    """
    name = f"tower-{cluster}" if cluster else "tower"
    if by_port:
        name += ":port"  # unique: names of clusters have no colon
    context = f"{user}@{name}"
    credential: dict[str, str] = {}
    if certificate is not None:
        credential["client-certificate-data"] = base64.b64encode(certificate[0]).decode("ascii")
        credential["client-key-data"] = base64.b64encode(certificate[1]).decode("ascii")
    if token is not None:
        credential["token"] = token
    authority = {"certificate-authority-data": base64.b64encode(ca_pem).decode("ascii")} if ca_pem else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {"server": server, **authority},
            }
        ],
        "users": [{"name": context, "user": credential}],
        "contexts": [{"name": context, "context": {"cluster": name, "user": context}}],
        "current-context": context,
    }
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
