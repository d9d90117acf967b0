"""Authentication of users by a front proxy, which names them in header fields, as in kube-apiserver.

The fields count only on connections with a certificate of ``--requestheader-client-ca-file`` whose common
name is in ``--requestheader-allowed-names``.  Otherwise a request with such fields is rejected, and no such
field is ever sent to a member.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from attrs import define, field, frozen

from tower.errors import Unauthorized
from tower.http.identity_fields import STANDARD, IdentityFields, extra_key
from tower.trust.client_authorities import ClientAuthorities, VerifiedChain, fingerprint
from tower.web.access.authentication.identity import Extra, Identity
from tower.web.access.authentication.presented import Presented
from tower.web.access.authentication.reserved_names import check_foreign
from tower.web.access.authentication.x509 import Bundle, check_certificate, common_name, verified

_METHOD = "request-header"

#: Largest number of extra values of a request.
EXTRA_LIMIT = 64

#: Largest number of front proxies that are remembered.
_REMEMBERED = 64

# Name (lower case) and value of fields.
_Given: TypeAlias = Sequence[tuple[bytes, bytes]]

_CURE = "correct the front proxy"


@frozen
class FrontProxyFields:
    """The fields that front proxies set; names are in lower case, in order of precedence.

    :ivar extra: prefixes of the names of further facts.
    """

    users: Sequence[bytes]
    groups: Sequence[bytes] = ()
    uids: Sequence[bytes] = ()
    extra: Sequence[bytes] = ()

    def includes(self, name: bytes) -> bool:
        """Return whether *name* (lower case) is one of the fields."""
        return name in (*self.users, *self.groups, *self.uids) or name.startswith(tuple(self.extra))

    @property
    def claims(self) -> IdentityFields:
        """All fields that claim an identity: these, and the standard ones."""
        return IdentityFields({*self.users, *self.groups, *self.uids}, self.extra) if self.users else STANDARD

    @staticmethod
    def authenticated(identity: Identity) -> bool:
        """Return whether the identity is from such fields."""
        return identity.method == _METHOD


@frozen(eq=False)
class _Proxy:
    """A front proxy whose certificate was verified."""

    authorities: ClientAuthorities
    chain: VerifiedChain
    name: str
    digest: str

    def is_valid(self, now: float) -> bool:
        """Return whether its certificate is valid now, s since the epoch."""
        return self.chain.not_before <= now <= self.chain.not_after


@define(eq=False)
class RequestHeaderAuthenticator:
    """Authenticates users by the fields of front proxies.

    :param bundle: CAs of the front proxies.
    :param allowed: common names of the front proxies; empty: all.
    :param is_users: returns whether a CA (SHA-256) also signs users' certificates, so that *allowed* is
        required.
    :param seconds: returns the time, s since the epoch.
    """

    method = _METHOD

    _bundle: Bundle
    _allowed: Collection[str]
    _fields: FrontProxyFields
    _seconds: Callable[[], float]
    _is_users: Callable[[str], bool] = field(default=lambda _: False)
    _proxies: dict[bytes, _Proxy] = field(factory=dict, init=False)

    def authenticate(self, presented: Presented) -> Identity | None:
        """Return the user that a front proxy names; None: there is no front proxy, or it names no user.

        :raise Unauthorized: see `tower.web.access.authentication.presented.AuthenticationMethod`.
        """
        fields = presented.fields
        if fields is None or not fields.foreign:
            return None
        given = [(name, value) for name, value in fields.pairs() if self._fields.includes(name)]
        users = _first(given, self._fields.users)
        proxy = self._proxy(presented) if users else None
        if proxy is None:
            return None
        name = proxy.name
        if self._allowed:
            if name not in self._allowed:
                raise Unauthorized(
                    f"the client certificate of {name!r} is not that of a front proxy: omit the header "
                    f"{fields.foreign.decode('latin-1')}",
                    f"x509: subject with cn={name} is not in the allowed list",
                )
        elif self._is_users(proxy.chain.anchor):
            return None
        return self._user(given, users, proxy)

    def check(self, identity: Identity) -> None:
        """Check that the front proxy's certificate is still valid.

        :raise Unauthorized: it has expired, or its CA was removed.
        """
        holder = f"the front proxy of {identity.user}"
        check_certificate(identity, self._bundle.value, self._seconds(), holder)

    def _proxy(self, presented: Presented) -> _Proxy | None:
        """Return the front proxy of a connection; None: the client is another program.

        :raise Unauthorized: its certificate is not valid.
        """
        shown, now = presented.certificate, self._seconds()
        if shown is None:
            return None
        authorities = self._bundle.value
        known = self._proxies.get(shown)
        if known is not None and known.authorities is authorities and known.is_valid(now):
            return known
        found = verified(presented, authorities, now)
        if found is None:
            return None
        certificate, chain = found
        proxy = _Proxy(authorities, chain, common_name(certificate), fingerprint(certificate))
        if len(self._proxies) >= _REMEMBERED:
            self._proxies.clear()
        self._proxies[shown] = proxy
        return proxy

    def _user(self, given: _Given, users: Sequence[bytes], proxy: _Proxy) -> Identity:
        uids = _first(given, self._fields.uids)
        for what, values in (("users", users), ("UIDs", uids)):
            if len(values) > 1:
                raise Unauthorized(
                    f"the front proxy names {len(values)} {what}: {_CURE}, so that it replaces such fields "
                    "of its clients"
                )
        try:
            user, uid = users[0].decode(), (uids or [b""])[0].decode()
            groups = [value.decode() for name, value in given if name in self._fields.groups and value]
            names = check_foreign(user, groups)
            extra = self._extra(given)
            if not uid.isprintable():
                raise ValueError(f"UID {uid!r}: must be printable characters")
        except UnicodeDecodeError:
            raise Unauthorized(f"the front proxy sends a name that is not UTF-8: {_CURE}") from None
        except ValueError as e:
            raise Unauthorized(f"the front proxy sends {e}: {_CURE}") from None
        digest = hashlib.sha256(user.encode()).hexdigest()
        key = f"{proxy.chain.anchor}:{proxy.digest}:{digest}"
        end = proxy.chain.not_after
        return Identity(user, names, uid=uid, extra=extra, method=_METHOD, key=key, expires=end)

    def _extra(self, given: _Given) -> Extra:
        """Return the further facts about a user.

        :raise ValueError: there are too many, or one cannot be used.
        """
        found: dict[str, list[str]] = {}
        for name, value in given:
            for prefix in self._fields.extra:
                if name.startswith(prefix):
                    key = extra_key(name[len(prefix) :], "strict")
                    text = value.decode()
                    if not key or not (key + text).isprintable():
                        raise ValueError(f"extra value {key!r}: must be printable characters")
                    found.setdefault(key, []).append(text)
        if sum(map(len, found.values())) > EXTRA_LIMIT:
            raise ValueError(f"more than {EXTRA_LIMIT} extra values")
        return tuple((key, tuple(values)) for key, values in found.items())


def _first(given: _Given, names: Sequence[bytes]) -> list[bytes]:
    """Return the values of the first of *names* that has one, without empty ones."""
    for wanted in names:
        values = [value for name, value in given if name == wanted and value]
        if values:
            return values
    return []
