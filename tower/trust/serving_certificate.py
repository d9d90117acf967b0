"""The certificate that the front door and the cluster ports show, and their TLS context.

One `ssl.SSLContext` lives as long as the process: a renewed certificate is loaded into it, new connections
get it, and nothing listens anew.

A client's certificate is asked for, not required.  TLS verifies only that our users' authority signed it; its
end is left to `tower.web.access.authentication`, for each request, so that an expired credential is answered with a
`Status` that a person understands instead of a TLS alert, and a resumed session is no way around it (resumed
sessions carry the client's certificate, with TLS 1.2 and 1.3).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence

from cryptography import x509
from twisted.logger import Logger

from tower.errors import ConfigurationError, TowerError
from tower.trust.pki import Authority, general_names, load_certificates
from tower.trust.statedir import StateDir

#: How long a serving certificate lives, s.
LIFETIME = 90 * 86400.0

#: How often to ask whether it is to be renewed: the time of day may be set at any moment, s.
RENEWAL_PERIOD = 60.0

#: Where it is kept in the state directory: key, certificate, and the authorities up to the root.
STATE_FILE = "serving.pem"

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not name.
_NO_CHECK_TIME = 0x200000


_WILDCARDS = ("0.0.0.0", "::", "*")


class ServingCertificate:
    """Keeps a serving certificate that is good for *names* and a TLS context with it.

    :param authority: signs the certificate; sent along, so that an agent can pin it by hash alone.
    :param users: the authority that clients' certificates must come from.
    :param names: host names and IP addresses that clients may use; see `serving_names`.
    :param now: gives the time, s since the epoch.
    :ivar context: for every listener; the certificate in it follows the renewals.
    :ivar open_context: the same for those that ask nobody for a certificate.
    :raise ConfigurationError: a name no certificate can carry, or the state directory cannot be written.
    """

    _log = Logger()

    def __init__(
        self,
        state: StateDir,
        authority: Authority,
        users: Authority,
        names: Sequence[str],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._authority = authority
        self._names = names
        self._now = now
        self.context = _server_context(users)
        self.open_context = _server_context(None)
        kept = self._kept()
        if kept is not None and not self._due(kept) and self._load():
            self._certificate = kept
        else:
            self._issue()

    @property
    def not_after(self) -> float:
        """When the certificate in use ends, s since the epoch."""
        return self._certificate.not_valid_after_utc.timestamp()

    def renew(self) -> None:
        """Renew the certificate when less than a third of its life is left; a timer's body, never raises."""
        try:
            if self._due(self._certificate):
                self._issue()
                self._log.info("renewed the serving certificate, good until {until}", until=self.not_after)
        except (TowerError, OSError):
            self._log.failure(
                "cannot renew the serving certificate, which ends at {until}", until=self.not_after
            )

    def _issue(self) -> None:
        issued = self._authority.server_certificate(self._names, LIFETIME, self._now())
        self._state.write(STATE_FILE, issued.key_pem + issued.certificate_pem + self._authority.pem)
        if not self._load():
            raise ConfigurationError(f"{self._state.path / STATE_FILE}: cannot be read back")
        self._certificate = load_certificates(issued.certificate_pem)[0]

    def _kept(self) -> x509.Certificate | None:
        """Return the certificate in the state directory if it is ours to use."""
        data = self._state.read(STATE_FILE)
        if data is None:
            return None
        try:
            certificate, *authorities = load_certificates(data)
        except ValueError:
            return None  # not ours to understand, and easily made anew
        try:
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (x509.ExtensionNotFound, ValueError):
            return None
        ours = (
            self._authority.issued(certificate)
            and authorities == list(self._authority.certificates)
            and set(names) == set(general_names(self._names))
        )
        return certificate if ours else None

    def _due(self, certificate: x509.Certificate) -> bool:
        begin, end = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
        now = self._now()
        if begin <= now <= end - (end - begin) / 3:
            return False
        # One that ends with its authority cannot be bettered.
        return now < begin or end < self._authority.not_after

    def _load(self) -> bool:
        """Put what the state directory has into the context; tell whether key and certificate fit.

        The password is for a key that is encrypted, which then fails instead of asking the terminal.
        """
        try:
            for context in (self.context, self.open_context):
                context.load_cert_chain(self._state.path / STATE_FILE, password="")
        except ssl.SSLError:
            return False
        return True


def serving_names(*hosts: str | None) -> list[str]:
    """Return the names to be served under: *hosts* (published, listened on) and this machine's own.

    An empty name and a wildcard address name nobody and are left out.
    """
    names = [host for host in hosts if host and host.strip("[]") not in _WILDCARDS]
    return list(dict.fromkeys([*names, "localhost", "127.0.0.1", "::1"]))


def _server_context(users: Authority | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # All that is offered is strong, and clients know what is fast for them: mostly AES-128, as for us.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1
    if users is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
        context.load_verify_locations(cadata=users.pem.decode("ascii"))
    return context
