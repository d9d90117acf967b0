"""Keys and CAs of the proxy, its serving certificates, and the names that they are for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Self

from attrs import frozen
from twisted.application.service import Service

from tower.clusters.records import Records
from tower.control.admin_kubeconfig import AdminKubeconfig
from tower.control.front_door.named_serving import NamedServing
from tower.control.front_door.public_certificate import PublicCertificate
from tower.control.planes.runtime import Runtime
from tower.control.serving_reload import given_ca, reload_serving
from tower.control.state_files import check_keys
from tower.net.addresses import is_wildcard, join_address
from tower.options.followed_file import PERIOD as FILES_PERIOD
from tower.rotation.assembly import ProxyKeys, rotations_of
from tower.rotation.rotations import Rotations
from tower.rotation.tls_cert_file import accepted_ca
from tower.store import IStore
from tower.trust.serving_certificate import RENEWAL_PERIOD, ServingCertificate, serving_names
from tower.trust.statedir import StateDir
from tower.tunnels import Tunnels
from tower.web.api.issuer import Published


@frozen(eq=False)
class TrustPlane:
    """Keys and certificates that clients and agents trust.

    :ivar serving: the certificate of Tower's CA, and the TLS contexts of all ports.
    :ivar named: certificates for other names.
    :ivar published: names and ports that users and agents connect to.
    :ivar services: renew the certificate, and follow the files.
    """

    keys: ProxyKeys
    serving: ServingCertificate
    named: NamedServing
    published: Published
    services: Sequence[Service]
    _runtime: Runtime
    _state: StateDir

    @classmethod
    def of(cls, runtime: Runtime, state: StateDir, store: IStore) -> Self:
        """Return the plane.

        :param store: has the records that depend on keys.
        :raise ConfigurationError: a file is lost, damaged or cannot be used.
        """
        options, epoch, reloads = runtime.options, runtime.epoch, runtime.reloads
        host = options["host"]
        published = Published(
            host,
            options.public_address,
            options["secure-port"],
            options["port"],
            options["external-hostname"],
        )
        given = given_ca(options, epoch())
        check_keys(
            state,
            store,
            epoch(),
            new_host_key=bool(options["new-host-key"]),
            new_ca=bool(options["new-ca"]),
            is_given=given is not None,
        )
        keys = ProxyKeys.load(state, given, epoch())
        serving = ServingCertificate(
            state,
            keys.authority.current,
            keys.users,
            serving_names(published.address, host, published.external),
            epoch,
            options.tls_settings,
        )
        names = serving_names(published.address, host)
        pair = options.public_pair
        agents = keys.authority if options.is_public_pair_for_agents else None
        public = None if pair is None else PublicCertificate.of(pair, agents, accepted_ca(store))
        named = NamedServing.of(options.named_pairs, serving, names, reloads, public)
        reloads.add(
            "serving certificate", partial(reload_serving, keys, serving, lambda: given_ca(options, epoch()))
        )
        services = [
            *runtime.every(FILES_PERIOD, named.check_files),
            *runtime.every(RENEWAL_PERIOD, serving.renew),
        ]
        return cls(keys, serving, named, published, services, runtime, state)

    def admin(self, records: Records) -> AdminKubeconfig:
        """Return the administrator's kubeconfig, for this machine."""
        options = self._runtime.options
        host = "127.0.0.1" if is_wildcard(options["host"]) else options["host"]
        server = f"https://{join_address(host, options['secure-port'])}"
        keys = self.keys
        return AdminKubeconfig(
            self._state, records.credentials, keys.users, keys.authority, server, self._runtime.epoch
        )

    def rotations(self, records: Records, tunnels: Tunnels, admin: AdminKubeconfig) -> Rotations:
        """Return the rotations of the keys."""
        day = self._runtime.day
        return rotations_of(
            self.keys, self.serving, records, tunnels, day, admin.renew, admin.owns, self.named
        )
