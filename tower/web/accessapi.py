"""The resources that let others in: join tokens and kubeconfigs, and what was enrolled and issued by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tower.clusters import API_VERSION, Cluster, timestamp
from tower.credentials import Credential, Credentials
from tower.errors import Invalid, NotFound
from tower.jointokens import JoinTokens
from tower.quantities import parse_duration
from tower.store import IStore
from tower.tunnels import Tunnel, Tunnels

from .api import Call
from .clusterapi import Clock
from .issuing import Auth, Issuer, Via
from .outcome import Outcome, Response
from .selectors import parse_fields, parse_labels, read_fields
from .status import Refusal
from .table import Column, Object, age_column, human_duration, name_column, seconds_since, table

DEFAULT_TOKEN_TTL = 3600.0  # s


class JoinTokensApi:
    """`clusters/<name>/jointokens`: a post makes one, and only its answer ever shows it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.clusterapi.Below`."""
        spec = await _posted(call, below, "JoinToken", {"ttl", "uses"})
        uses = spec.get("uses", 1)
        if isinstance(uses, bool) or not isinstance(uses, int):
            raise Invalid(f"spec.uses: {uses!r}: must be a number from 1 on")
        ttl = _ttl(spec)
        invitation = await self._issuer.invitation(
            cluster.name, DEFAULT_TOKEN_TTL if ttl is None else ttl, uses
        )
        return _created(
            "JoinToken",
            cluster.name,
            {
                "token": invitation.token,
                "proxyServer": invitation.server,
                "hostKeys": list(invitation.host_keys),
                "caHash": invitation.ca_hash,
                "expirationTimestamp": timestamp(invitation.expires),
            },
        )


class KubeconfigsApi:
    """`clusters/<name>/kubeconfigs`: a post issues a credential, and only its answer ever shows it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.clusterapi.Below`."""
        spec = await _posted(call, below, "Kubeconfig", {"user", "groups", "ttl", "via", "auth"})
        user, groups = spec.get("user"), spec.get("groups", [])
        if not isinstance(user, str) or not user:
            raise Invalid("spec.user: required: who the kubeconfig is for")
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise Invalid("spec.groups: must be a list of names")
        via = _choice(spec, "via", ("front-door", "port"))
        auth = _choice(spec, "auth", ("cert", "token"))
        grant = await self._issuer.kubeconfig(
            cluster.name, user, groups, _ttl(spec), cast(Via, via), cast(Auth, auth)
        )
        return _created(
            "Kubeconfig",
            cluster.name,
            {
                "kubeconfig": grant.text,
                "credential": grant.credential.id,
                "expirationTimestamp": timestamp(grant.credential.expires),
            },
        )


class AgentsApi:
    """`clusters/<name>/agents`: the enrolled keys with their live tunnels; a delete revokes a key.

    In a path a fingerprint's `/` is written `_` and its `+` is written `-`, as in base64url.
    """

    def __init__(self, tokens: JoinTokens, tunnels: Tunnels, clock: Clock) -> None:
        self._tokens = tokens
        self._tunnels = tunnels
        self._clock = clock

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.clusterapi.Below`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                items = [self._object(cluster, key.fingerprint, key.enrolled) for key in self._keys(cluster)]
                return _listed(call, "Agent", items, AGENT_COLUMNS, self._clock.seconds(), _by_tunnel)
            case (("GET" | "HEAD"), (name,)):
                key = self._find(cluster, name)
                return Response.of_json(self._object(cluster, key.fingerprint, key.enrolled))
            case "DELETE", (name,):
                fingerprint = self._find(cluster, name).fingerprint
                await self._tokens.revoke(cluster.name, fingerprint)
                return _gone("agents", fingerprint)
            case _, (() | (_,)):
                raise Refusal(405, f"{call.method} is not for agents")
        raise Refusal(404, "the server could not find the requested resource")

    def _keys(self, cluster: Cluster) -> Sequence[Any]:
        return self._tokens.agent_keys(cluster.name)

    def _find(self, cluster: Cluster, name: str) -> Any:
        for key in self._keys(cluster):
            if name in (key.fingerprint, key.fingerprint.replace("+", "-").replace("/", "_")):
                return key
        raise NotFound(
            f"cluster {cluster.name} has no agent {name}: "
            f"'tower cluster agents {cluster.name}' shows those it has"
        )

    def _object(self, cluster: Cluster, fingerprint: str, enrolled: float) -> Object:
        tunnels = [tunnel for tunnel in self._tunnels.live(cluster.name) if tunnel.fingerprint == fingerprint]
        return {
            "apiVersion": API_VERSION,
            "kind": "Agent",
            "metadata": {"name": fingerprint, "creationTimestamp": timestamp(enrolled)},
            "spec": {"cluster": cluster.name},
            "status": {"tunnels": [_tunnel(tunnel) for tunnel in tunnels]},
        }


def _tunnel(tunnel: Tunnel) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "address": tunnel.peer,
        "since": timestamp(tunnel.since),
        "version": tunnel.version,
        "streams": tunnel.streams,
        "draining": tunnel.draining,
    }
    if tunnel.round_trip:
        shown["roundTripMilliseconds"] = round(tunnel.round_trip * 1000, 3)
    return shown


def _by_tunnel(items: list[Object]) -> list[Object]:
    """Return one row for each tunnel, and one for each agent without one."""
    return [
        {**item, "status": {"tunnel": tunnel}}
        for item in items
        for tunnel in item["status"]["tunnels"] or [{}]
    ]


def _round_trip(item: Object, _now: float) -> str:
    value = item["status"]["tunnel"].get("roundTripMilliseconds")
    return "" if value is None else f"{value:.1f}ms"


AGENT_COLUMNS = (
    name_column("Fingerprint of the agent's key."),
    Column("Enrolled", "When the key was enrolled.", lambda item, _: item["metadata"]["creationTimestamp"]),
    Column(
        "Address", "Where its tunnel comes from.", lambda item, _: item["status"]["tunnel"].get("address", "")
    ),
    Column("Since", "When the tunnel was opened.", lambda item, _: item["status"]["tunnel"].get("since", "")),
    Column("Version", "Version of the agent.", lambda item, _: item["status"]["tunnel"].get("version", "")),
    Column("Round trip", "To the agent and back.", _round_trip),
)


class CredentialsApi:
    """`credentials`: what was issued to users and still opens something; a delete revokes."""

    def __init__(self, store: IStore, credentials: Credentials, clock: Clock) -> None:
        self._store = store
        self._credentials = credentials
        self._clock = clock

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.Resource.answer`."""
        match call.method, below:
            case (("GET" | "HEAD"), ()):
                if call.flag("watch"):
                    raise Refusal(405, "credentials cannot be watched: list them again")
                return _listed(
                    call, "Credential", self._select(call), CREDENTIAL_COLUMNS, self._clock.seconds()
                )
            case (("GET" | "HEAD"), (name,)):
                item = _credential(self._find(name))
                if call.table:
                    return Response.of_json(
                        table(CREDENTIAL_COLUMNS, [item], self._clock.seconds(), media=call.table)
                    )
                return Response.of_json(item)
            case "DELETE", (name,):
                self._find(name)
                await self._credentials.revoke(name)
                return _gone("credentials", name)
            case _, (() | (_,)):
                raise Refusal(405, f"{call.method} is not for credentials")
        raise Refusal(404, "the server could not find the requested resource")

    def _select(self, call: Call) -> list[Object]:
        fields = parse_fields(call.query.get("fieldSelector", ""), _CREDENTIAL_FIELDS)
        labels = parse_labels(call.query.get("labelSelector", ""))
        now = self._clock.seconds()
        names = sorted(self._store.snapshot("credentials"))
        found = [self._credentials.get(name) for name in names]
        valid = [credential for credential in found if credential is not None and credential.valid(now)]
        items = [_credential(credential) for credential in sorted(valid, key=lambda one: one.issued)]
        return [
            item
            for item in items
            if all(holds(read_fields(item, _CREDENTIAL_FIELDS)) for holds in fields)
            and all(holds({}) for holds in labels)
        ]

    def _find(self, name: str) -> Credential:
        credential = self._credentials.get(name)
        if credential is None or not credential.valid(self._clock.seconds()):
            raise NotFound(f"there is no credential {name}: 'tower credential list' shows those there are")
        return credential


