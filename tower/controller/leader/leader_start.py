"""The start of a leader: keys from the Secret, records from the host cluster, then the proxy.

Steps that the API server rejects are repeated.  If that does not help, the start is abandoned, so that
another replica can lead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from tower.control.state_files import SECRETS_KEY
from tower.controller.leader.state_secret import StateSecret
from tower.errors import TowerError
from tower.kube.client import APIError
from tower.options.errors import one_line
from tower.reactor.pause import Pause
from tower.store import IStore
from tower.store.records import StoreFailed
from tower.trust.statedir import StateDir
from tower.trust.vault import new_key

T = TypeVar("T")
P = TypeVar("P")

_FORBIDDEN = 403

#: Time between attempts of a step, s.
RETRY_PERIOD = 5.0

#: Time for which a start may fail without a pause, s: then the leader makes room for another replica.
FAILURE_LIMIT = 15.0

#: Interval of checks of the current reason, s.
_CHECK = 1.0


class StartAbandoned(TowerError):
    """A start failed for `FAILURE_LIMIT`; the text is the last reason, with the cure."""


class LeaderStart(Generic[P]):
    """One start; see `run`.

    :param load: returns the store with all records.
    :param create: returns the proxy with that store.
    :param failures: returns the reasons why records cannot be read now.
    :param own_secrets_key: whether the key that encrypts secrets is in the state directory.
    :ivar store: once it is loaded.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        state: StateDir,
        secret: StateSecret,
        load: Callable[[], Awaitable[IStore]],
        create: Callable[[IStore], P],
        failures: Callable[[], Sequence[str]],
        *,
        own_secrets_key: bool = True,
    ) -> None:
        self._clock, self._state, self._secret = clock, state, secret
        self._load, self._create, self._failures = load, create, failures
        self._own_secrets_key = own_secrets_key
        self.store: IStore | None = None
        self._pause = Pause(clock)
        self._trouble = ""
        self._logged = ""
        self._is_created = False
        self._failing = 0.0
        self._abandoned = ""
        self._check: IDelayedCall | None = None
        self._steps: Deferred[P] | None = None

    @property
    def problem(self) -> str:
        """Why the current step fails, with the cure; empty: it did not fail."""
        return "; ".join(self._failures()) or self._trouble

    async def run(self) -> P:
        """Return the proxy, not started.

        :raise StartAbandoned: the steps failed for too long; nothing is left of them.
        :raise TowerError: the proxy cannot start with these options, keys or records, or it cannot save its
            keys: start the program again.
        """
        self._steps = steps = Deferred.fromCoroutine(self._run())
        self._check = self._clock.callLater(_CHECK, self._check_failure)
        try:
            return await steps
        except CancelledError:
            if self._abandoned and self._is_created:
                self._secret.restore()  # these keys were never in use
                raise StoreFailed(self._abandoned) from None
            if self._abandoned:
                raise StartAbandoned(self._abandoned) from None
            raise
        finally:
            if self._check.active():
                self._check.cancel()

    async def _run(self) -> P:
        await self._repeat(self._secret.take_over)
        if self._own_secrets_key and self._state.read(SECRETS_KEY) is None:
            self._state.write(SECRETS_KEY, new_key() + b"\n")
        self.store = store = await self._repeat(self._load)
        self._state.source = str(self._secret)
        proxy = self._create(store)
        self._is_created = True
        await self._repeat(self._secret.save_changed)
        self._state.save = self._secret.save
        return proxy

    async def _repeat(self, step: Callable[[], Awaitable[T]]) -> T:
        """Return the result of *step*; repeat it while the API server rejects it or does not answer."""
        while True:
            try:
                result = await step()
            except (APIError, StoreFailed) as e:
                self._trouble = one_line(e)
                if isinstance(e, APIError) and e.code == _FORBIDDEN:
                    self._trouble += ": grant the rights of 'tower rbac host | kubectl apply -f -'"
                if self._trouble != self._logged:
                    self._logged = self._trouble
                    self._log.error("the leader cannot start yet: {reason}", reason=self._trouble)
                await self._pause.wait(RETRY_PERIOD)
            else:
                self._trouble = ""
                return result

    def _check_failure(self) -> None:
        """Abandon a start that fails for too long."""
        problem = self.problem
        self._failing = self._failing + _CHECK if problem else 0.0
        if self._failing >= FAILURE_LIMIT and self._steps is not None:
            self._abandoned = problem
            self._steps.cancel()
        else:
            self._check = self._clock.callLater(_CHECK, self._check_failure)
