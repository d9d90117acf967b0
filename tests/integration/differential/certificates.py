"""Client certificates of users and of front proxies, alone and with tokens."""

from __future__ import annotations

from attrs import define, field
from cryptography.x509.oid import NameOID

from tests.fakes.certificates import DAY
from tests.fakes.client_certificates import CLIENT, SERVER, Company, subject
from tests.integration.differential.asks import Ask, Certificate
from tests.integration.differential.rows import NO_TLS, Difference, Row, Table
from tower.trust.pki import Issued
from tower.web.access.authentication.x509 import UID

_TLS = "Python verifies certificates during the TLS handshake"
_IN_TLS = Difference("401", NO_TLS, _TLS)
_NOT_ONLY = Difference("201", NO_TLS, f"{_TLS}, before it reads the token")
_RESERVED = Difference("201", "401", "names that Kubernetes or Tower reserves are not accepted")
_CLAIM = Difference(
    "201",
    "403 the header X-Remote-User is not accepted",
    "fields that name a user are never dropped silently",
)
_PLAIN = "Authorization: Bearer plain-token"
_JANE = "X-Remote-User: jane"


@define(eq=False)
class Authorities:
    """The CAs of the tests: `trusted` is in ``--client-ca-file``, and `front` in that of front proxies."""

    now: float
    _named: dict[str, Company] = field(init=False)
    _issued: dict[str, bytes] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        now, company = self.now, Company.root(now=self.now)
        department = company.below(now=now)
        deep = company
        for number in range(8):
            deep = deep.below(f"level {number}", now=now)
        self._named = {
            "company": company,
            "second": Company.root("second", now=now),
            "third": Company.root("third", now=now).below("third department", now=now),
            "front": Company.root("front", now=now),
            "department": department,
            "team": department.below("team", now=now),
            "deep": deep,
            "old": company.below("old", now=now, days=-0.5),
            "user": company.below("user", now=now, ca=False),
            "for servers": company.below("s", now=now, usages=(SERVER,)),
            "stranger": Company.root("stranger", now=now),
            "namesake": Company.root(now=now),
            "itself": Company.root("jane", now=now),
            "front's namesake": Company.root("front", now=now),
        }

    @property
    def trusted(self) -> bytes:
        """The content of ``--client-ca-file``."""
        return (
            self._named["company"].pem + b"a comment\n" + self._named["second"].pem + self._named["third"].pem
        )

    @property
    def front(self) -> bytes:
        """The content of ``--requestheader-client-ca-file``."""
        return self._named["front"].pem

    def issue(self, certificate: Certificate) -> bytes:
        """Return key and certificate, PEM; the same for both servers."""
        found = self._issued.get(repr(certificate))
        if found is None:
            found = self._issued[repr(certificate)] = self._issue(certificate)
        return found

    def _issue(self, certificate: Certificate) -> bytes:
        begin, end = (self.now + each * DAY for each in certificate.days)
        name = subject(certificate.user, certificate.groups, *certificate.more)
        issued: Issued = self._named[certificate.by].issue(name, begin, end, certificate.usages)
        chain = issued.certificate_pem
        if certificate.is_alone:
            ending = b"-----END CERTIFICATE-----\n"
            chain = chain[: chain.index(ending) + len(ending)]
        return issued.key_pem + chain


def _row(name: str, other: Difference | None = None, /, *fields: str, **parts: object) -> Row[Ask]:
    return Row(name, Ask(certificate=Certificate(**parts), fields=fields), other)  # type: ignore[arg-type]


def _proxy(name: str, other: Difference | None, *fields: str, **parts: object) -> Row[Ask]:
    return _row(name, other, *fields, **{"user": "proxy", "groups": (), "by": "front", **parts})


