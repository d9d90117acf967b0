"""Targets of clusters as Twisted's endpoints.

``Agent``, treq, Conch and all other clients of ``IStreamClientEndpoint`` work through a tunnel unchanged:
with `TunnelEndpoint` in the proxy itself, with `FrontDoorEndpoint` in other programs, also by
``clientFromString(reactor, "tower:cluster=alpha:target=postgres")``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote, urlsplit

from attrs import define
from twisted.internet.address import HostnameAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError
from twisted.internet.interfaces import IProtocol, IProtocolFactory, IStreamClientEndpoint
from twisted.logger import Logger
from zope.interface import implementer

from tower import streamclient
from tower.errors import ClusterUnreachable, ConfigurationError, StreamRefused, TunnelLost
from tower.kube.kubeconfig import KubeAccess, load_kubeconfig
from tower.net.connecting import ConnectFailed
from tower.net.connection import Connection
from tower.net.pipe_transport import connected
from tower.net.pipes import Pipe
from tower.reactor.interfaces import ISocketReactor
from tower.streamclient import FrontDoorAddress, StreamNotOpened, front_door_address, open_stream
from tower.tunnels import Tunnels

_log = Logger()


@implementer(IStreamClientEndpoint)
class TunnelEndpoint:
    """Connects to *target* of *cluster* through the tunnel that is open when `connect` is called.

    :param patience: longest wait for a tunnel, s.
    """

    def __init__(self, tunnels: Tunnels, cluster: str, target: str, patience: float = 5.0) -> None:
        self._tunnels = tunnels
        self._cluster = cluster
        self._target = target
        self._patience = patience

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a stream and run a protocol of *protocolFactory* on it.

        :raise twisted.internet.error.ConnectError: through the Deferred: no tunnel is open, or the agent
            refused.
        """
        address = HostnameAddress(self._cluster.encode(), 0)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Pipe, bytes]:
        try:
            tunnel = await self._tunnels.wait(self._cluster, self._patience)
            if tunnel.rewrite_for(self._target) is not None:
                # bytes inside its TLS would have the agent's identity, unchecked
                raise ConnectError(
                    string=f"{self._target} of {self._cluster} accepts requests only, no streams"
                )
            channel: Pipe = await tunnel.open(self._target)
        except StreamRefused as e:
            raise ConnectError(string=e.reported_by(f"the agent of {self._cluster}")) from e
        except (ClusterUnreachable, TunnelLost) as e:
            raise ConnectError(string=str(e)) from e
        return channel, b""


@implementer(IStreamClientEndpoint)
@define(eq=False, repr=False)
class FrontDoorEndpoint:
    """Connects to *target* of *cluster* through Tower's front door, with the credential of a kubeconfig.

    :param load: reads the kubeconfig; called for each connection, so that a renewed one is used at once.
    :param dial: connects to the front door; see `tower.streamclient.dial`.
    """

    _reactor: ISocketReactor
    _load: Callable[[], KubeAccess]
    _cluster: str
    _target: str
    _dial: Callable[[FrontDoorAddress], Deferred[Connection]] | None = None

    def address(self) -> FrontDoorAddress:
        """Return the address and request of a new stream.

        :raise ConfigurationError: the kubeconfig is for another server; with the cure.
        """
        access = self._load()
        url = urlsplit(access.server)
        source = f"kubeconfig {access.files[0]}: " if access.files else ""
        if url.scheme != "https" or not url.path.endswith(f"/clusters/{quote(self._cluster)}"):
            raise ConfigurationError(
                f"{source}its server {access.server} is not the front door of cluster {self._cluster!r}: "
                "choose another context, or create a kubeconfig with "
                f"'tower kubeconfig {self._cluster} --user NAME --via front-door'"
            )
        if access.proxy_url:
            raise ConfigurationError(
                f"{source}it has a proxy-url, which raw streams do not support: remove it if the front "
                "door can be reached directly"
            )
        return front_door_address(access, url.path, self._target)

    def connect(self, protocolFactory: IProtocolFactory) -> Deferred[IProtocol]:
        """Open a stream and run a protocol of *protocolFactory* on it; cancelling leaves nothing behind.

        :raise twisted.internet.error.ConnectError: through the Deferred: the front door cannot be reached or
            refused, or the kubeconfig is invalid.
        """
        address = HostnameAddress(self._cluster.encode(), 0)
        return connected(Deferred.fromCoroutine(self._open()), protocolFactory, address)

    async def _open(self) -> tuple[Pipe, bytes]:
        try:
            front_door = self.address()
            stream = await (self._dial or partial(streamclient.dial, self._reactor))(front_door)
            return stream, await open_stream(stream, front_door, self._reactor)
        except (ConfigurationError, ConnectFailed, StreamNotOpened) as e:
            raise ConnectError(string=f"{self._cluster}/{self._target}: {e}") from e


