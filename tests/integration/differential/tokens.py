"""Bearer tokens: of service accounts, of the token file, and those that a webhook reviews."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.differential.asks import WHOAMI, Ask, At, Hook, Token
from tests.integration.differential.rows import Difference, Row, Table

ISSUER = "https://kubernetes.default.svc"
AUDIENCE = "tower"

#: Parts of tokens in `Token.form`, in addition to those of the token.
NONE, NONE_WITH_KEY, TEXT = "{none}", "{none_with_key}", "{text}"

_LEGACY = "kubernetes.io/serviceaccount/"
_UNSEEN = "Tower does not watch the objects of the cluster"
_DELETED = Difference("201", "401", f"its pod or service account may have been deleted: {_UNSEEN}")
_EARLIER = Difference("401", "201", f"it is of a deleted service account with the same name: {_UNSEEN}")
_RESERVED = Difference("201", "401", "names that Kubernetes or Tower reserves are not accepted")

#: Rejected with another reason in kube-apiserver's log: it has looked for the objects.
_LOOKED_UP = {
    "legacy",
    "private claims missing",
    "another account",
    "a strange account",
    "a strange namespace",
}

_TOKENS: Mapping[str, Token | tuple[Token, Difference]] = {
    "good": Token(),
    "one audience": Token({"aud": AUDIENCE}),
    "several audiences": Token({"aud": ["x", AUDIENCE]}),
    "no audience": Token({"aud": None}),
    "no kid": Token(header={"kid": None}),
    "expired within the leeway": Token({"exp": At(-30)}),
    "begins within the leeway": Token({"nbf": At(30)}),
    "issued within the leeway": Token({"iat": At(30)}),
    "fractional time": Token({"exp": At(600.5)}),
    "no times but exp": Token({"iat": None, "nbf": None}),
    "expires soon, with a warning": Token(private={"warnafter": At(300)}),
    "no token ID": Token({"jti": None}),
    "past its warnafter time": (Token(private={"warnafter": At(-300)}), _DELETED),
    "no expiry": (Token({"exp": None}), _DELETED),
    "another UID": (Token(private={"serviceaccount": {"name": "robot", "uid": "x"}}), _EARLIER),
    "legacy": Token(
        content={
            "iss": "kubernetes/serviceaccount",
            "sub": "system:serviceaccount:default:robot",
            f"{_LEGACY}namespace": "default",
            f"{_LEGACY}secret.name": "robot-token",
            f"{_LEGACY}service-account.name": "robot",
            f"{_LEGACY}service-account.uid": "x",
        }
    ),
    "alg none": Token(form="{none}.{payload}."),
    "alg none, with kid": Token(form="{none_with_key}.{payload}."),
    "alg none, signed": Token(form="{none}.{payload}.{signature}"),
    "another key": Token(key="other"),
    "another key, unknown kid": Token(key="other", header={"kid": "other"}),
    "another key, no kid": Token(key="other", header={"kid": None}),
    "unknown kid": Token(header={"kid": "other"}),
    "another algorithm": Token(key="rsa"),
    "the public key as HMAC secret": Token(form="{confused}"),
    "a key in the header": Token(key="other", header={"kid": None, "jwk": "other"}),
    "changed claims": Token(form="{header}.{joe}.{signature}"),
    "no signature": Token(form="{header}.{payload}."),
    "cut": Token(form="{cut}"),
    "expired": Token({"exp": At(-120)}),
    "expired long ago": Token({"exp": 1}),
    "not yet valid": Token({"nbf": At(300)}),
    "issued in the future": Token({"iat": At(300)}),
    "clock 5 minutes fast": Token({"iat": At(300), "nbf": At(300), "exp": At(900)}),
    "clock 5 minutes slow": Token({"iat": At(-900), "nbf": At(-900), "exp": At(-300)}),
    "audience of another": Token({"aud": ["another"]}),
    "audiences of others": Token({"aud": ["a", "b"]}),
    "audience a number": Token({"aud": 7}),
    "audience with a number": Token({"aud": [7]}),
    "expiry a text": Token({"exp": At(600, is_text=True)}),
    "expiry true": Token({"exp": True}),
    "expiry an object": Token({"exp": {}}),
    "subject a number": Token({"sub": 7}),
    "token ID a number": Token({"jti": 7}),
    "private claims a text": Token({"kubernetes.io": "default"}),
    "private claims missing": Token({"kubernetes.io": None}),
    "namespace a number": Token(private={"namespace": 7}),
    "another issuer": Token({"iss": "https://other.example"}),
    "issuer with a slash": Token({"iss": f"{ISSUER}/"}),
    "no issuer": Token({"iss": None}),
    "another account": Token(private={"serviceaccount": {"name": "joe", "uid": "x"}}),
    "a strange account": Token(private={"serviceaccount": {"name": "../robot", "uid": "x"}}),
    "a strange namespace": Token(private={"namespace": "kube-system:x"}),
    "not a token": Token(form="abc"),
    "two parts": Token(form="{header}.{payload}"),
    "four parts": Token(form="{whole}.x"),
    "header not JSON": Token(form="{text}.{payload}.{signature}"),
    "payload not JSON": Token(form="{header}.{text}.{signature}"),
    "payload a list": Token(content=[]),
}


def _account(name: str, case: Token | tuple[Token, Difference]) -> Row[Ask]:
    token, other = case if isinstance(case, tuple) else (case, None)
    return Row(name, Ask(token=token, has_reason=other is None and name not in _LOOKED_UP), other)


ACCOUNTS = Table("Tokens of service accounts", [_account(*each) for each in _TOKENS.items()])

_WORDS = Difference("201", "401", "a token contains no spaces (RFC 6750)")
_BLANKS = Difference("401", "201", "several spaces are allowed between scheme and token (RFC 9110)")


def _field(value: str) -> Ask:
    return Ask(fields=(f"Authorization: {value}",))


HEADERS = Table(
    "Authorization fields and the token file",
    [
        Row("no credential", Ask()),
        Row("a token", _field("Bearer plain-token")),
        Row("a token twice in the file", _field("Bearer twice")),
        Row("a wrong token", _field("Bearer wrong")),
        Row("an empty token", _field("Bearer ")),
        Row("only the scheme", _field("Bearer")),
        Row("an empty field", _field("")),
        Row("the beginning of a token", _field("Bearer plain")),
        Row("a token with more", _field("Bearer plain-token2")),
        Row("a token in upper case", _field("Bearer PLAIN-TOKEN")),
        Row("a token of 20,000 characters", _field("Bearer " + "x" * 20_000)),
        Row("Basic", _field("Basic cGxhaW46dG9rZW4=")),
        Row("Basic with the token", _field("Basic plain-token")),
        Row("only the token", _field("plain-token")),
        Row("the scheme in lower case", _field("bearer plain-token")),
        Row("the scheme in upper case", _field("BEARER plain-token")),
        Row("a tab after the scheme", _field("Bearer\tplain-token")),
        Row("a token and a word", _field("Bearer plain-token x"), _WORDS),
        Row("two spaces", _field("Bearer  plain-token"), _BLANKS),
        Row("the token in another field", Ask(fields=("X-Authorization: Bearer plain-token",))),
        Row(
            "the token in the query",
            Ask(path=f"{WHOAMI}?access_token=plain-token"),
        ),
    ],
)

_JANE: dict[str, Any] = {"username": "jane", "groups": ["dev"]}


def _known(**changes: Any) -> Hook:
    return Hook({"authenticated": True, "user": {**_JANE, **changes}})


def _status(**status: Any) -> Hook:
    return Hook(status)


_GOOD = {"authenticated": True, "user": {"username": "jane"}}

_ANSWERS: Mapping[str, Hook | tuple[Hook, Difference]] = {
    "a user": _known(),
    "no": _status(authenticated=False),
    "an error": _status(authenticated=False, error="the directory is down"),
    "an error and a user": _status(**_GOOD, error="old"),
    "no status": Hook(body=b'{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1"}'),
    "no kind": Hook(body=b'{"status":{"authenticated":true,"user":{"username":"jane"}}}'),
    "another kind": Hook(_GOOD, {"kind": "SubjectAccessReview"}),
    "another version": Hook(_GOOD, {"apiVersion": "authentication.k8s.io/v1beta1"}),
    "the audience": _status(**_GOOD, audiences=["x", AUDIENCE]),
    "another audience": _status(**_GOOD, audiences=["another"]),
    "empty audiences": _status(**_GOOD, audiences=[]),
    "authenticated a text": _status(authenticated="true", user={"username": "jane"}),
    "authenticated null": _status(authenticated=None, user={"username": "jane"}),
    "authenticated a number": _status(authenticated=1, user={"username": "jane"}),
    "name a number": _known(username=7),
    "groups a text": _known(groups="dev"),
    "groups with a number": _known(groups=[7]),
    "extra a list": _known(extra=[]),
    "extra a text": _known(extra={"a": "b"}),
    "no groups": _known(groups=None),
    "a service account": _known(username="system:serviceaccount:a:b", groups=["system:serviceaccounts"]),
    "a user of the cluster": (_known(username="system:admin"), _RESERVED),
    "a group of the cluster": (_known(groups=["system:masters"]), _RESERVED),
    "Tower's administrators": (_known(groups=["tower:admins"]), _RESERVED),
    "an empty name": (_known(username=""), Difference("201", "401", "a user needs a name")),
    "300 groups": (
        _known(groups=[f"g{i}" for i in range(300)]),
        Difference(
            "201", "401", "256 groups are the limit: each is a header field of all requests to a cluster"
        ),
    ),
    "status 201": Hook(_GOOD, code=201),
    "status 302": Hook(code=302, body=b""),
    "status 401": Hook(code=401, body=b"{}"),
    "status 403": Hook(code=403, body=b"no"),
    "status 404": Hook(code=404, body=b""),
    "garbage": Hook(body=b"\x00\xff["),
    "a number in JSON": Hook(body=b"7"),
    "nothing": Hook(body=b""),
    "a Status": Hook(body=b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"m","code":403}'),
    "deep nesting": Hook(body=b'{"status":' + b"[" * 50_000),
    "8 MiB": Hook(body=b'{"status":{"error":"' + b"x" * (8 << 20) + b'"}}'),
}


def _reviewed(number: int, name: str, case: Hook | tuple[Hook, Difference]) -> Row[Ask]:
    hook, other = case if isinstance(case, tuple) else (case, None)
    return Row(name, Ask(token=f"hook-jane+{number}", hook=hook), other)


REVIEWS = Table(
    "Answers of a TokenReview webhook",
    [_reviewed(number, *each) for number, each in enumerate(_ANSWERS.items())],
)
