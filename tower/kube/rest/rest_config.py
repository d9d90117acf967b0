"""Access to the host's API server: address, TLS, credential and HTTP proxy, each of which may change."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import evolve
from twisted.internet.defer import Deferred

from tower.errors import ConfigurationError
from tower.kube.apiserver import APIServer, in_cluster_access
from tower.kube.head_fields import Upstream
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.kube.rest.exec_plugin import ExecCredential, ExecPlugin
from tower.kube.rest.plugin_command import PluginCommand
from tower.net.connecting import connect
from tower.net.connection import Connection
from tower.net.proxied_connection import open_connection
from tower.net.proxy_environment import HTTPProxy, ServerURL, find_proxy, parse_proxy
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import IReactor

#: Timeout for a connection, with its TLS handshake, s.
CONNECT_TIMEOUT = 10.0

#: Shortest interval between checks of the files for changes, s.
CHECK_PERIOD = 1.0


class RestConfig:
    """The host's API server and the credential for it.

    Files are read again when they change, and a plugin runs again when its credential expires; both also
    after the API server rejects the credential.

    :param load: returns the current access, which may have a plugin and a proxy.
    :param environ: may name an HTTP proxy, and is the environment of plugins.
    :param service: address of the API server, instead of that in the access; may be empty.
    :raise ConfigurationError: one line with the file or option and the cure.
    """

    def __init__(
        self,
        load: Callable[[], KubeAccess],
        reactor: IReactor,
        environ: Mapping[str, str] = os.environ,
        *,
        service: str = "",
        connect: Callable[..., Deferred[Connection]] = connect,
    ) -> None:
        self._load = load
        self._reactor = reactor
        self._environ = environ
        self._connect = connect
        self._plugin: ExecPlugin | None = None
        self._credential: ExecCredential | None = None
        self._checked = reactor.seconds()
        self._server = APIServer(self._access, service, allow_proxy=True)
        self._adopt()
        self._proxy(self._url())

    @classmethod
    def from_kubeconfig(
        cls,
        path: str | Path,
        reactor: IReactor,
        environ: Mapping[str, str] = os.environ,
    ) -> RestConfig:
        """Return the access of the current context of the kubeconfig at *path*.

        :raise ConfigurationError: one line with the file, the entry and the cure.
        """
        return cls(lambda: load_kubeconfig(path, allow_plugin=True), reactor, environ)

    @classmethod
    def in_cluster(
        cls,
        reactor: IReactor,
        environ: Mapping[str, str] = os.environ,
    ) -> RestConfig:
        """Return the access of this pod's service account.

        :raise ConfigurationError: this process is not in a pod, or the pod has no service account.
        """
        return cls(lambda: in_cluster_access(environ), reactor, environ)

    @property
    def address(self) -> str:
        """Authority and path of the API server's URL, for logs."""
        return self._server.address

    @property
    def namespace(self) -> str:
        """Namespace of the kubeconfig's context; may be empty."""
        return self._server.access.namespace

    @property
    def problem(self) -> str:
        """Why changed files are not used; empty if they are."""
        return self._server.problem

    def upstream(self) -> Upstream:
        """Return the values for heads; another object after each change."""
        return self._server.upstream()

    async def prepare(self) -> None:
        """Read changed files, and get a credential from the plugin if there is no valid one.

        :raise ConfigurationError: the plugin fails; one line with the cure.
        """
        now = self._reactor.seconds()
        if now >= self._checked + CHECK_PERIOD:
            self._checked = now
            if self._server.refresh():
                self._adopt()
        if self._plugin is not None:
            self._use(self._plugin, await self._plugin.credential())

    async def renew(self, rejected: Upstream) -> bool:
        """Read the files or run the plugin again; return whether the credential changed.

        :param rejected: values of the head that the API server did not authenticate.
        :raise ConfigurationError: the plugin fails; one line with the cure.
        """
        if self.upstream() is rejected and self._plugin is not None:
            self._use(self._plugin, await self._plugin.credential(self._credential))
        elif self.upstream() is rejected and self._server.refresh(reload=True):
            self._adopt()
        return self.upstream() is not rejected

    async def open(self) -> Connection:
        """Connect to the API server.

        :raise ConnectFailed: with the failed part.
        """
        url = self._url()
        return await open_connection(
            self._reactor,
            url,
            self._proxy(url),
            tls=self._server.tls,
            server_name=self._server.server_name,
            timeout=CONNECT_TIMEOUT,
            connect=self._connect,
        )

    def _url(self) -> ServerURL:
        server = self._server
        return ServerURL(secure=server.tls is not None, host=server.host, port=server.port, resource="/")

    def _proxy(self, url: ServerURL) -> HTTPProxy | None:
        """Return the HTTP proxy: the kubeconfig's, or the environment's for a server with TLS."""
        access = self._server.access
        if access.proxy_url:
            return parse_proxy(access.proxy_url, f"server {access.server}: proxy-url", "proxy-url")
        return find_proxy(url, self._environ) if url.secure else None

    def _access(self) -> KubeAccess:
        """Return the access with the plugin's credential; a token of the kubeconfig takes precedence."""
        access = self._load()
        plugin, credential = self._plugin, self._credential
        if plugin is None or credential is None or PluginCommand.of(access) != plugin.command:
            return access
        if access.client_certificate is None:
            access = evolve(access, client_certificate=credential.certificate, client_key=credential.key)
        return access if access.token else evolve(access, token=credential.token or None)

    def _adopt(self) -> None:
        """Use the plugin of the current access."""
        command = PluginCommand.of(self._server.access)
        if command is None:
            self._plugin = self._credential = None
        elif self._plugin is None or self._plugin.command != command:
            epoch = TimeOfDay(self._reactor).seconds
            self._plugin = ExecPlugin(command, self._reactor, self._environ, epoch)
            self._credential = None

    def _use(self, plugin: ExecPlugin, credential: ExecCredential) -> None:
        if credential is self._credential:
            return
        self._credential = credential
        if not self._server.refresh(reload=True) and self._server.problem:
            self._credential = None
            plugin.discard(self._server.problem)
            raise ConfigurationError(self._server.problem)
