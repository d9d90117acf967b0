"""Fields of impersonation, and questions for the own rights; the user jane has those of `RULES`."""

from __future__ import annotations

from typing import Any

from tests.integration.differential.asks import WHOAMI, Ask
from tests.integration.differential.rows import Difference, Row, Table

RBAC = "rbac.authorization.k8s.io"
ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
ACCOUNT = "system:serviceaccount:build:ci"
BOB = "Impersonate-User: bob"

_AUTHENTICATION = "authentication.k8s.io"


def _may_be(plural: str, group: str = "", *names: str) -> dict[str, Any]:
    named = {"resourceNames": list(names)} if names else {}
    return {"verbs": ["impersonate"], "apiGroups": [group], "resources": [plural], **named}


RULES = (
    _may_be("users", "", "bob", "eve"),
    _may_be("groups", "", "qa", "ops"),
    _may_be("serviceaccounts", "", "ci"),
    _may_be("uids", _AUTHENTICATION, "5"),
    _may_be("userextras/scopes", _AUTHENTICATION),
    # constrained impersonation, which Tower does not know
    {"verbs": ["impersonate:user-info"], "apiGroups": [_AUTHENTICATION], "resources": ["users"]}
    | {"resourceNames": ["dan"]},
    {
        "verbs": ["impersonate-on:user-info:create"],
        "apiGroups": [_AUTHENTICATION],
        "resources": ["selfsubjectreviews"],
    },
    {
        "verbs": ["create", "update"],
        "apiGroups": [RBAC],
        "resources": ["clusterroles", "clusterrolebindings"],
    },
    {"verbs": ["get"], "apiGroups": [RBAC], "resources": ["roles"], "resourceNames": ["one"]},
    {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
)


def _row(*fields: str, other: Difference | None = None) -> Row[Ask]:
    name = ", ".join(f"`{each.rstrip()}`" for each in fields) or "no field"
    return Row(name, Ask(user="jane", fields=fields), other)


def _kept(why: str, theirs: str = "201", ours: str = "403") -> Difference:
    return Difference(theirs, ours, why)


_TWO = _kept("two values are ambiguous; kube-apiserver uses the first")
_EMPTY = _kept("an identity field without a user is an error, also if it is empty", ours="400")
_NO_GROUP = _kept('a group needs a name; kube-apiserver requires the right for the group `""`', "403", "400")
_NEVER = "fields that resemble identity fields are never dropped silently"

IMPERSONATION = Table(
    "Impersonation",
    [
        _row(),
        _row(BOB),
        _row("impersonate-user: eve"),
        _row("Impersonate-User: carl"),
        _row("Impersonate-User: Bob"),
        _row("Impersonate-User: <bob>"),
        _row('Impersonate-User: "bob"'),
        _row("Impersonate-User: b\u00f6b"),
        _row("Impersonate-User: bob,eve"),
        _row("Impersonate-User: jane"),
        _row("Impersonate-User: bob%20x"),
        _row(BOB, "Impersonate-Group: qa"),
        _row(BOB, "Impersonate-Group: qa", "Impersonate-Group: ops"),
        _row(BOB, "Impersonate-Group: qa", "Impersonate-Group: qa"),
        _row(BOB, "Impersonate-Group: dev"),
        _row(BOB, "Impersonate-Group: qa", "Impersonate-Group: dev"),
        _row(BOB, "Impersonate-Group: qa,ops"),
        _row(BOB, "Impersonate-Group: system:masters"),
        _row(BOB, "Impersonate-Group: system:authenticated"),
        _row(BOB, "Impersonate-Group: system:unauthenticated"),
        _row("Impersonate-User: carl", "Impersonate-Group: dev"),
        _row(BOB, "Impersonate-Uid: 5"),
        _row(BOB, "Impersonate-Uid: 6"),
        _row(BOB, "Impersonate-Uid: 6", "Impersonate-Group: dev"),
        _row(BOB, "Impersonate-Extra-Scopes: a"),
        _row(BOB, "Impersonate-Extra-scopes: a", "Impersonate-Extra-scopes: b"),
        _row(BOB, "Impersonate-Extra-reason: a"),
        _row(BOB, "Impersonate-Extra-Acme.org%2fTeam: a"),
        _row(BOB, "Impersonate-Extra-reason: a", "Impersonate-Group: dev"),
        _row(BOB, "Impersonate-Extra-scopes: a", "Impersonate-Uid: 6"),
        _row(f"Impersonate-User: {ACCOUNT}"),
        _row("Impersonate-User: system:serviceaccount:build:other"),
        _row("Impersonate-User: system:serviceaccount:build"),
        _row("Impersonate-User: system:serviceaccount:Build:ci"),
        _row(f"Impersonate-User: {ACCOUNT}", "Impersonate-Group: qa"),
        _row("Impersonate-User: system:admin"),
        _row("Impersonate-User: system:anonymous"),
        _row("Impersonate-User: system:node:a"),
        _row("Impersonate-Group: qa"),
        _row("Impersonate-Group: qa", "Impersonate-Group: ops"),
        _row("Impersonate-Uid: 5"),
        _row("Impersonate-Extra-scopes: a"),
        _row("Impersonate-Group: "),
        _row("Impersonate-Extra-scopes: "),
        _row(BOB, "Impersonate-Uid: "),
        _row(BOB, "Impersonate-Extra-scopes: "),
        _row("Impersonate-Extra-scopes: a", "Impersonate-Uid: 5", "Impersonate-Group: qa"),
        _row(
            "Impersonate-User: dan",
            other=_kept(
                "constrained impersonation is beta in 1.36: kube-apiserver checks one right for the identity "
                "and one for the action; if either is missing, it falls back to the verb `impersonate`; "
                "Tower always checks only that verb: ignoring the new rights can only deny more, and their "
                "verbs may still change"
            ),
        ),
        _row("Impersonate-User: ", other=_EMPTY),
        _row("Impersonate-Uid: ", other=_EMPTY),
        _row(BOB, "Impersonate-Group: ", other=_NO_GROUP),
        _row(BOB, "Impersonate-Group: qa", "Impersonate-Group: ", other=_NO_GROUP),
        _row(BOB, "Impersonate-User: eve", other=_TWO),
        _row(BOB, "Impersonate-Uid: 5", "Impersonate-Uid: 6", other=_TWO),
        _row(BOB, "Impersonate-Foo: x", other=_kept(_NEVER)),
        _row("Impersonate_User: bob", other=_kept("some servers read it as `Impersonate-User`")),
        _row(BOB, "X-Remote-User: eve", other=_kept(_NEVER)),
        _row("X-Remote-Group: system:masters", other=_kept(_NEVER)),
        _row(
            BOB,
            "Impersonate-Extra-%53copes: a",
            other=_kept("an escaped key is in lower case, too, as clusters get it from Tower", "403", "201"),
        ),
        _row(BOB, "Impersonate-Extra-: a", other=_kept("the key of an extra field cannot be empty", "403")),
    ],
)


def _asks(*fields: str, **spec: Any) -> Row[Ask]:
    ((kind, given),) = spec.items()
    words = [f"{key} {value}" for key, value in given.items()]
    name = ", ".join([*words, *(f"`{each}`" for each in fields)])
    return Row(
        name, Ask(path=ACCESS, body={"spec": {f"{kind}Attributes": given}}, user="jane", fields=fields)
    )


def _invalid(note: str, spec: Any, other: Difference | None = None, **meta: str) -> Row[Ask]:
    return Row(note, Ask(path=ACCESS, body={"metadata": meta, "spec": spec}, user="jane"), other)


def _selecting(**selectors: Any) -> dict[str, Any]:
    return {"resourceAttributes": {"verb": "list", "resource": "roles", "group": RBAC, **selectors}}


_METRICS = {"nonResourceAttributes": {"verb": "get", "path": "/metrics"}}


def _object(verb: str, plural: str, **more: str) -> dict[str, str]:
    return {"verb": verb, "group": RBAC, "resource": plural, **more}


RIGHTS = Table(
    "Reviews of the own rights",
    [
        _asks(resource=_object("create", "clusterroles")),
        _asks(resource=_object("update", "clusterrolebindings", name="x")),
        _asks(resource=_object("delete", "clusterroles", name="x")),
        _asks(resource=_object("get", "roles", name="one", namespace="a")),
        _asks(resource=_object("get", "roles", name="two", namespace="a")),
        _asks(resource=_object("get", "roles", namespace="a")),
        _asks(resource=_object("list", "rolebindings", namespace="b")),
        _asks(nonResource={"verb": "get", "path": "/metrics"}),
        _asks(nonResource={"verb": "get", "path": "/apis"}),
        _asks(nonResource={"verb": "get", "path": "/debug"}),
        _asks(resource={"verb": "impersonate", "resource": "users", "name": "bob"}),
        _asks(resource={"verb": "impersonate", "resource": "users", "name": "carl"}),
        _asks(BOB, resource=_object("create", "clusterroles")),
        _asks(BOB, nonResource={"verb": "get", "path": "/api"}),
        _invalid("no attributes", {}),
        _invalid("both attributes", {**_METRICS, "resourceAttributes": {"verb": "get"}}),
        _invalid("an empty field selector", _selecting(fieldSelector={})),
        _invalid("an empty label selector", _selecting(labelSelector={})),
        _invalid(
            "a label selector with both forms",
            _selecting(
                labelSelector={
                    "rawSelector": "a=b",
                    "requirements": [{"key": "a", "operator": "In", "values": ["b"]}],
                }
            ),
        ),
        _invalid("with a namespace", _METRICS, namespace="x"),
        _invalid(
            "with a name",
            _METRICS,
            _kept("kube-apiserver's text also has the managed fields", "422", "422"),
            name="x",
        ),
        _invalid(
            "attributes that are a string",
            {"resourceAttributes": "x"},
            _kept("Tower's text does not name types of Go", "400", "400"),
        ),
        Row(
            "`?fieldValidation=Strict` and an unknown field",
            Ask(path=f"{WHOAMI}?fieldValidation=Strict", body={"foo": 1}, user="jane"),
            _kept("Tower ignores unknown fields of reviews", "400", "201"),
        ),
        Row(
            "a path that does not exist",
            Ask("GET", "/foo", user="jane"),
            _kept("Tower's paths are documented, so a 404 discloses nothing", "403", "404"),
        ),
        *(
            Row(f"`?{query}`", Ask(path=f"{WHOAMI}?{query}", user="jane"))
            for query in ("dryRun=All", "dryRun=Some", "dryRun=All&dryRun=Some", "fieldValidation=Foo")
        ),
    ],
)