CERTIFICATES = Table(
    "Client certificates",
    [
        _row("signed by the CA"),
        _row("signed by the second CA", by="second"),
        _row("signed by a CA that is not a root", by="third"),
        _row("signed by a CA below", by="department"),
        _row("signed by a CA two below", by="team"),
        _row("signed by a CA eight below", by="deep"),
        _row("without its intermediate CA", _IN_TLS, by="team", is_alone=True),
        _row("signed by another CA", _IN_TLS, by="stranger"),
        _row("signed by a CA with the same name", _IN_TLS, by="namesake"),
        _row("signed by itself", _IN_TLS, by="itself"),
        _row("for servers", _IN_TLS, usages=(SERVER,)),
        _row("signed by a CA for servers", _IN_TLS, by="for servers"),
        _row("for both", usages=(SERVER, CLIENT)),
        _row("for any use", usages=()),
        _row("signed by a user", _IN_TLS, by="user"),
        _row("expired", days=(-1, -0.1)),
        _row("expired long ago", days=(-400, -300)),
        _row("not yet valid", days=(0.1, 1)),
        _row("signed by an expired CA", by="old"),
        _row("without a name", user=None),
        _row("with an empty name", user=""),
        _row("with two names", more=((NameOID.COMMON_NAME, "y"),)),
        _row("without groups", groups=()),
        _row("with 100 groups", groups=[f"g{i}" for i in range(100)]),
        _row(
            "with 257 groups",
            Difference(
                "201", "401", "256 groups are the limit: each is a header field of all requests to a cluster"
            ),
            groups=[f"g{i}" for i in range(257)],
        ),
        _row("with a group twice", groups=("dev", "dev")),
        _row("with all scripts", user="Jürgen", groups=("開発",)),
        _row("with a name in capitals", user="JANE"),
        _row("with a name like an address", user="jane@example.org"),
        _row("with a colon", user="corp:jane"),
        _row(
            "with a space at the end",
            Difference("201", "401", "names are sent to clusters in header fields, which API servers trim"),
            user="jane ",
        ),
        _row("for system:masters", _RESERVED, groups=("system:masters",)),
        _row("for a system user", _RESERVED, user="system:admin"),
        _row("for a node", _RESERVED, user="system:node:a", groups=("system:nodes",)),
        _row("with a UID", more=((UID, "u-1"),)),
        _row("with two UIDs", more=((UID, "a"), (UID, "b"))),
        _row("with a wrong token", None, "Authorization: Bearer wrong"),
        _row("with another user's token", None, _PLAIN),
        _row("expired, with a token", None, _PLAIN, days=(-1, -0.1)),
        _row("expired, with a wrong token", None, "Authorization: Bearer wrong", days=(-1, -0.1)),
        _row("signed by another CA, with a token", _NOT_ONLY, _PLAIN, by="stranger"),
        _row("with the field of another user", _CLAIM, "X-Remote-User: joe"),
    ],
)

FRONT_PROXIES = Table(
    "Front proxies",
    [
        _proxy("alone", None),
        _proxy("for jane", None, _JANE),
        _proxy(
            "for jane with more",
            None,
            _JANE,
            "X-Remote-Group: dev",
            "X-Remote-Uid: 1",
            "X-Remote-Extra-A%2fb: c",
        ),
        _proxy(
            "with escaped keys of extra", None, _JANE, "X-Remote-Extra-%41B: c", "X-Remote-Extra-A%2fB%zz: d"
        ),
        _proxy("with several groups", None, _JANE, "X-Remote-Group: dev", "X-Remote-Group: qa"),
        _proxy("with a list of groups", None, _JANE, "X-Remote-Group: dev,qa"),
        _proxy("with several values of extra", None, _JANE, "X-Remote-Extra-a: b", "X-Remote-Extra-A: c"),
        _proxy("with the second field", None, "x-user: joe"),
        _proxy("with both fields", None, "X-User: joe", _JANE),
        _proxy("with an empty user", None, "X-Remote-User: "),
        _proxy("with groups without a user", None, "X-Remote-Group: dev"),
        _proxy("for all scripts", None, "X-Remote-User: Jürgen"),
        _proxy("for a service account", _RESERVED, "X-Remote-User: system:serviceaccount:a:b"),
        _proxy("for system:admin", _RESERVED, "X-Remote-User: system:admin"),
        _proxy("for a group of the cluster", _RESERVED, _JANE, "X-Remote-Group: system:masters"),
        _proxy(
            "for two users",
            Difference("201", "401", "the first may be from the proxy's client; the proxy has to remove it"),
            _JANE,
            "X-Remote-User: joe",
        ),
        _proxy("with a wrong token", None, _JANE, "Authorization: Bearer wrong"),
        _proxy("alone with a token", None, _PLAIN),
        _proxy("expired", None, _JANE, days=(-1, -0.1)),
        _proxy("with another name", None, _JANE, user="jane"),
        _proxy("signed by another CA", _IN_TLS, _JANE, by="front's namesake"),
        _proxy("for servers", _IN_TLS, _JANE, usages=(SERVER,)),
        Row("a token and another user", Ask(fields=(_JANE, _PLAIN)), _CLAIM),
        Row("no credential", Ask(fields=(_JANE,))),
    ],
)
