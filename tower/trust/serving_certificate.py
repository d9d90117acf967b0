"""The serving certificate of the front door and the cluster ports, and their TLS context.

One `ssl.SSLContext` lives as long as the process.  A renewed certificate is loaded into it, so new
connections get it and no port is reopened.

A client certificate is requested, not required.  TLS verifies only that the users' CA signed it.
`tower.web.access.authentication` checks its expiry for each request, so an expired credential is answered
with a readable `Status` instead of a TLS alert.  TLS session resumption does not bypass this check: resumed
sessions carry the client's certificate, with TLS 1.2 and 1.3.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Sequence

from cryptography import x509
from twisted.logger import Logger

from tower.errors import ConfigurationError, TowerError
from tower.trust.pki import Authority, general_names, load_certificates
from tower.trust.rotating_authority import AnyAuthority
from tower.trust.statedir import StateDir

#: Lifetime of a serving certificate, s.
LIFETIME = 90 * 86400.0

#: How often renewal is checked, s; short, as the time of day may be changed at any moment.
RENEWAL_PERIOD = 60.0

#: File in the state directory: key, certificate, and the CAs up to the root.
STATE_FILE = "serving.pem"

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python does not define.
_NO_CHECK_TIME = 0x200000

_WILDCARDS = ("0.0.0.0", "::", "*")


class ServingCertificate:
    """A serving certificate for *names*, renewed in time, and TLS contexts that use it.

    :param authority: signs the certificate; sent with it, so that an agent can pin it by hash alone.
    :param users: CAs of client certificates.
    :param names: host names and IP addresses that clients may use; see `serving_names`.
    :param now: returns the time, s since the epoch.
    :ivar context: for all listeners; always has the current certificate.
    :ivar open_context: same, for ports that request no client certificate.
    :ivar generation: increases when contexts of `context_for` should be replaced, because a CA changed.
    :raise ConfigurationError: a name does not fit a certificate, or the state directory cannot be written.
    """

    _log = Logger()

    def __init__(
        self,
        state: StateDir,
        authority: Authority,
        users: AnyAuthority,
        names: Sequence[str],
        now: Callable[[], float],
    ) -> None:
        self._state = state
        self._authority = authority
        self._names = names
        self._now = now
        self._users = users
        self.generation = 0
        self.context = _server_context(users)
        self.open_context = _server_context(None)
        stored = self._stored()
        if stored is not None and not self._due(stored) and self._load():
            self._certificate = stored
        else:
            self._issue()

    @property
    def now(self) -> float:
        """The time, s since the epoch."""
        return self._now()

    @property
    def not_after(self) -> float:
        """Expiry of the certificate in use, s since the epoch."""
        return self._certificate.not_valid_after_utc.timestamp()

    def renew(self) -> None:
        """Renew the certificate if less than a third of its lifetime is left; logs failures."""
        try:
            if self._due(self._certificate):
                self._issue()
                self._log.info("renewed the serving certificate, valid until {until}", until=self.not_after)
        except (TowerError, OSError):
            self._log.failure(
                "cannot renew the serving certificate, which expires at {until}", until=self.not_after
            )

    def sign_with(self, authority: Authority) -> None:
        """Replace the certificate by one of another CA, for new connections.

        :raise ConfigurationError: the state directory cannot be written; the certificate stays.
        """
        previous, self._authority = self._authority, authority
        try:
            self._issue()
        except ConfigurationError:
            self._authority = previous
            raise
        self.generation += 1

    def reload(self) -> str:
        """Use the certificate in the state directory for new connections, or a new one if it is unusable.

        :return: until when it is valid.
        :raise ConfigurationError: the state directory cannot be read or written; the certificate stays.
        """
        stored = self._stored()
        if stored is not None and not self._due(stored) and self._load():
            self._certificate = stored
        else:
            self._issue()
        return f"valid until {self._certificate.not_valid_after_utc:%Y-%m-%d}"

    def trust_users(self, users: Authority) -> None:
        """Also accept client certificates of another CA."""
        self.context.load_verify_locations(cadata=users.pem.decode("ascii"))
        self.generation += 1

    def context_for(self, names: Sequence[str], *, is_open: bool) -> tuple[ssl.SSLContext, float]:
        """Return a context with a new certificate for more *names*, and the time to replace it.

        :param is_open: whether the context requests no client certificate.
        :return: with the time in s since the epoch.
        :raise OSError: there is no memory or no descriptor left.
        """
        now = self._now()
        issued = self._authority.server_certificate([*self._names, *names], LIFETIME, now)
        context = _server_context(None if is_open else self._users)
        with open(os.memfd_create("certificate"), "wb") as file:  # only files can be loaded
            file.write(issued.key_pem + issued.certificate_pem + self._authority.pem)
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}", password="")
        return context, now + max((issued.not_after - now) * 2 / 3, RENEWAL_PERIOD)

    def _issue(self) -> None:
        issued = self._authority.server_certificate(self._names, LIFETIME, self._now())
        self._state.write(STATE_FILE, issued.key_pem + issued.certificate_pem + self._authority.pem)
        if not self._load():
            raise ConfigurationError(f"{self._state.path / STATE_FILE}: cannot be read back")
        self._certificate = load_certificates(issued.certificate_pem)[0]

    def _stored(self) -> x509.Certificate | None:
        """Return the certificate in the state directory if its CA and names are still right."""
        data = self._state.read(STATE_FILE)
        if data is None:
            return None
        try:
            certificate, *authorities = load_certificates(data)
        except ValueError:
            return None  # a new one is easily issued
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
        # A new certificate would not outlive the CA either.
        return now < begin or end < self._authority.not_after

    def _load(self) -> bool:
        """Load the state file into the contexts; return whether its key and certificate match.

        With an empty password an encrypted key fails instead of prompting on the terminal.
        """
        try:
            for context in (self.context, self.open_context):
                context.load_cert_chain(self._state.path / STATE_FILE, password="")
        except ssl.SSLError:
            return False
        return True


def serving_names(*hosts: str | None) -> list[str]:
    """Return the names of the certificate: *hosts*, except empty ones and wildcards, and the loopback's."""
    names = [host for host in hosts if host and host.strip("[]") not in _WILDCARDS]
    return list(dict.fromkeys([*names, "localhost", "127.0.0.1", "::1"]))


def _server_context(users: AnyAuthority | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # All offered ciphers are strong, and clients know which is fast for them: mostly AES-128, as for us.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1
    if users is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
        context.load_verify_locations(cadata=users.pem.decode("ascii"))
    return context
