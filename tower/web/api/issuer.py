"""Issues kubeconfigs for users, and join tokens with their parameters for agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

from attrs import define, field, frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters import Cluster, Clusters
from tower.clusters.credentials import ADMINS, Credential, CredentialRole, Credentials
from tower.clusters.join_tokens import MAX_TTL, JoinTokens
from tower.clusters.manifest_imports import ManifestImports
from tower.clusters.v1_tokens import V1Tokens, id_of_token
from tower.errors import ConfigurationError, Conflict, Invalid
from tower.kube.kubeconfig import kubeconfig
from tower.member.manifest.manifest import agent_manifest
from tower.member.manifest.settings import AgentSettings, Joining
from tower.net.addresses import is_wildcard, join_address
from tower.options.base import public_host
from tower.options.values import format_duration
from tower.trust.rotating_authority import AnyAuthority
from tower.web.access.authentication.reserved_names import check_grant

#: Default lifetime of a kubeconfig, s; less if the proxy's limit is lower.
DEFAULT_TTL = 8 * 3600.0

#: Path of import URLs on the front door, before the secret.
IMPORT_PATH = "/import/"

Via: TypeAlias = Literal["front-door", "port"]
Auth: TypeAlias = Literal["cert", "token"]


@frozen
class Published:
    """The address of this proxy for users and agents.

    :ivar host: `--host`.
    :ivar address: `--publish-service-address`.
    :ivar plain_port: the port without TLS, for agents; None without one.
    :ivar external: `--external-hostname`, in the URLs for users; None: the address.
    """

    host: str
    address: str | None
    secure_port: int
    plain_port: int | None
    external: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether the address for users is known."""
        return bool(self.external or self.address) or not is_wildcard(self.host)

    def authority(self, port: int | None = None) -> str:
        """Return host and port of the front door, or of another *port*.

        :raise Conflict: the address is not known; the text names the option.
        """
        try:
            host = public_host(self.host, self.address)
        except ConfigurationError as e:
            raise Conflict(str(e)) from e
        return join_address(host, port or self.secure_port)

    def user_url(self, port: int | None = None) -> str:
        """Return the URL of the front door for users, or of another *port*.

        :raise Conflict: as `authority`.
        """
        if self.external is None:
            return f"https://{self.authority(port)}"
        return f"https://{join_address(self.external, port or self.secure_port)}"

    def cluster_url(self, name: str) -> str:
        """Return the URL of a cluster on the front door."""
        return f"{self.user_url()}/clusters/{name}"

    @property
    def v1_url(self) -> str:
        """URL for ``kubesphere-v1`` agents: the plain port, or the front door if there is no plain port."""
        scheme = "https" if self.plain_port is None else "http"
        return f"{scheme}://{self.authority(self.plain_port)}"


@frozen
class Grant:
    """An issued kubeconfig: its record, and the text of the file."""

    credential: Credential
    text: str = field(repr=False)


@frozen
class Invitation:
    """The parameters with which a v2 agent joins.

    :ivar server: URL of the agent endpoint.
    :ivar host_keys: fingerprints of the proxy's SSH host keys, `SHA256:…`.
    :ivar ca_hashes: hashes that pin the CA of *server*'s certificate, and the next one, `sha256:…`.
    :ivar expires: expiry of the token, s since the epoch.
    """

    token: str = field(repr=False)
    server: str
    host_keys: Sequence[str]
    ca_hashes: Sequence[str]
    expires: float


@frozen
class V1Invitation:
    """The parameters with which ``kubesphere-v1`` agents join.

    :ivar token: does not expire.
    :ivar server: URL of the agent endpoint without TLS, which requires no CA; with TLS if there is no other.
    :ivar secure_server: URL of the endpoint with TLS; such agents verify it with their system's CAs.
    :ivar ca_pem: the CA of that certificate, to be installed where the system does not have it.
    """

    token: str = field(repr=False)
    id: str
    server: str
    secure_server: str
    ca_pem: bytes


@frozen
class ImportURL:
    """The URL of an agent's manifest, which can be fetched once.

    :ivar expires: expiry of the URL and of the manifest's join token, s since the epoch.
    :ivar ca_pem: the CA of the front door's certificate.
    """

    url: str = field(repr=False)
    expires: float
    ca_pem: bytes


