"""A real API server as host cluster, without nodes, for tests with the reactor in this process."""

from __future__ import annotations

import atexit
import json
import os
import signal
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.trial.unittest import TestCase

from tests.integration.closed_sockets import sockets_closed
from tests.integration.member import Member, Running
from tests.integration.programs import LOOPBACK, NotInTimeError
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI, ResourceType
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.kube.rest.well_known import NAMESPACES

reactor: Any = _reactor

PATIENCE = 100.0  # s for any expected event

_REVIEWS = ResourceType(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)


class HostServer:
    """The API server, with the means to break it."""

    def __init__(self, folder: Path) -> None:
        self.running = Running(folder, "--bare")
        self.running.start()

    @property
    def member(self) -> Member:
        """Its kubeconfigs."""
        return self.running.member

    def restart(self) -> None:
        """Kill etcd's and its own process, and start both with their data."""
        for part in ("kube-apiserver", "etcd"):
            with suppress(ProcessLookupError):
                os.kill(self.member.info["pids"][part], signal.SIGKILL)
        self.running.halt()
        self.running.resume()

    def freeze(self) -> None:
        """Stop the API server's process."""
        os.kill(self.member.info["pids"]["kube-apiserver"], signal.SIGSTOP)

    def thaw(self) -> None:
        """Continue it."""
        os.kill(self.member.info["pids"]["kube-apiserver"], signal.SIGCONT)

    def compact(self, version: str) -> None:
        """Forget all of etcd's history before *version*."""
        url = f"http://{LOOPBACK}:{self.member.info['ports']['etcd']}/v3/kv/compaction"
        body = json.dumps({"revision": version, "physical": True}).encode()
        with urllib.request.urlopen(url, body, PATIENCE) as answer:
            answer.read()


@cache
def host() -> HostServer:
    """Return the server of this run, started at the first call and ended with the process."""
    started = HostServer(Path(tempfile.mkdtemp(prefix="tower-host-")))
    owner = os.getpid()
    atexit.register(lambda: started.running.stop() if os.getpid() == owner else None)
    return started


class HostTestCase(TestCase):
    """A test case with the server, an administrator's client and a new namespace."""

    timeout = 300

    def setUp(self) -> Any:
        """Create the client and the namespace."""
        return Deferred.fromCoroutine(self.prepare())

    async def prepare(self) -> None:
        """Create them."""
        self.host = host()
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.admin = self.client(RestConfig.from_kubeconfig(self.host.member.admin, reactor))
        made = await self.admin.create(NAMESPACES, {"metadata": {"generateName": "rest-"}})
        self.namespace: str = made["metadata"]["name"]

    def client(self, config: RestConfig) -> RestClient:
        """Return a client, which is closed with the test."""
        client = RestClient(reactor, config)
        self.addCleanup(sockets_closed)
        self.addCleanup(client.close)
        return client

    async def user(self, api: HostAPI) -> str:
        """Return the name as which a client is authenticated."""
        review = await api.create(_REVIEWS, {"metadata": {}})
        name: str = review["status"]["userInfo"]["username"]
        return name

    async def until(self, what: str, ready: Callable[[], object]) -> None:
        """Wait until *ready* returns something true."""
        deadline = reactor.seconds() + PATIENCE
        while not ready():
            if reactor.seconds() > deadline:
                raise NotInTimeError(f"not within {PATIENCE:g} s: {what}")
            await deferLater(reactor, 0.05)

    async def error(self, request: Any) -> APIError:
        """Return the error of a request."""
        try:
            await request
        except APIError as e:
            return e
        raise AssertionError("the request succeeded")
