"""Agents, join lines and kubeconfigs that trust the front door by its CA."""

from __future__ import annotations

from collections.abc import Callable

from attrs import define

from tower.clusters.credentials import Credential, Credentials
from tower.clusters.join_tokens import JoinTokens, UnspentToken
from tower.clusters.v1_tokens import V1Tokens
from tower.rotation.announcer import Announcer
from tower.rotation.dependents import LackingAgent, OldKubeconfig
from tower.rotation.rotation import Remaining, Rotation

_V1 = (
    "kubesphere-v1 agents get no announcements: give them the new CA file if they use https, or revoke the "
    "token if none uses it"
)

#: How long an unused token of kubesphere-v1 is waited for after its creation, s; its manifest has the CA.
UNUSED_PERIOD = 86400.0


@define(eq=False)
class ServingDependents:
    """Counts those that do not know a new CA.

    An unused token of kubesphere-v1 counts as a join line, for `UNUSED_PERIOD` s.

    :param is_admin: returns whether a credential is of the administrator's kubeconfig, which is not waited
        for.
    :param now: returns the time, s since the epoch.
    """

    _announcer: Announcer
    _tokens: JoinTokens
    _v1_tokens: V1Tokens
    _credentials: Credentials
    _is_admin: Callable[[Credential], bool]
    _now: Callable[[], float]

    def remaining(self, rotation: Rotation) -> Remaining:
        """Return those that *rotation* waits for."""
        agents, ready = self._announcer.lacking(rotation.new)
        agents += [
            LackingAgent(each.cluster, each.id, _V1) for each in self._v1_tokens.all() if each.connected
        ]
        join_lines = [*self._tokens.unspent(rotation.started), *self._unused(rotation.started)]
        issued = self._credentials.issued_before(rotation.started)
        users = [OldKubeconfig.of(credential) for credential in issued if not self._is_admin(credential)]
        return Remaining(agents, ready, join_lines, users)

    def _unused(self, before: float) -> list[UnspentToken]:
        """Return the unused tokens of kubesphere-v1 whose manifests have the old CA only."""
        latest = self._now() - UNUSED_PERIOD
        return [
            UnspentToken(each.cluster, each.minted + UNUSED_PERIOD, each.id)
            for each in self._v1_tokens.all()
            if not each.connected and latest < each.minted < before
        ]