class DescriptionInvalid(ConfigurationError, ValueError):
    """A ``tower:`` endpoint string is invalid; the text has the argument and the cure."""


def parse_description(
    reactor: ISocketReactor,
    words: Sequence[str],
    arguments: Mapping[str, str],
    environ: Mapping[str, str] = os.environ,
) -> FrontDoorEndpoint:
    """Return the endpoint of ``tower:cluster=C:target=T[:kubeconfig=F][:context=X]``.

    :param words: the parts without a name; *arguments*: those with one.
    :raise DescriptionInvalid: an argument is missing, unknown or invalid.
    """
    if words:
        raise DescriptionInvalid(f"tower: {words[0]!r} has no name: write tower:cluster=NAME:target=NAME")
    for name in arguments:
        if name not in {"cluster", "target", "kubeconfig", "context"}:
            raise DescriptionInvalid(
                f"tower: unknown argument {name}: the arguments are cluster, target, kubeconfig and context"
            )
    for name, what in (("cluster", "the cluster as 'tower cluster list' names it"), ("target", _TARGET)):
        if not arguments.get(name):
            raise DescriptionInvalid(f"tower: {name} is missing: add {name}=NAME, {what}")
    if arguments["target"] == "kubernetes":
        raise DescriptionInvalid(
            "tower: target=kubernetes does not support raw streams: use HTTPS with the kubeconfig's server "
            "instead"
        )
    path = _kubeconfig(arguments.get("kubeconfig", ""), environ)
    load = partial(load_kubeconfig, path, arguments.get("context") or None)
    endpoint = FrontDoorEndpoint(reactor, load, arguments["cluster"], arguments["target"])
    try:
        endpoint.address()
    except ConfigurationError as e:
        raise DescriptionInvalid(f"tower: {e}") from e
    return endpoint


_TARGET = "a name in the agent's --target NAME=HOST:PORT"
_CURE = "add kubeconfig=FILE with the output of 'tower kubeconfig CLUSTER --user NAME'"


def _kubeconfig(argument: str, environ: Mapping[str, str]) -> Path:
    """Return the file *argument*, or else kubectl's default."""
    default = environ.get("KUBECONFIG", "")
    files = [argument] if argument else [each for each in default.split(os.pathsep) if each]
    if len(files) > 1:
        raise DescriptionInvalid(
            f"tower: kubeconfig is missing, and KUBECONFIG names {len(files)} files: add kubeconfig=FILE"
        )
    path = Path(files[0] if files else "~/.kube/config").expanduser()
    if path.exists():
        return path
    if argument:
        raise DescriptionInvalid(f"tower: kubeconfig={argument}: the file does not exist: {_CURE}")
    default = "the file in KUBECONFIG" if files else "the default without KUBECONFIG"
    raise DescriptionInvalid(f"tower: kubeconfig is missing, and {path}, {default}, does not exist: {_CURE}")
