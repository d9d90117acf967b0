"""`tower forward`: TCP connections of this machine as raw streams to a target of a cluster."""

from __future__ import annotations

import argparse
import getpass
import os
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import yaml
from attrs import define, field
from twisted.internet.defer import CancelledError, Deferred, DeferredLock, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from tower.cli.access import request_kubeconfig
from tower.cli.client import GROUP_PATH, CommandFailed, TowerClient, quoted
from tower.cli.clusters import cluster_path
from tower.errors import TowerError
from tower.escaping import escaped
from tower.kube.kubeconfig import KubeAccess
from tower.kube.rest.plugin_once import with_credential
from tower.net.connecting import ConnectFailed
from tower.net.connection import Connection
from tower.net.listening import listen
from tower.net.pipes import Pipe, join
from tower.streamclient import FrontDoorAddress, StreamNotOpened, dial, front_door_address, open_stream


class Local:
    """Receiver of a local connection until its stream is open; accepts at most one piece of data.

    :ivar opening: the attempt to open the stream, cancelled when the connection closes.
    :ivar is_over: the connection is closed.
    """

    opening: Deferred[None] | None = None

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._early = b""
        self.is_over = self._ended = False

    def received(self, data: memoryview) -> None:
        """Keep the first piece, and pause."""
        self._early += bytes(data)
        self.pipe.pause()

    def ended(self) -> None:
        """Remember the end of the data."""
        self._ended = True

    def drained(self) -> None:
        """No-op: nothing was sent."""

    def closed(self, reason: Exception) -> None:
        """Cancel the attempt to open the stream."""
        self.is_over = True
        if self.opening is not None:
            self.opening.cancel()

    def fail(self) -> None:
        """Abort the connection: its stream was not opened."""
        self.opening = None
        self.pipe.abort()

    def forward(self, stream: Pipe, leftover: bytes) -> None:
        """Forward data in both directions; *leftover* was already received on the stream."""
        if self._early:
            stream.send(self._early)
        if leftover:
            self.pipe.send(leftover)
        join(self.pipe, stream)
        if self._ended and not self.is_over:
            self.pipe.receiver.ended()


@define(eq=False, repr=False)
class Forwarder:
    """Opens a stream for each connection.

    :param address: returns the front door's address, with a valid credential.
    :param dial: connects to the proxy.
    :param report: shows an error to the user.
    """

    _address: Callable[[], Deferred[FrontDoorAddress]]
    _dial: Callable[[FrontDoorAddress], Deferred[Connection]]
    _report: Callable[[str], None]
    _clock: IReactorTime

    def accept(self, connection: Pipe) -> Local:
        """Accept a new connection; see `tower.net.listening.listen`."""
        connection.receiver = local = Local(connection)  # now: it may close before we return
        local.opening = Deferred.fromCoroutine(self._open(local)).addErrback(self._failed, local)
        return local

    async def check(self) -> None:
        """Open one stream and close it; report a failure that may pass, such as an agent that is away.

        :raise CommandFailed: no stream can be opened, as to an unknown target.
        """
        try:
            stream, _ = await self._stream()
        except StreamNotOpened as e:
            if 400 <= e.code < 500 and e.code not in _PASSING:
                raise CommandFailed(str(e)) from e
            self._report(str(e))
        except ConnectFailed as e:
            self._report(str(e))
        else:
            stream.abort()

    async def _open(self, local: Local) -> None:
        stream, leftover = await self._stream()
        local.forward(stream, leftover)

    async def _stream(self) -> tuple[Connection, bytes]:
        address = await self._address()
        stream = await self._dial(address)
        return stream, await open_stream(stream, address, self._clock)

    def _failed(self, failure: Failure, local: Local) -> None:
        if local.is_over or failure.check(CancelledError):
            return  # the connection is closed
        local.fail()
        error = failure.value
        self._report(str(error) if isinstance(error, TowerError) else f"{type(error).__name__}: {error}")


#: Statuses of failures that may pass: timeout, too many requests.
_PASSING = frozenset((408, 429))

EARLY = 300.0  # s before a credential expires, when it is renewed


