"""Warns if an old agent may run next to ours at an old proxy.

Such a proxy sends the token of the agent that connected first with the requests of all agents, and each
agent's own client certificate.  So with two agents of different kinds, some requests carry no credential,
and the API server regards them as ``system:anonymous``.  An agent cannot learn of others by the protocol,
so this looks for the Deployment that KubeSphere installs the old agent with.
"""

from __future__ import annotations

import json
from typing import Any

from attrs import define, field
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from tower.errors import ConfigurationError
from tower.kube.client import APIClient, APIError
from tower.reactor.coroutines import deferred

NAMESPACE, DEPLOYMENT = "kubesphere-system", "cluster-agent"

#: Interval of checks, and of warnings about the same pods, s.
PERIOD = 60.0
REMINDER = 600.0

_PATH = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{DEPLOYMENT}"


@define(eq=False)
class OldAgentCheck:
    """Looks for the Deployment; without the right to read it, nothing is known and nothing is logged.

    :param hostname: of this agent, which in a pod begins with the name of its Deployment.
    """

    _log = Logger()

    _clock: IReactorTime
    _api: APIClient
    _hostname: str = ""
    _warned: float | None = field(default=None, init=False)

    @deferred
    async def run(self) -> None:
        """Log a warning if the Deployment has pods that are not this agent; call it every `PERIOD` s."""
        if self._hostname.startswith(f"{DEPLOYMENT}-"):
            return
        try:
            answer = await self._api.request("GET", _PATH)
        except (APIError, ConfigurationError):
            return
        finally:
            self._api.close()
        replicas = _replicas(answer.body) if answer.code == 200 else 0
        now = self._clock.seconds()
        if not replicas:
            self._warned = None
        elif self._warned is None or now - self._warned >= REMINDER:
            self._warned = now
            self._log.warn(
                "Deployment {deployment} of namespace {namespace} has {replicas} replicas: an old agent next "
                "to this one at an old proxy makes requests fail, because the proxy mixes their credentials "
                "(system:anonymous): stop it with 'kubectl -n {namespace} scale deployment {deployment} "
                "--replicas=0'",
                deployment=DEPLOYMENT,
                namespace=NAMESPACE,
                replicas=replicas,
            )


def _replicas(body: bytes) -> int:
    """Return the number of pods that a Deployment has or will have; 0 if *body* is not a Deployment."""
    try:
        found: Any = json.loads(body)
        numbers = (found["spec"].get("replicas", 1), (found.get("status") or {}).get("replicas", 0))
        return max(number for number in numbers if isinstance(number, int))
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return 0
