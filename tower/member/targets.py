"""The targets that the owner of an agent allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tower.errors import ConfigurationError, TowerError
from tower.tunnels.targets import KUBERNETES, TARGET_NAME, Target


class TargetRefused(TowerError):
    """A stream that the owner of the cluster does not allow.

    :ivar code: `not-allowed`, `no-such-target` or `busy`, sent to the proxy.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class Targets:
    """The targets that the owner allows, in addition to the API server; all others are rejected.

    :raise ConfigurationError: a name is set twice.
    """

    def __init__(self, targets: Iterable[Target] = ()) -> None:
        named: dict[str, Target] = {}
        for target in targets:
            if target.name in named:
                raise ConfigurationError(f"the target {target.name!r} is set twice: remove one")
            named[target.name] = target
        self._named: Mapping[str, Target] = named

    @property
    def names(self) -> list[str]:
        """All names, the API server's first, for the hello."""
        return [KUBERNETES, *self._named]

    def find(self, name: str) -> Target:
        """Return the target of that name, which is not `KUBERNETES`.

        :raise TargetRefused: it is not allowed.
        """
        target = self._named.get(name)
        if target is not None:
            return target
        if TARGET_NAME.fullmatch(name) is None:
            raise TargetRefused(
                "not-allowed",
                "the agent opens named targets only; its owner adds one with --target name=host:port",
            )
        raise TargetRefused(
            "no-such-target",
            f'the agent has no target "{name}"; its owner adds one with --target {name}=host:port',
        )
