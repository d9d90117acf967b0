"""Missing prerequisites in the host cluster: the namespace, rights, the CRD.

Each problem is logged once, with the cure, until everything that it stopped works again.
"""

from __future__ import annotations

from attrs import define, field, frozen
from twisted.logger import Logger

from tower.kube.client import APIError
from tower.kube.rest.failures import is_lost_namespace

#: Reason of the problem that the namespace does not exist.
NAMESPACE_MISSING = "NamespaceMissing"

_FORBIDDEN, _NOT_FOUND = 403, 404


@frozen
class Problem:
    """A missing prerequisite.

    :ivar reason: one word, for conditions and events.
    :ivar text: with the cure.
    """

    reason: str
    text: str


def problem_of(error: BaseException, namespace: str) -> Problem | None:
    """Return the missing prerequisite that caused an error, if it is one.

    :param error: of the API, or of the store because of one of the API.
    :param namespace: of the controller's objects.
    """
    if not isinstance(error, APIError):
        return None if error.__cause__ is None else problem_of(error.__cause__, namespace)
    if error.webhook:
        return None  # it judges one object
    if is_lost_namespace(error, namespace):
        return Problem(
            NAMESPACE_MISSING,
            f"namespace {namespace} does not exist in the host cluster, or is being deleted: create it with "
            f"'kubectl create namespace {namespace}', or set --namespace",
        )
    if error.code == _FORBIDDEN:
        # without the name of the object, which is another one for each cluster
        detail = error.message.partition("forbidden: ")[2].removesuffix('"') or error.message
        text = (
            f"the host cluster's API server rejects requests of the proxy: {detail}: grant it the rights of "
            "'tower rbac host | kubectl apply -f -'"
        )
        return Problem("Forbidden", text)
    if error.code == _NOT_FOUND and "/cluster.kubesphere.io/" in error.path:
        return Problem(
            "CRDMissing",
            "the CRD clusters.cluster.kubesphere.io is not installed in the host cluster: install it with "
            "'tower crds | kubectl apply -f -' or 'tower-proxy --install-crds', or install KubeSphere",
        )
    return None


@define(eq=False)
class Prerequisites:
    """The problems, each with the names of the clusters that it stops."""

    _log = Logger()

    _stopped: dict[Problem, set[str]] = field(factory=dict, init=False)

    @property
    def problems(self) -> list[Problem]:
        """The current problems."""
        return list(self._stopped)

    def stopped_by(self, problem: Problem) -> str:
        """Return one name that *problem* stops."""
        return min(self._stopped[problem])

    def missing(self, problem: Problem, name: str) -> None:
        """Record that a problem stops *name*."""
        names = self._stopped.get(problem)
        if names is None:
            names = self._stopped[problem] = set()
            self._log.error("{text}", text=problem.text)
        names.add(name)

    def works(self, name: str) -> bool:
        """Record that nothing stops *name* any more; return whether this solved a problem."""
        solved = []
        for problem, names in self._stopped.items():
            if name in names:
                names.discard(name)
                solved.append(problem)
        for problem in solved:
            if not self._stopped[problem]:
                del self._stopped[problem]
                self._log.info("solved: {text}", text=problem.text)
        return bool(solved)
