"""Wrong options and files of OpenID issuers."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.differential.rows import Difference, Row, Start, Table, start

_TOP = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration"}
_USERNAME = {"claim": "sub", "prefix": ""}
_URL, _CLIENT = "--oidc-issuer-url=https://a", "--oidc-client-id=a"

_WORDS = "Tower's text names the option, kube-apiserver's the field in a configuration file"


def _url(text: str, problem: str) -> Row[Start]:
    theirs, ours = f"URL {problem}", f"--oidc-issuer-url '{text}' is not valid: URL {problem}"
    return start(f"--oidc-issuer-url={text}", _CLIENT, other=Difference(theirs, ours, _WORDS))


OPTIONS_OF_ISSUERS = Table(
    "Options of OpenID issuers",
    [
        start(_URL),
        start(_CLIENT),
        start("--oidc-groups-claim=a"),
        start("--oidc-username-prefix=-"),
        start(_URL, "--authentication-config=/nowhere"),
        _url("http://a", "scheme must be https"),
        _url("https://a?b", "must not contain a query"),
        _url("https://a#b", "must not contain a fragment"),
        _url("https://u@a", "must not contain a username or password"),
        start(_URL, _CLIENT, "--oidc-signing-algs=HS256"),
        start(_URL, _CLIENT, "--oidc-signing-algs=none"),
    ],
)


def _entry(issuer: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    good = {"url": "https://a", "audiences": ["x"]}
    return {"issuer": {**good, **(issuer or {})}, "claimMappings": {"username": _USERNAME}, **fields}


def _mapped(**mappings: Any) -> dict[str, Any]:
    return _entry(claimMappings={"username": _USERNAME, **mappings})


def _extra(*entries: dict[str, str]) -> dict[str, Any]:
    return _mapped(extra=list(entries))


_VALUE = {"valueExpression": "claims.a"}

_FILES: dict[str, list[dict[str, Any]]] = {
    "no URL": [_entry({"url": ""})],
    "a URL without TLS": [_entry({"url": "http://a"})],
    "a URL with a user, a query and a fragment": [_entry({"url": "https://u:p@a?b#c"})],
    "a URL that is a number": [_entry({"url": 7})],
    "the issuer's URL as discovery URL": [_entry({"discoveryURL": "https://a/"})],
    "a discovery URL without TLS": [_entry({"discoveryURL": "http://b"})],
    "a discovery URL twice": [
        _entry({"discoveryURL": "https://b"}),
        _entry({"url": "https://c", "discoveryURL": "https://b"}),
    ],
    "no audience": [_entry({"audiences": []})],
    "audiences that are a text": [_entry({"audiences": "x"})],
    "an audience twice": [_entry({"audiences": ["a", "a"]})],
    "an empty audience": [_entry({"audiences": ["", "b"], "audienceMatchPolicy": "MatchAny"})],
    "an unknown match policy": [_entry({"audienceMatchPolicy": "All"})],
    "a CA that is not PEM": [_entry({"certificateAuthority": "x"})],
    "an issuer twice": [_entry(), _entry()],
    "65 issuers": [_entry()] * 65,
    "unknown fields": [_entry(a=1, b=2)],
    "an unknown field of the name": [_mapped(username={**_USERNAME, "x": 1})],
    "no source of the name": [_mapped(username={})],
    "a claim without a prefix": [_mapped(username={"claim": "a"})],
    "claim and expression": [_mapped(username={"claim": "a", "expression": "claims.a"})],
    "prefix and expression": [_mapped(username={"expression": "claims.a", "prefix": "p"})],
    "an email that may be wrong": [_mapped(username={"expression": "claims.email"})],
    "groups without a prefix": [_mapped(groups={"claim": "a"})],
    "a UID with claim and expression": [_mapped(uid={"claim": "a", "expression": "claims.a"})],
    "an extra key without a domain": [_extra({"key": "A", **_VALUE})],
    "reserved and incomplete extra": [_extra({"key": "a.k8s.io/b", **_VALUE}, {"key": "a.b/c"})],
    "empty extra keys": [_extra({"key": "", **_VALUE}, {"key": "a.b/", **_VALUE})],
    "an extra key twice": [_extra(*[{"key": "a.b/c", **_VALUE}] * 2)],
    "empty rules for claims": [
        _entry(claimValidationRules=[{}, {"claim": "a", "message": "b"}, {"claim": "a"}])
    ],
    "expression and value": [_entry(claimValidationRules=[{"expression": "true", "requiredValue": "x"}])],
    "a rule twice": [_entry(claimValidationRules=[{"expression": "true"}] * 2)],
    "a rule with claim and expression": [_entry(claimValidationRules=[{"claim": "a", "expression": "true"}])],
    "empty rules for users": [
        _entry(userValidationRules=[{}, *[{"expression": "user.username == 'a'"}] * 2])
    ],
}


def _file(note: str, entries: list[dict[str, Any]]) -> Row[Start]:
    text = json.dumps({**_TOP, "jwt": entries})
    return Row(note, Start(["--authentication-config={d}/config"], {"config": text}))


ISSUERS = Table("Files of OpenID issuers", [_file(*each) for each in _FILES.items()])
