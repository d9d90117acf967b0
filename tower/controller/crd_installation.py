"""``tower-proxy --install-crds``: installs the CRDs in the host cluster, and ends the program."""

from __future__ import annotations

from collections.abc import Callable

from twisted.application.service import Service
from twisted.internet.defer import CancelledError, Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from tower.kube.crds.installer import CRDInstaller, InstallFailed
from tower.kube.rest.rest_client import RestClient
from tower.options.errors import one_line
from tower.reactor.interfaces import IReactor
from tower.reactor.process import end_in_failure


class CRDInstallation(Service):
    """Installs the CRDs when it starts; exit code 1 if one cannot be installed.

    :param client: of the host cluster; closed in the end.
    :param fail: ends the program with exit code 1.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactor,
        client: RestClient,
        fail: Callable[[IReactor], object] = end_in_failure,
    ) -> None:
        self._reactor, self._client, self._fail = reactor, client, fail
        self._running: Deferred[None] | None = None

    def startService(self) -> None:
        """Begin once the reactor runs."""
        super().startService()  # type: ignore[no-untyped-call]
        self._reactor.callWhenRunning(self._begin)

    def stopService(self) -> None:
        """Give up."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._running is not None:
            self._running.cancel()
        self._client.close()

    def _begin(self) -> None:
        self._running = Deferred.fromCoroutine(self._install())
        self._running.addErrback(self._failed)

    async def _install(self) -> None:
        done = await CRDInstaller(self._client, self._reactor).install()
        for each in done:
            self._log.info("{text}", text=each.text)
        changed = sum(each.is_changed for each in done)
        self._log.info(
            "{count} CRDs at {address}: {changed} installed or updated",
            count=len(done),
            address=self._client.config.address,
            changed=changed or "none",
        )
        self._reactor.stop()

    def _failed(self, failure: Failure) -> None:
        if failure.check(CancelledError):
            return
        if isinstance(failure.value, InstallFailed):
            self._log.critical("cannot install the CRDs: {reason}", reason=one_line(failure.value))
        else:
            self._log.failure("cannot install the CRDs", failure)
        self._fail(self._reactor)
