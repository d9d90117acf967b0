"""The state of a member's API server as its agent, or the proxy, found it.  No I/O.

`tower.kube.member_report` has the form in which agents send it.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from attrs import field, frozen

from tower.escaping import escaped

#: Status of a condition, as in Kubernetes.
ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]


class CheckKind(NamedTuple):
    """A check, by its name in a report (tower-v2), on the agent's health page, and as a condition."""

    key: str
    page: str
    condition: str


API_SERVER: Final = CheckKind("apiServer", "api-server", "APIServerReachable")
CREDENTIAL: Final = CheckKind("credential", "credential", "MemberCredential")
IMPERSONATION: Final = CheckKind("impersonation", "impersonation", "ImpersonationAllowed")

#: The checks in the order in which they depend on each other.
CHECK_KINDS: Final = (API_SERVER, CREDENTIAL, IMPERSONATION)


@frozen
class Check:
    """The result of one check.

    :ivar reason: CamelCase, as in a Kubernetes condition.
    :ivar message: a clause: the result, with the cause of a failure.
    :ivar cure: Tower's own text, an imperative; empty if nothing is wrong.
    """

    status: ConditionStatus = "Unknown"
    reason: str = "NotChecked"
    message: str = field(default="", converter=escaped)
    cure: str = field(default="", converter=escaped)

    @property
    def text(self) -> str:
        """The message with the cure."""
        return ": ".join(filter(None, (self.message, self.cure)))


#: Reason of a failed check of an API server that accepts connections but does not answer.
TIMEOUT: Final = "Timeout"

#: The result of a check that was not made.
UNCHECKED: Final = Check()


@frozen
class MemberStatus:
    """The results of all checks.

    :ivar api_server: condition ``APIServerReachable``: it answers, and its certificate is valid.
    :ivar credential: condition ``MemberCredential``: the API server accepts it.
    :ivar impersonation: condition ``ImpersonationAllowed``: of users and groups.
    :ivar version: the API server's ``gitVersion``; empty while unknown.
    :ivar credential_expires: end of the token or certificate, s since the epoch; None: unknown or never.
    :ivar clock_offset: time of the checking program minus the API server's ``Date``, s; None: unknown.
    """

    api_server: Check = UNCHECKED
    credential: Check = UNCHECKED
    impersonation: Check = UNCHECKED
    version: str = ""
    credential_expires: float | None = None
    clock_offset: float | None = None

    @property
    def checks(self) -> tuple[Check, Check, Check]:
        """The checks in the order of `CHECK_KINDS`."""
        return self.api_server, self.credential, self.impersonation
