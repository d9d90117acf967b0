"""What the proxy's store holds, each kind by who knows it."""

from __future__ import annotations

from typing import Any

from tower.clusters import Clusters
from tower.clusters.credentials import Credentials
from tower.clusters.join_tokens import JoinTokens
from tower.clusters.member_credentials import MemberCredentials
from tower.clusters.v1_tokens import V1Tokens
from tower.control.proxy_options import Options
from tower.reactor.clock import TimeOfDay
from tower.store.sqlite import SQLiteStore
from tower.trust.statedir import StateDir
from tower.trust.vault import Vault

#: The file with the key that seals secrets, unless an option names another.
SECRETS_KEY = "secrets.key"


class ProxyRecords:
    """:param day: the time of day.
    :ivar accesses: the credentials of clusters without agents.
    :ivar tokens: who may join, and the keys of agents that did.
    :ivar old_tokens: those of agents of KubeSphere Tower.
    """

    def __init__(self, options: Options, state: StateDir, reactor: Any, day: TimeOfDay) -> None:
        self.store = SQLiteStore(reactor, state.path / "tower.db")
        vault = Vault(options["secrets-key-file"] or state.path / SECRETS_KEY, day.seconds)
        self.accesses = MemberCredentials(self.store, vault)
        self.clusters = Clusters(self.store, options["cluster-ports"], day, self.accesses)
        self.credentials = Credentials(self.store, day, options["max-credential-ttl"])
        self.tokens = JoinTokens(self.store, day)
        self.old_tokens = V1Tokens(self.store, day)

    async def purge(self) -> None:
        """Forget what has expired."""
        await self.tokens.purge()
        await self.credentials.purge()

    async def stop(self) -> None:
        """Follow the store no longer, and close it."""
        self.credentials.stop()
        self.clusters.stop()
        self.old_tokens.stop()
        await self.store.stop()
