"""The owner's policy of one agent: its source, by the options, and its enforcement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen
from twisted.application.service import Service

from tower.kube.apiserver import in_cluster_access
from tower.kube.kubeconfig import load_kubeconfig
from tower.kube.rest.rest_client import RestClient
from tower.kube.rest.rest_config import RestConfig
from tower.member.object_name import pod_namespace
from tower.member.policy.owner_gate import OwnerGate
from tower.member.policy.policy_document import read_policy
from tower.member.policy.policy_map import PolicyMap
from tower.options.followed_file import FollowedFile
from tower.reactor.clock import TimeOfDay
from tower.reactor.interfaces import IReactor
from tower.reactor.repeating import periodic
from tower.reactor.signals import Reloads

#: Interval of checks of the file, and of the ends of time windows, s.
PERIOD = 1.0


@frozen(eq=False)
class OwnerEnforcement:
    """The policy with its parts.

    :ivar services: follow the source, and cut what a time window no longer permits.
    """

    gate: OwnerGate
    services: Sequence[Service]
    _problem: Callable[[], str]

    @property
    def problem(self) -> str:
        """Why the owner's current policy might not be in use, with the cure; empty if it is."""
        return self._problem()

    @property
    def failure(self) -> str:
        """Why everything is forbidden; empty if a policy is in use."""
        return "" if self.gate.policy is not None else self._problem() or "the agent's policy is not read yet"

    @classmethod
    def of(
        cls, options: Mapping[str, Any], reactor: IReactor, reloads: Reloads, environ: Mapping[str, str]
    ) -> OwnerEnforcement | None:
        """Return the enforcement of the policy that *options* name; None: they name none.

        :raise ConfigurationError: the file cannot be used, or the namespace of the ConfigMap is unknown.
        """
        path, name = options["policy-file"], options["policy-config-map"]
        if not path and not name:
            return None
        own = set() if options["kubeconfig"] else {pod_namespace()} - {""}
        seconds = TimeOfDay(reactor).seconds
        if path:
            gate = OwnerGate(options["name"], seconds, own)
            return cls._of_file(gate, Path(path), reactor, reloads)
        found = name.in_pod(option="policy-config-map")
        gate = OwnerGate(options["name"], seconds, own | {found.namespace})
        api = RestClient(reactor, _config(options, reactor, environ))
        source = PolicyMap(api, found, reactor, gate.use, api.close)
        services = source, periodic(reactor, PERIOD, gate.look)
        return cls(gate, services, lambda: source.problem)

    @classmethod
    def _of_file(cls, gate: OwnerGate, path: Path, reactor: IReactor, reloads: Reloads) -> OwnerEnforcement:
        file = FollowedFile("policy-file", path, read_policy)
        gate.use(file.value)
        file.on_change = lambda: gate.use(file.value)
        reloads.add("policy file", file.reload)

        def look() -> None:
            file.check()
            gate.look()

        return cls(gate, (periodic(reactor, PERIOD, look),), lambda: file.problem)


def _config(options: Mapping[str, Any], reactor: IReactor, environ: Mapping[str, str]) -> RestConfig:
    """Return the access with the agent's own credential, which uses no HTTP proxy."""
    path = options["kubeconfig"]

    def load() -> Any:
        return load_kubeconfig(str(path)) if path else in_cluster_access(environ)

    return RestConfig(load, reactor, {}, service=options["kubernetes-service"])