_CREDENTIAL_FIELDS = {
    "metadata.name": lambda item: str(item["metadata"]["name"]),
    "spec.cluster": lambda item: str(item["spec"]["cluster"]),
    "spec.user": lambda item: str(item["spec"]["user"]),
}


def _credential(credential: Credential) -> Object:
    return {
        "apiVersion": API_VERSION,
        "kind": "Credential",
        "metadata": {"name": credential.id, "creationTimestamp": timestamp(credential.issued)},
        "spec": {
            "cluster": credential.cluster,
            "user": credential.user,
            "groups": list(credential.groups),
            "auth": credential.kind,
            "expirationTimestamp": timestamp(credential.expires),
        },
    }


def _expires(item: Object, now: float) -> str:
    left = -(seconds_since(item["spec"]["expirationTimestamp"], now) or 0)
    return f"{item['spec']['expirationTimestamp']} ({human_duration(left)} left)"


CREDENTIAL_COLUMNS = (
    name_column("Names the credential; no secret."),
    Column("Cluster", "What it opens.", lambda item, _: item["spec"]["cluster"] or "(Tower's API)"),
    Column("User", "Whose it is.", lambda item, _: item["spec"]["user"]),
    Column("Groups", "Groups of the user.", lambda item, _: ",".join(item["spec"]["groups"])),
    Column("Auth", "What is shown: a certificate or a token.", lambda item, _: item["spec"]["auth"]),
    Column("Expires", "When it ends.", _expires),
    age_column(),
)


