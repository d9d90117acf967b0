"""Objects that depend on the old key of a rotation: agents, join lines, kubeconfigs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import asdict, frozen

from tower.clusters.credentials import Credential
from tower.clusters.join_tokens import UnspentToken
from tower.store.records import known_fields

#: Most objects of each kind that are named; all are counted.
NAMED = 100


@frozen
class LackingAgent:
    """An agent that has not confirmed the new key; *reason* is human-readable."""

    cluster: str
    agent: str
    reason: str


@frozen
class OldKubeconfig:
    """A valid credential of a user, whose kubeconfig depends on the old key.

    :ivar credential: its ID.
    :ivar cluster: empty for Tower's own API.
    :ivar expires: s since the epoch.
    """

    credential: str
    cluster: str
    user: str
    expires: float

    @classmethod
    def of(cls, credential: Credential) -> OldKubeconfig:
        """Return what is known about the kubeconfig of *credential*."""
        return cls(credential.id, credential.cluster, credential.user, credential.expires)


@frozen
class Dependents:
    """The number of the objects of each kind, and the first `NAMED` of them.

    :ivar join_until: expiry of the last join line, s since the epoch; 0: there is none.
    """

    agents: int = 0
    join_lines: int = 0
    kubeconfigs: int = 0
    join_until: float = 0.0
    named_agents: Sequence[LackingAgent] = ()
    named_join_lines: Sequence[UnspentToken] = ()
    named_kubeconfigs: Sequence[OldKubeconfig] = ()

    @classmethod
    def of(
        cls,
        agents: Sequence[LackingAgent],
        join_lines: Sequence[UnspentToken],
        kubeconfigs: Sequence[OldKubeconfig],
    ) -> Dependents:
        """Return the number and the first ones of these objects."""
        return cls(
            len(agents),
            len(join_lines),
            len(kubeconfigs),
            max((one.expires for one in join_lines), default=0.0),
            tuple(agents[:NAMED]),
            tuple(join_lines[:NAMED]),
            tuple(kubeconfigs[:NAMED]),
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing depends on the old key."""
        return not (self.agents or self.join_lines or self.kubeconfigs)

    def encode(self) -> dict[str, Any]:
        """Return its part of a record."""
        return asdict(self)

    @classmethod
    def decode(cls, value: dict[str, Any]) -> Dependents:
        """Return what `encode` has encoded."""
        return cls(
            value["agents"],
            value["join_lines"],
            value["kubeconfigs"],
            value["join_until"],
            tuple(LackingAgent(**known_fields(LackingAgent, each)) for each in value["named_agents"]),
            tuple(UnspentToken(**known_fields(UnspentToken, each)) for each in value["named_join_lines"]),
            tuple(OldKubeconfig(**known_fields(OldKubeconfig, each)) for each in value["named_kubeconfigs"]),
        )
