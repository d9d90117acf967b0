"""The connection of a command to the host cluster of a proxy."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from tower.cli.client import UsageFailed
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig

T = TypeVar("T")

reactor: Any = _reactor


def with_host(options: argparse.Namespace, action: Callable[[RestClient], Coroutine[Any, Any, T]]) -> T:
    """Run the reactor until *action* is done with the API server that *options* name; return its result.

    :raise UsageFailed: they name none.
    """
    if options.host_kubeconfig:
        config = RestConfig.from_kubeconfig(options.host_kubeconfig, reactor)
    elif "KUBERNETES_SERVICE_HOST" in os.environ:
        config = RestConfig.in_cluster(reactor)
    else:
        raise UsageFailed("--host-kubeconfig is missing: set it to a kubeconfig of the host cluster")
    client = RestClient(reactor, config)
    try:
        return _run(action(client))
    finally:
        client.close()


def _run(doing: Coroutine[Any, Any, T]) -> T:
    """Run the reactor until *doing* is done; raise `KeyboardInterrupt` after Ctrl-C."""
    results: list[T | Failure] = []

    def begin() -> None:
        Deferred.fromCoroutine(doing).addBoth(results.append).addBoth(lambda _: reactor.stop())

    reactor.callWhenRunning(begin)
    reactor.run()
    if not results:
        raise KeyboardInterrupt
    (result,) = results
    if isinstance(result, Failure):
        result.raiseException()
    return result
