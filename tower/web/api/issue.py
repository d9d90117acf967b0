"""The resources that issue credentials: join tokens for agents, kubeconfigs for users and administrators."""

from __future__ import annotations

from typing import Any, cast

from tower.clusters import Cluster
from tower.clusters.credentials import CredentialRole
from tower.errors import Invalid
from tower.kube.timestamps import timestamp
from tower.member.manifest.settings import AgentSettings
from tower.options.values import parse_duration
from tower.web.api.calls.call import Call
from tower.web.api.issuer import Auth, Grant, Issuer, Via
from tower.web.api.objects import created_response, read_spec
from tower.web.outcome import Outcome, Response

DEFAULT_TOKEN_TTL = 3600.0  # s


class JoinTokensApi:
    """`clusters/<name>/jointokens`: a POST creates one; only its answer contains it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        spec = await read_spec(call, below, "JoinToken", {"ttl", "uses", "protocol", "token", "manifest"})
        if _choice(spec, "protocol", ("v2", "v1")) == "v1":
            return await self._v1(cluster, spec)
        _reject(spec, ("token",), "only v1 agents may use an existing token: add protocol v1")
        uses = spec.get("uses", 1)
        if isinstance(uses, bool) or not isinstance(uses, int):
            raise Invalid(f"spec.uses: {uses!r}: must be a number, at least 1")
        given = _ttl(spec)
        ttl = DEFAULT_TOKEN_TTL if given is None else given
        if (manifest := spec.get("manifest")) is not None:
            settings = AgentSettings.parse(manifest, "spec.manifest.")
            return await self._import_url(cluster, ttl, uses, settings)
        invitation = await self._issuer.invitation(cluster.name, ttl, uses)
        return created_response(
            "JoinToken",
            cluster.name,
            {
                "token": invitation.token,
                "proxyServer": invitation.server,
                "hostKeys": list(invitation.host_keys),
                "caHash": invitation.ca_hashes[0],
                "caHashes": list(invitation.ca_hashes),
                "expirationTimestamp": timestamp(invitation.expires),
            },
        )

    async def _import_url(self, cluster: Cluster, ttl: float, uses: int, settings: AgentSettings) -> Outcome:
        made = await self._issuer.import_url(cluster.name, ttl, uses, settings)
        return created_response(
            "JoinToken",
            cluster.name,
            {
                "importURL": made.url,
                "certificateAuthority": made.ca_pem.decode("ascii"),
                "expirationTimestamp": timestamp(made.expires),
            },
        )

    async def _v1(self, cluster: Cluster, spec: dict[str, Any]) -> Outcome:
        _reject(spec, ("ttl", "uses"), "v1 tokens do not expire, because v1 agents cannot renew them")
        _reject(spec, ("manifest",), "import URLs are for v2 agents: omit protocol v1")
        token = spec.get("token")
        if token is not None and not isinstance(token, str):
            raise Invalid("spec.token: must be a string")
        invitation = await self._issuer.v1_invitation(cluster.name, token)
        return created_response(
            "JoinToken",
            cluster.name,
            {
                "token": invitation.token,
                "agent": invitation.id,
                "proxyServer": invitation.server,
                "secureProxyServer": invitation.secure_server,
                "certificateAuthority": invitation.ca_pem.decode("ascii"),
            },
        )


class KubeconfigsApi:
    """`clusters/<name>/kubeconfigs`: a POST issues a credential; only its answer contains it.

    `clusters/<name>/trustedcallers` is the same with another *role* of the credential.
    """

    def __init__(self, issuer: Issuer, role: CredentialRole = "user") -> None:
        self._issuer = issuer
        self._role: CredentialRole = role

    async def answer(self, call: Call, cluster: Cluster, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.clusters.Below`."""
        spec = await read_spec(call, below, "Kubeconfig", {"user", "groups", "ttl", "via", "auth"})
        groups = spec.get("groups", [])
        if not isinstance(groups, list) or not all(isinstance(group, str) for group in groups):
            raise Invalid("spec.groups: must be a list of strings")
        via = cast(Via, _choice(spec, "via", ("front-door", "port")))
        grant = await self._issuer.kubeconfig(
            cluster.name, _user(spec), groups, _ttl(spec), via, _auth(spec), self._role
        )
        return _granted(grant, cluster.name)


class AdminKubeconfigsApi:
    """`kubeconfigs`: a post issues a credential for Tower's own API, and only its answer ever shows it."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer

    async def answer(self, call: Call, below: tuple[str, ...]) -> Outcome:
        """See `tower.web.api.dispatch.ResourceHandler.answer`."""
        spec = await read_spec(call, below, "Kubeconfig", {"user", "ttl", "auth"})
        return _granted(await self._issuer.admin_kubeconfig(_user(spec), _ttl(spec), _auth(spec)), "tower")


def _granted(grant: Grant, name: str) -> Response:
    return created_response(
        "Kubeconfig",
        name,
        {
            "kubeconfig": grant.text,
            "credential": grant.credential.id,
            "expirationTimestamp": timestamp(grant.credential.expires),
        },
    )


def _user(spec: dict[str, Any]) -> str:
    user = spec.get("user")
    if not isinstance(user, str) or not user:
        raise Invalid("spec.user: required: the user's name")
    return user


def _auth(spec: dict[str, Any]) -> Auth:
    return cast(Auth, _choice(spec, "auth", ("cert", "token")))


def _ttl(spec: dict[str, Any]) -> float | None:
    text = spec.get("ttl")
    if text is None:
        return None
    try:
        return parse_duration(text if isinstance(text, str) else "")
    except ValueError as e:
        raise Invalid(f"ttl {text!r} {e}") from e


def _reject(spec: dict[str, Any], keys: tuple[str, ...], why: str) -> None:
    for key in keys:
        if spec.get(key) is not None:
            raise Invalid(f"spec.{key}: not supported: {why}")


def _choice(spec: dict[str, Any], key: str, choices: tuple[str, ...]) -> str:
    value = spec.get(key, choices[0])
    if value not in choices:
        raise Invalid(f"spec.{key}: {value!r}: must be {' or '.join(choices)}")
    return str(value)
