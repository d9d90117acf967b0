"""The serving certificate of the front door and the cluster ports, and their TLS context.

A renewed certificate is loaded into the `ssl.SSLContext` in use, so new connections get it and no port is
reopened.  Other CAs of ``--client-ca-file`` require another context: one cannot forget a CA, or the sessions
that it may resume.

A client certificate is requested, not required.  TLS verifies only that the users' CA, or one of
``--client-ca-file``, signed it.
`tower.web.access.authentication` checks its expiry for each request, so an expired credential is answered
with a readable `Status` instead of a TLS alert.  TLS session resumption does not bypass this check: resumed
sessions carry the client's certificate, with TLS 1.2 and 1.3.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from cryptography import x509
from twisted.logger import Logger

from tower.errors import ConfigurationError, TowerError
from tower.net.tls.cipher_suites import ServerSettings
from tower.net.tls.client_certificate import load_pair
from tower.trust.named_certificates import NamedCertificate, by_name, wildcard_of
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

#: Settings of TLS without options.
DEFAULTS = ServerSettings()

_WILDCARDS = ("0.0.0.0", "::", "*")


class ServingCertificate:
    """A serving certificate for *names*, renewed in time, and TLS contexts that use it.

    :param authority: signs the certificate; sent with it, so that an agent can pin it by hash alone.
    :param users: CAs of client certificates.
    :param names: host names and IP addresses that clients may use; see `serving_names`.
    :param now: returns the time, s since the epoch.
    :param settings: of TLS.
    :ivar context: for new connections; has the current certificate.
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
        settings: ServerSettings = DEFAULTS,
    ) -> None:
        self._state = state
        self._authority = authority
        self._names = names
        self._now = now
        self._users = users
        self._clients = b""
        self._settings = settings
        self._shown: Sequence[NamedCertificate] = ()
        self._reserved: Sequence[str] = ()
        self._named: dict[str, ssl.SSLContext] = {}
        self._pem = b""
        self.generation = 0
        self.context = self._server_context()
        self.open_context = self._server_context(is_open=True)
        self.reload()

    @property
    def now(self) -> float:
        """The time, s since the epoch."""
        return self._now()

    @property
    def names(self) -> Sequence[str]:
        """Names and addresses of all certificates that are shown to clients; some may be wildcards."""
        return [*self._names, *(name for each in self._shown for name in each.names)]

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
        if not self._use_stored():
            self._issue()
        return f"valid until {self._certificate.not_valid_after_utc:%Y-%m-%d}"

    def trust_users(self, users: Authority) -> None:
        """Also accept client certificates of another CA."""
        for context in (self.context, *self._named.values()):
            context.load_verify_locations(cadata=users.pem.decode("ascii"))
        self.generation += 1

    def trust_clients(self, authorities: bytes) -> None:
        """Also accept client certificates of these CAs (PEM), in place of those of the last call.

        Sessions of earlier connections cannot be resumed.

        :raise ConfigurationError: there is no memory or no descriptor left; the last ones stay in use.
        """
        self._replace_contexts(authorities, self._shown, self._reserved)

    def show_for_names(self, certificates: Sequence[NamedCertificate], reserved: Sequence[str]) -> None:
        """Show these certificates to clients that request their names, in place of those of the last call.

        :param reserved: names for which Tower's certificate is shown, also if one of these has them.
        :raise ValueError: a certificate and its key do not fit together; the last ones stay in use.
        :raise ConfigurationError: there is no memory or no descriptor left; the same.
        """
        self._replace_contexts(self._clients, certificates, reserved)

    def context_for(self, names: Sequence[str], *, is_open: bool) -> tuple[ssl.SSLContext, float]:
        """Return a context with a new certificate for more *names*, and the time to replace it.

        :param is_open: whether the context requests no client certificate.
        :return: with the time in s since the epoch.
        :raise OSError: there is no memory or no descriptor left.
        """
        now = self._now()
        issued = self._authority.server_certificate([*self._names, *names], LIFETIME, now)
        context = self._server_context(is_open=is_open)
        load_pair(context, issued.certificate_pem + self._authority.pem, issued.key_pem)
        return context, now + max((issued.not_after - now) * 2 / 3, RENEWAL_PERIOD)

    def _replace_contexts(
        self, clients: bytes, shown: Sequence[NamedCertificate], reserved: Sequence[str]
    ) -> None:
        """Replace all contexts by complete ones; on an error nothing changes."""
        previous = self._clients, self._shown, self._reserved
        self._clients, self._shown, self._reserved = clients, shown, reserved
        try:
            with _loading():
                loaded = {each: self._named_context(each) for each in shown}
                context, open_context = self._server_context(), self._server_context(is_open=True)
                for each in (context, open_context):
                    load_pair(each, self._pem, b"")
        except (ValueError, ConfigurationError):
            self._clients, self._shown, self._reserved = previous
            raise
        self._named = {name: loaded[each] for name, each in by_name(shown, reserved).items()}
        self.context, self.open_context = context, open_context
        self.generation += 1

    def _named_context(self, named: NamedCertificate) -> ssl.SSLContext:
        context = self._server_context()
        try:
            load_pair(context, named.certificate, named.key)
        except ValueError:
            raise ValueError(
                f"the certificate and key for {', '.join(named.names) or 'no name'} are not an "
                "unencrypted, matching pair in PEM: correct the files"
            ) from None
        return context

    def _server_context(self, *, is_open: bool = False) -> ssl.SSLContext:
        context = _server_context(b"" if is_open else self._users.pem + self._clients)
        self._settings.apply(context)
        if self._shown:
            context.sni_callback = self._choose
        return context

    def _choose(self, session: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> None:
        """Set the certificate for the name that a client requests."""
        lower = (name or "").lower()
        found = self._named.get(lower) or self._named.get(wildcard_of(lower))
        if found is not None:
            session.context = found

    def _issue(self) -> None:
        issued = self._authority.server_certificate(self._names, LIFETIME, self._now())
        pem = issued.key_pem + issued.certificate_pem + self._authority.pem
        self._state.write(STATE_FILE, pem)
        self._use(load_certificates(issued.certificate_pem)[0], pem)

    def _use_stored(self) -> bool:
        """Use the certificate in the state directory; return whether it is still right, and has its key."""
        pem = self._state.read(STATE_FILE)
        stored = None if pem is None else self._right(pem)
        if pem is None or stored is None or self._due(stored):
            return False
        try:
            self._use(stored, pem)
        except ValueError:
            return False
        return True

    def _use(self, certificate: x509.Certificate, pem: bytes) -> None:
        """Use a certificate for new connections.

        :raise ValueError: its key is missing or another one's; the last certificate stays in use.
        """
        with _loading():
            # a context that rejects a pair has lost its last one
            for context in (_server_context(b""), self.context, self.open_context):
                load_pair(context, pem, b"")
        self._certificate, self._pem = certificate, pem

    def _right(self, data: bytes) -> x509.Certificate | None:
        """Return the certificate in *data* if its CA and names are still right."""
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


def serving_names(*hosts: str | None) -> list[str]:
    """Return the names of the certificate: *hosts*, except empty ones and wildcards, and the loopback's."""
    names = [host for host in hosts if host and host.strip("[]") not in _WILDCARDS]
    return list(dict.fromkeys([*names, "localhost", "127.0.0.1", "::1"]))


@contextmanager
def _loading() -> Iterator[None]:
    """Raise `ConfigurationError` if OpenSSL or the system cannot load certificates."""
    try:
        yield
    except OSError as e:
        raise ConfigurationError(f"cannot load the serving certificates: {e.strerror}") from e


def _server_context(authorities: bytes) -> ssl.SSLContext:
    """Return a context; *authorities*: CAs of client certificates, PEM; empty: it requests no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    # All offered ciphers are strong, and clients know which is fast for them: mostly AES-128, as for us.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1
    if authorities:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME) | ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_verify_locations(cadata=authorities.decode("ascii"))
    return context