@define(eq=False, repr=False)
class Issuer:
    """Issues credentials.

    :param v1_tokens: None if ``kubesphere-v1`` agents are rejected.
    :param users: signs users' certificates.
    :param serving: signs the front door's certificate.
    :param host_keys: returns the fingerprints of the proxy's SSH host keys, the one in use first.
    :param clock: its ``seconds()`` count from the epoch.
    :ivar imports: import URLs of agents' manifests.
    :param kubeconfig_authority: returns the CAs for kubeconfigs (PEM), from the front door's; empty: none.
    """

    _clusters: Clusters
    _credentials: Credentials
    _tokens: JoinTokens
    _v1_tokens: V1Tokens | None
    _users: AnyAuthority
    _serving: AnyAuthority
    _host_keys: Callable[[], Sequence[str]]
    published: Published
    _clock: IReactorTime
    imports: ManifestImports
    _kubeconfig_authority: Callable[[bytes], bytes] = bytes

    async def invitation(self, name: str, ttl: float, uses: int) -> Invitation:
        """Issue a token with which *uses* agents may join a cluster within *ttl* s.

        :raise TowerError: the cluster does not exist, or a value is invalid.
        """
        self._require_agents(name)
        _check_ttl(ttl, MAX_TTL, "the limit for join tokens")
        server = f"wss://{self.published.authority()}"
        expires = self._clock.seconds() + ttl
        token = await self._tokens.mint(name, ttl, uses)
        return Invitation(token, server, list(self._host_keys()), self._serving.hashes, expires)

    async def import_url(self, name: str, ttl: float, uses: int, settings: AgentSettings) -> ImportURL:
        """Return a URL of the manifest of a cluster's agent; for *ttl* and *uses*, see `invitation`.

        :raise TowerError: the cluster does not exist, or a value is invalid.
        """
        self._require_agents(name)
        _check_ttl(ttl, MAX_TTL, "the limit for join tokens")
        base = f"https://{self.published.authority()}{IMPORT_PATH}"
        expires = self._clock.seconds() + ttl
        secret = await self.imports.create(name, ttl, uses, settings.to_object())
        return ImportURL(base + secret, expires, self._serving.pem)

    async def import_manifest(self, secret: str) -> tuple[str, str]:
        """Return the cluster and the manifest of an import URL, which ends it.

        :raise NotFound: there is no such URL.
        :raise ImportEnded: it was fetched or has expired.
        """
        server = f"wss://{self.published.authority()}"
        fetched = await self.imports.fetch(secret)
        joining = Joining(
            fetched.cluster, fetched.token, server, list(self._host_keys()), self._serving.hashes
        )
        return fetched.cluster, agent_manifest(joining, AgentSettings.parse(fetched.settings))

    async def v1_invitation(self, name: str, token: str | None = None) -> V1Invitation:
        """Issue a token with which ``kubesphere-v1`` agents may join a cluster.

        :param token: an existing one of the agents; None creates one.
        :raise TowerError: the cluster does not exist, or a value is invalid.
        """
        self._require_agents(name)
        if self._v1_tokens is None:
            raise Invalid("the proxy runs with --require-v2: it rejects kubesphere-v1 agents")
        published = self.published
        server = published.v1_url
        token = await self._v1_tokens.mint(name, token)
        return V1Invitation(
            token, id_of_token(token), server, f"https://{published.authority()}", self._serving.pem
        )

    async def kubeconfig(
        self,
        name: str,
        user: str,
        groups: Sequence[str],
        ttl: float | None = None,
        via: Via = "front-door",
        auth: Auth = "cert",
        role: CredentialRole = "user",
    ) -> Grant:
        """Return a kubeconfig for one user of one cluster.

        :param ttl: lifetime, s; None: `DEFAULT_TTL`, or the proxy's limit if that is lower.
        :param role: ``trusted-caller``: the user may act as others in the cluster.
        :raise TowerError: the cluster does not exist, or a value is invalid.
        """
        cluster = self._clusters.require(name)
        allowing = name if cluster.type == "ssh" else ""
        check_grant(user, groups, cluster.identities, allowing)
        server = self._server(cluster, via)
        return await self._grant(cluster, server, user, groups, ttl, auth, by_port=via == "port", role=role)

    async def admin_kubeconfig(self, user: str, ttl: float | None = None, auth: Auth = "cert") -> Grant:
        """Return a kubeconfig for Tower's own API.

        :param ttl: as for `kubeconfig`.
        :raise TowerError: a value is invalid.
        """
        check_grant(user, ())
        return await self._grant(None, self.published.user_url(), user, [ADMINS], ttl, auth)

    async def _grant(
        self,
        cluster: Cluster | None,
        server: str,
        user: str,
        groups: Sequence[str],
        ttl: float | None,
        auth: Auth,
        *,
        by_port: bool = False,
        role: CredentialRole = "user",
    ) -> Grant:
        name, uid = (cluster.name, cluster.uid) if cluster is not None else ("", "")
        if ttl is None:
            ttl = min(DEFAULT_TTL, self._credentials.max_ttl)
        _check_ttl(ttl, self._credentials.max_ttl, "--max-credential-ttl of the proxy")
        certificate, token = None, None
        if auth == "cert":
            issued = self._users.client_certificate(user, groups, name, uid, ttl, self._clock.seconds())
            certificate = (issued.certificate_pem, issued.key_pem)
            credential = await self._credentials.register_certificate(
                name, user, groups, ttl, issued.digest, role
            )
        else:
            credential, token = await self._credentials.issue_token(name, user, groups, ttl, role)
        text = kubeconfig(
            server=server,
            ca_pem=self._kubeconfig_authority(self._serving.pem),
            cluster=name,
            user=user,
            certificate=certificate,
            token=token,
            by_port=by_port,
        )
        return Grant(credential, text)

    def _require_agents(self, name: str) -> None:
        if self._clusters.require(name).type == "ssh":
            raise Invalid(
                f"cluster {name} is of type ssh: it has nodes instead of agents; "
                f"'tower cluster show {name}' shows them"
            )

    def _server(self, cluster: Cluster, via: Via) -> str:
        if via == "front-door":
            return self.published.cluster_url(cluster.name)
        port = cluster.kubernetes_port if self._clusters.ports.range is not None else None
        if port is None:
            raise Invalid(
                f"cluster {cluster.name} has no own port: the proxy runs with --cluster-ports none; "
                "use --via front-door"
            )
        return self.published.user_url(port)


def _check_ttl(ttl: float, limit: float, what: str) -> None:
    """Check a lifetime, in s; *what* names the *limit*.

    :raise Invalid: it is not more than 0, or above the limit.
    """
    if not ttl > 0:
        raise Invalid(f"ttl {format_duration(ttl)}: must be more than 0")
    if ttl > limit:
        raise Invalid(f"ttl {format_duration(ttl)}: must be at most {format_duration(limit)} ({what})")