@define(eq=False, repr=False)
class ForwardCredential:
    """Credential for the streams: a kubeconfig for the cluster, or a token that is issued and renewed.

    That of a kubeconfig's plugin is renewed, too.

    :param in_thread: runs a blocking call in a thread.
    :param epoch: returns the time, s since the epoch.
    """

    _client: TowerClient
    _name: str
    _target: str
    _user: str
    _in_thread: Callable[[Callable[[], FrontDoorAddress]], Deferred[FrontDoorAddress]]
    _epoch: Callable[[], float]
    _current: FrontDoorAddress | None = field(default=None, init=False)
    _renewing: DeferredLock = field(factory=DeferredLock, init=False)
    _issued: list[str] = field(factory=list, init=False)
    _renew: Callable[[], FrontDoorAddress] = field(init=False)
    _early: float = field(default=EARLY, init=False)

    def __attrs_post_init__(self) -> None:
        self._renew = self._issue

    def first(self) -> None:
        """Get the first credential; raise `CommandFailed` if there is none."""
        if urlsplit(self._client.access.server).path == f"/clusters/{self._name}":
            self._renew, self._early = self._of_kubeconfig, 0.0  # a plugin's expiry is early enough
        self._current = self._renew()

    def address(self) -> Deferred[FrontDoorAddress]:
        """Return the front door's address, with a new credential if the current one expires soon."""
        return self._renewing.run(self._valid_address)

    def withdraw(self) -> None:
        """Revoke all issued credentials."""
        for credential in self._issued:
            self._client.call("DELETE", f"{GROUP_PATH}/credentials/{quoted(credential)}")

    def _valid_address(self) -> Deferred[FrontDoorAddress]:
        current = self._current
        if current is not None and (current.until is None or current.until - self._epoch() > self._early):
            return succeed(current)
        return self._in_thread(self._renew).addCallback(self._renewed)

    def _renewed(self, address: FrontDoorAddress) -> FrontDoorAddress:
        self._current = address
        return address

    def _of_kubeconfig(self) -> FrontDoorAddress:
        access, until = with_credential(self._client.access, os.environ)
        return front_door_address(access, urlsplit(access.server).path, self._target, until)

    def _issue(self) -> FrontDoorAddress:
        cluster_path(self._name)
        status = request_kubeconfig(
            self._client, self._name, user=self._user, groups=[], ttl=None, via="front-door", auth="token"
        )
        self._issued.append(status["credential"])
        config = yaml.safe_load(status["kubeconfig"])
        token = config["users"][0]["user"]["token"]
        # the server that issued it: the published address may be unreachable from this machine
        admin = self._client.access
        url = urlsplit(admin.server)
        access = KubeAccess(
            server=f"{url.scheme}://{url.netloc}",
            ca_data=admin.ca_data,
            token=token,
            tls_server_name=admin.tls_server_name,
            insecure=admin.insecure,
        )
        until = datetime.fromisoformat(status["expirationTimestamp"]).timestamp()
        return front_door_address(access, f"{url.path}/clusters/{self._name}", self._target, until)


def forward(client: TowerClient, options: argparse.Namespace) -> None:
    """Forward connections until Ctrl-C; failures of single connections are printed to standard error.

    :raise CommandFailed: it cannot start, or the target is unknown.
    """
    from twisted.internet import reactor as installed

    reactor: Any = installed
    host, port = options.listen
    what = f"{options.name}/{options.target}"
    credential = ForwardCredential(
        client,
        options.name,
        options.target,
        options.user or getpass.getuser(),
        lambda call: deferToThreadPool(reactor, reactor.getThreadPool(), call),
        reactor.seconds,
    )

    def report(text: str) -> None:
        print(f"tower: {what}: {escaped(text)}", file=sys.stderr, flush=True)

    forwarder = Forwarder(credential.address, partial(dial, reactor), report, reactor)
    try:
        listening = listen(reactor, port, host, forwarder.accept)
    except CannotListenError as e:
        reason = getattr(e.socketError, "strerror", None) or e.socketError
        raise CommandFailed(f"--listen {host}:{port}: {reason}: give another address or port") from e
    credential.first()
    failures: list[Failure] = []

    def checked(_: object) -> None:
        address: Any = listening.getHost()
        print(
            f"forwarding {address.host}:{address.port} to {what}; press Ctrl-C to stop",
            file=sys.stderr,
            flush=True,
        )

    def failed(failure: Failure) -> None:
        failures.append(failure)
        reactor.stop()

    reactor.callWhenRunning(lambda: Deferred.fromCoroutine(forwarder.check()).addCallbacks(checked, failed))
    reactor.run()
    credential.withdraw()
    if failures:
        failures[0].raiseException()