def _listed(
    call: Call,
    kind: str,
    items: list[Object],
    columns: tuple[Column, ...],
    now: float,
    rows: Any = None,
) -> Response:
    if call.table:
        shown = rows(items) if rows is not None else items
        return Response.of_json(table(columns, shown, now, media=call.table))
    return Response.of_json(
        {"apiVersion": API_VERSION, "kind": f"{kind}List", "metadata": {}, "items": items}
    )


async def _posted(call: Call, below: tuple[str, ...], kind: str, known: set[str]) -> dict[str, Any]:
    """Return the spec of the posted object.

    :raise TowerError: it is none, or not of this kind.
    """
    if below:
        raise Refusal(404, "the server could not find the requested resource")
    if call.method != "POST":
        raise Refusal(405, f"{call.method} is not for these: they are made with POST and shown once")
    if call.dry_run:
        raise Refusal(400, f"there is no dry run of making a {kind}")
    value = await call.read()
    for key, right in (("apiVersion", API_VERSION), ("kind", kind)):
        if value.get(key, right) != right:
            raise Refusal(400, f"{key} {value[key]!r}: objects here have {key} {right}")
    spec = value.get("spec") or {}
    if not isinstance(spec, dict):
        raise Invalid("spec: must be an object")
    if unknown := sorted(set(spec) - known):
        raise Invalid(f"spec.{unknown[0]}: unknown: there are {', '.join(sorted(known))}")
    return spec


def _ttl(spec: dict[str, Any]) -> float | None:
    text = spec.get("ttl")
    if text is None:
        return None
    try:
        return parse_duration(text if isinstance(text, str) else "")
    except ValueError as e:
        raise Invalid(f"ttl {text!r} {e}") from e


def _choice(spec: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = spec.get(key, choices[0])
    if value not in choices:
        raise Invalid(f"spec.{key}: {value!r}: must be {' or '.join(choices)}")
    return str(value)


def _created(kind: str, cluster: str, status: dict[str, Any]) -> Response:
    answer = Response.of_json(
        {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": cluster}, "status": status}, 201
    )
    return Response(
        201, answer.body, ((b"Content-Type", b"application/json"), (b"Cache-Control", b"no-store"))
    )


def _gone(kind: str, name: str) -> Response:
    details = {"name": name, "group": "cluster.kubesphere.io", "kind": kind}
    return Response.of_json(
        {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}
    )
