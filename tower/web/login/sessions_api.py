"""The resource `loginsessions`: the sessions of users who logged in."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION
from tower.clusters.login.login_session import LoginSession
from tower.clusters.login.login_sessions import LoginSessions
from tower.durations import human_duration
from tower.errors import NotFound
from tower.kube.timestamps import timestamp
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.objects import delete, list_response, selected
from tower.web.api.table import Column, Object, age_column, name_column, seconds_since, table
from tower.web.outcome import Outcome, Response


class LoginSessionsApi:
    """`loginsessions`: a delete ends a session and its requests.

    :param revoke: begins to revoke the refresh token of a session that has ended.
    """

    def __init__(
        self, sessions: LoginSessions, clock: IReactorTime, revoke: Callable[[LoginSession], object]
    ) -> None:
        self._sessions = sessions
        self._clock = clock
        self._revoke = revoke

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = selected(call, [_object(each) for each in self._sessions.list()], _FIELDS)
                return list_response(
                    call, "LoginSession", items, LOGIN_SESSION_COLUMNS, self._clock.seconds()
                )
            case (("GET" | "HEAD"), (name,)):
                item = _object(self._find(name))
                if call.table:
                    now = self._clock.seconds()
                    return Response.of_json(table(LOGIN_SESSION_COLUMNS, [item], now, media=call.table))
                return Response.of_json(item)
            case "DELETE", (name,):
                self._find(name)
                return await delete(call, "loginsessions", name, lambda: self._end(name))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    async def _end(self, name: str) -> None:
        self._revoke(await self._sessions.end(name))

    def _find(self, name: str) -> LoginSession:
        session = self._sessions.find(name)
        if session is None:
            raise NotFound(f"there is no login session {name}: 'tower session list' shows all")
        return session


_FIELDS = {
    "spec.user": lambda item: str(item["spec"]["user"]),
    "spec.issuer": lambda item: str(item["spec"]["issuer"]),
}


def _object(session: LoginSession) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "LoginSession",
        "metadata": {"name": session.id, "creationTimestamp": timestamp(session.created)},
        "spec": {
            "user": session.user,
            "groups": list(session.groups),
            "issuer": session.issuer,
            "client": session.client,
            "confirmed": session.is_confirmed_again,
            "expirationTimestamp": timestamp(session.expires),
        },
    }


def _expires(item: Object, now: float) -> str:
    left = -(seconds_since(item["spec"]["expirationTimestamp"], now) or 0)
    return f"{item['spec']['expirationTimestamp']} ({human_duration(left)} left)"


LOGIN_SESSION_COLUMNS = (
    name_column("ID of the session; not a secret."),
    Column("User", "Its user.", lambda item, _: item["spec"]["user"]),
    Column("Groups", "Groups of the user.", lambda item, _: ",".join(item["spec"]["groups"])),
    Column("Client", "The client that logged in.", lambda item, _: item["spec"]["client"]),
    Column("Expires", "Time of expiry.", _expires),
    age_column(),
    Column("Issuer", "The identity provider.", lambda item, _: item["spec"]["issuer"], priority=1),
    Column(
        "Confirmed",
        "Whether the identity provider confirms the user every ten minutes.",
        lambda item, _: "yes" if item["spec"]["confirmed"] else "no",
        priority=1,
    ),
)
