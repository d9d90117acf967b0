"""The label of the leader's pod, by which Services of the proxy select it."""

from __future__ import annotations

from attrs import define, field
from twisted.logger import Logger

from tower.errors import one_line
from tower.kube.client import APIError
from tower.kube.rest.host_api import HostAPI
from tower.kube.rest.well_known import PODS

#: Label that only the leader's pod has.
LABEL = "tower.kubesphere.io/leader"

#: Label that distinguishes installations in one namespace.
_INSTANCE = "app.kubernetes.io/instance"

#: Interval of checks of the label, s.
LABEL_PERIOD = 30.0

_NOT_FOUND = 404


@define(eq=False)
class LeaderLabel:
    """Sets the label of one pod, and removes it from others of the same installation.

    :param api: rejects writes without leadership.
    :param pod: name of the pod of this process.
    :param unfenced: for the removal of the label at the start, when this process does not lead.
    """

    _log = Logger()

    _api: HostAPI
    _namespace: str
    _pod: str
    _unfenced: HostAPI
    _is_cleared: bool = field(default=False, init=False)
    _selector: str = field(default="", init=False)
    _problem: str = field(default="", init=False)

    async def set(self) -> None:
        """Move the label to this pod, unless it is there already.

        :raise APIError: the API server rejects it or does not answer.
        """
        if not self._selector:
            pod = await self._api.get(PODS, self._pod, self._namespace)
            instance = (pod["metadata"].get("labels") or {}).get(_INSTANCE)
            self._selector = f"{LABEL}=true" + (f",{_INSTANCE}={instance}" if instance else "")
        labeled = await self._api.list(PODS, self._namespace, self._selector)
        names = [pod["metadata"]["name"] for pod in labeled.items]
        for name in names:
            if name != self._pod:
                await self._label(name, None)
        if self._pod not in names:
            await self._label(self._pod, "true")

    async def try_to_set(self) -> None:
        """Do the same, and log an error once."""
        try:
            await self.set()
        except APIError as e:
            self._report(
                e, "Services do not select pod {pod}, which leads: cannot set its label {label}: {reason}"
            )
        else:
            self._problem = ""

    async def try_to_clear(self) -> None:
        """Remove the label that a killed process left on this pod, unless that succeeded; log an error once.

        The restarted container of a leader is ready as a standby, but must not be selected.
        """
        if self._is_cleared:
            return
        try:
            pod = await self._unfenced.get(PODS, self._pod, self._namespace)
            if LABEL in (pod["metadata"].get("labels") or {}):
                await self._label(self._pod, None, self._unfenced)
        except APIError as e:
            text = "Services may select pod {pod}, a standby: cannot remove its label {label}: {reason}"
            self._report(e, text)
        else:
            self._is_cleared, self._problem = True, ""

    async def remove(self) -> None:
        """Remove the label from this pod.

        :raise APIError: the API server rejects it or does not answer.
        """
        await self._label(self._pod, None)

    def _report(self, error: APIError, text: str) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            pod = f"{self._namespace}/{self._pod}"
            self._log.error(text, pod=pod, label=LABEL, reason=one_line(error))

    async def _label(self, pod: str, value: str | None, api: HostAPI | None = None) -> None:
        try:
            patch = {"metadata": {"labels": {LABEL: value}}}
            await (api or self._api).patch(PODS, pod, patch, self._namespace)
        except APIError as e:
            if e.code != _NOT_FOUND or pod == self._pod:
                raise
