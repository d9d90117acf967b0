"""The resource `credentials`: the valid credentials of users."""

from __future__ import annotations

from collections.abc import Mapping

from twisted.internet.interfaces import IReactorTime

from tower.clusters import API_VERSION, Clusters
from tower.clusters.credentials import ADMINS, Credential, Credentials
from tower.durations import human_duration
from tower.errors import NotFound
from tower.kube.request_info import RequestInfo
from tower.kube.timestamps import timestamp
from tower.store import IStore
from tower.store.kinds import CREDENTIALS
from tower.web.access.authorization.attributes import Attributes
from tower.web.access.authorization.cluster_scope import OWN
from tower.web.access.authorization.own_rights import OwnRights
from tower.web.api.calls.call import Call, method_not_allowed, not_found
from tower.web.api.discovery import TOWER
from tower.web.api.objects import delete, list_response, selected
from tower.web.api.selectors import CLUSTER_FIELD
from tower.web.api.table import Column, Object, age_column, name_column, seconds_since, table
from tower.web.outcome import Outcome, Response


class CredentialsApi:
    """`credentials`: the valid credentials of users; a delete revokes one."""

    def __init__(
        self,
        store: IStore,
        credentials: Credentials,
        clusters: Clusters,
        clock: IReactorTime,
        rights: OwnRights,
    ) -> None:
        self._rights = rights
        self._store = store
        self._clusters = clusters
        self._credentials = credentials
        self._clock = clock

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items, now = selected(call, self._objects(), _CREDENTIAL_FIELDS), self._clock.seconds()
                return list_response(call, "Credential", items, CREDENTIAL_COLUMNS, now)
            case (("GET" | "HEAD"), (name,)):
                item = self._object(self._find(name))
                if call.table:
                    now = self._clock.seconds()
                    return Response.of_json(table(CREDENTIAL_COLUMNS, [item], now, media=call.table))
                return Response.of_json(item)
            case "DELETE", (name,):
                self._check_revocation(call, self._find(name))
                return await delete(call, "credentials", name, lambda: self._credentials.revoke(name))
            case _, (() | (_,)):
                raise method_not_allowed(call)
        raise not_found()

    def _objects(self) -> list[Object]:
        now = self._clock.seconds()
        names = sorted(self._store.snapshot(CREDENTIALS))
        found = [self._credentials.get(name) for name in names]
        valid = [credential for credential in found if credential is not None and credential.valid(now)]
        return [self._object(credential) for credential in sorted(valid, key=lambda one: one.issued)]

    def _object(self, credential: Credential) -> Object:
        cluster = self._clusters.get(credential.cluster)
        return _credential(credential, {} if cluster is None else cluster.labels)

    def _check_revocation(self, call: Call, credential: Credential) -> None:
        """Check that the user may revoke a credential: only administrators may disconnect each other.

        :raise StatusError: 403.
        """
        user = call.as_user
        if ADMINS not in credential.groups or self._rights.is_privileged(user):
            return
        group, version = TOWER.group, TOWER.version
        info = RequestInfo(
            "delete", "", group, version, "", "credentials", "", credential.id, is_resource=True
        )
        raise Attributes(user, info, OWN).refusal(
            f"it is an administrator's: only the group {ADMINS} may revoke it", "ask a member of that group"
        )

    def _find(self, name: str) -> Credential:
        credential = self._credentials.get(name)
        if credential is None or not credential.valid(self._clock.seconds()):
            raise NotFound(f"there is no credential {name}: 'tower credential list' shows all")
        return credential


_CREDENTIAL_FIELDS = {
    **CLUSTER_FIELD,
    "spec.user": lambda item: str(item["spec"]["user"]),
}


def _credential(credential: Credential, labels: Mapping[str, str]) -> Object:
    """Return the object of a credential, with the *labels* of its cluster."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Credential",
        "metadata": {
            "name": credential.id,
            "creationTimestamp": timestamp(credential.issued),
            **({"labels": dict(labels)} if labels else {}),
        },
        "spec": {
            "cluster": credential.cluster,
            "user": credential.user,
            "groups": list(credential.groups),
            "auth": credential.kind,
            "role": credential.role,
            "expirationTimestamp": timestamp(credential.expires),
        },
    }


def _expires(item: Object, now: float) -> str:
    left = -(seconds_since(item["spec"]["expirationTimestamp"], now) or 0)
    return f"{item['spec']['expirationTimestamp']} ({human_duration(left)} left)"


CREDENTIAL_COLUMNS = (
    name_column("ID of the credential; not a secret."),
    Column("Cluster", "Cluster that it is for.", lambda item, _: item["spec"]["cluster"] or "(Tower's API)"),
    Column("User", "Its user.", lambda item, _: item["spec"]["user"]),
    Column("Groups", "Groups of the user.", lambda item, _: ",".join(item["spec"]["groups"])),
    Column("Auth", "Credential type: certificate or token.", lambda item, _: item["spec"]["auth"]),
    Column("Expires", "Time of expiry.", _expires),
    Column("Role", "user or trusted-caller.", lambda item, _: item["spec"]["role"]),
    age_column(),
)
