"""`tower forward`: TCP connections of this machine as raw streams to a target of a cluster."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import yaml
from twisted.internet.defer import Deferred, DeferredLock, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.threads import deferToThreadPool

from tower.cli.access import request_kubeconfig
from tower.cli.client import GROUP_PATH, TowerClient, quoted
from tower.cli.clusters import cluster_path
from tower.cli.errors import CommandFailed
from tower.cli.streams import Forwarder
from tower.escaping import escaped
from tower.kube.kubeconfig import KubeAccess
from tower.net.listening import listen
from tower.streamclient import FrontDoorAddress, dial, front_door_address

EARLY = 300.0  # s before a credential expires, when it is renewed


class ForwardCredential:
    """Credential for the streams: a kubeconfig for the cluster, or a token that is issued and renewed.

    :param in_thread: runs a blocking call in a thread.
    :param epoch: returns the time, s since the epoch.
    """

    def __init__(
        self,
        client: TowerClient,
        name: str,
        target: str,
        user: str,
        in_thread: Callable[[Callable[[], FrontDoorAddress]], Deferred[FrontDoorAddress]],
        epoch: Callable[[], float],
    ) -> None:
        self._client = client
        self._in_thread = in_thread
        self._epoch = epoch
        self._name = name
        self._target = target
        self._user = user
        self._current: FrontDoorAddress | None = None
        self._renewing = DeferredLock()
        self._issued: list[str] = []

    def first(self) -> None:
        """Get the first credential.

        :raise CommandFailed: there is none.
        """
        access, path = self._client.access, urlsplit(self._client.access.server).path
        if path == f"/clusters/{self._name}":
            self._current = front_door_address(access, path, self._target)
        else:
            self._current = self._issue()

    def address(self) -> Deferred[FrontDoorAddress]:
        """Return the front door's address, with a new credential if the current one expires soon."""
        return self._renewing.run(self._valid_address)

    def withdraw(self) -> None:
        """Revoke all issued credentials."""
        for credential in self._issued:
            self._client.call("DELETE", f"{GROUP_PATH}/credentials/{quoted(credential)}")

    def _valid_address(self) -> Deferred[FrontDoorAddress]:
        current = self._current
        if current is not None and (current.until is None or current.until - self._epoch() > EARLY):
            return succeed(current)
        return self._in_thread(self._issue).addCallback(self._renewed)

    def _renewed(self, address: FrontDoorAddress) -> FrontDoorAddress:
        self._current = address
        return address

    def _issue(self) -> FrontDoorAddress:
        cluster_path(self._name)
        status = request_kubeconfig(
            self._client,
            self._name,
            user=self._user,
            groups=[],
            ttl=None,
            via="front-door",
            auth="token",
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

    :raise CommandFailed: it cannot start.
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
    address: Any = listening.getHost()
    print(
        f"forwarding {address.host}:{address.port} to {what}; press Ctrl-C to stop",
        file=sys.stderr,
        flush=True,
    )
    reactor.run()
    credential.withdraw()
