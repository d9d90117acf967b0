"""Check of the proxy's SSH host key before it is used: agents accept no other one."""

from __future__ import annotations

from tower.conch.transport.keys import KeyPair
from tower.errors import ConfigurationError
from tower.rotation.host_key import FILE
from tower.store.kinds import AGENT_KEYS
from tower.store.store import IStore
from tower.trust.statedir import StateDir


def check_host_key(state: StateDir, store: IStore, *, new_allowed: bool) -> None:
    """Check that the host key can be read, or is missing while no agent needs it.

    :param new_allowed: whether enrolled agents may lose their proxy (``--new-host-key``).
    :raise ConfigurationError: with the file, the consequence and the cure.
    """
    path = state.path / FILE
    text = state.read(FILE)
    count = len(store.snapshot(AGENT_KEYS))
    if text is None:
        if count and not new_allowed:
            agents = "1 enrolled agent accepts" if count == 1 else f"{count} enrolled agents accept"
            raise ConfigurationError(
                f"SSH host key {path} is missing, and {agents} no other one: restore it from a backup; "
                "without one, set --new-host-key, and every agent has to join again"
            )
        return
    try:
        KeyPair.from_openssh(text)
    except ValueError as e:
        raise ConfigurationError(
            f"SSH host key {path} is damaged ({e}): restore it from a backup; if you delete it, every agent "
            "has to join again"
        ) from e
