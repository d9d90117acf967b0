"""Makes the rotations of a proxy from its keys."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from attrs import frozen
from twisted.internet.interfaces import IReactorTime

from tower.clusters.credentials import Credential
from tower.clusters.records import Records
from tower.conch.transport.keys import KeyPair
from tower.rotation.announcer import Announcer
from tower.rotation.host_key import HostKeyRotation, load_host_keys
from tower.rotation.rotation import Procedure
from tower.rotation.rotations import Rotations
from tower.rotation.secrets_key import SecretsKeyRotation
from tower.rotation.serving_ca import ServingCARotation, load_serving_ca
from tower.rotation.serving_dependents import ServingDependents
from tower.rotation.tls_cert_file import TARGET as TLS_CERT_FILE
from tower.rotation.tls_cert_file import GivenCertificate, TLSCertFileRotation
from tower.rotation.users_ca import UsersCARotation, load_users_ca
from tower.trust.pki import Authority
from tower.trust.rotating_authority import RotatingAuthority
from tower.trust.serving_certificate import ServingCertificate
from tower.trust.statedir import StateDir
from tower.tunnels import Tunnels
from tower.v2.hello import Announcement


@frozen
class ProxyKeys:
    """The keys of a proxy that can be rotated; they change in place.

    :ivar host_keys: the one in use first, then the next one.
    :ivar users: CA of users' certificates.
    :ivar authority: CA of the serving certificate.
    :ivar is_given: whether *authority* is an option's, and not in the state directory.
    """

    state: StateDir
    host_keys: list[KeyPair]
    users: RotatingAuthority
    authority: RotatingAuthority
    is_given: bool

    @classmethod
    def load(cls, state: StateDir, given: Authority | None, now: float) -> ProxyKeys:
        """Return the keys in the state directory; create missing ones.

        :param given: CA of ``--ca-cert``.
        :param now: s since the epoch.
        :raise ConfigurationError: a file is damaged.
        """
        authority = load_serving_ca(state, now) if given is None else RotatingAuthority(given)
        users = load_users_ca(state, now)
        return cls(state, load_host_keys(state), users, authority, given is not None)

    def fingerprints(self) -> Sequence[str]:
        """Return the fingerprints of the host keys."""
        return [key.fingerprint for key in self.host_keys]

    def announcement(self) -> Announcement:
        """Return what agents may pin."""
        return Announcement(tuple(self.fingerprints()), self.authority.hashes)


def rotations_of(
    keys: ProxyKeys,
    serving: ServingCertificate,
    records: Records,
    tunnels: Tunnels,
    clock: IReactorTime,
    renew_admin: Callable[[], Awaitable[None]],
    is_admin: Callable[[Credential], bool],
    given: GivenCertificate | None = None,
) -> Rotations:
    """Return the rotations of *keys*.

    :param clock: its ``seconds()`` are since the epoch, like the reactor's.
    :param renew_admin: writes the administrator's kubeconfig, which is not waited for.
    :param is_admin: returns whether a credential is of that kubeconfig.
    :param given: that of ``--tls-cert-file``; None: there is none.
    """
    state, users, authority, host_keys = keys.state, keys.users, keys.authority, keys.host_keys
    store, tokens, credentials = records.store, records.tokens, records.credentials

    async def save_secrets_key(content: bytes) -> None:
        path = records.member_credentials.vault.path
        if path.parent == state.path:
            await state.save({path.name: content})

    announcer = Announcer(clock, tunnels, records.agent_keys, keys.announcement)
    dependents = ServingDependents(announcer, tokens, records.v1_tokens, credentials, is_admin, clock.seconds)
    serving_ca = ServingCARotation(
        state,
        authority,
        serving,
        keys.is_given,
        announcer,
        dependents,
        renew_admin,
        clock.seconds,
    )
    procedures: dict[str, Procedure] = {
        "host-key": HostKeyRotation(state, host_keys, announcer, tokens),
        "serving-ca": serving_ca,
        TLS_CERT_FILE: TLSCertFileRotation(given, authority, announcer, dependents, renew_admin),
        "users-ca": UsersCARotation(state, users, serving, credentials, renew_admin, is_admin, clock.seconds),
        "secrets-key": SecretsKeyRotation(
            records.member_credentials.vault,
            (records.member_credentials.sealed, records.login_sessions.sealed),
            save_secrets_key,
        ),
    }
    return Rotations(clock, store, announcer, records.agent_keys, procedures)
