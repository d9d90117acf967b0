"""Wrong files of policies: ABAC and audit."""

from __future__ import annotations

from collections.abc import Mapping

from tests.integration.differential.rows import STARTS, Difference, Row, Start, Table

_ABAC = "abac.authorization.kubernetes.io"
_HEAD = f'"apiVersion":"{_ABAC}/v1beta1","kind":"Policy"'
_JSON = Difference(
    "couldn't get version/kind; json parse error: ",
    "couldn't get version/kind; json parse error: ",
    "the beginning is the same; then the text is that of Go's or Python's JSON parser",
)

#: Lines of a file: those before the last are good.
_LINES: Mapping[str, Difference | None] = {
    '{"user":7}': None,
    '{"user":["a"]}': None,
    '{"readonly":"true"}': None,
    '{"apiVersion":3}': None,
    f'{{{_HEAD},"spec":{{"user":7}}}}': None,
    f'{{{_HEAD},"spec":{{"user":"a","readonly":"yes"}}}}': None,
    f'{{{_HEAD},"spec":{{"user":"a","group":{{}}}}}}': None,
    f'{{{_HEAD},"spec":[]}}': None,
    f'{{{_HEAD},"spec":"x"}}': None,
    f'{{"apiVersion":"{_ABAC}/v2","kind":"Policy","spec":{{}}}}': None,
    f'{{"apiVersion":"{_ABAC}/v1beta1","kind":"Role","spec":{{}}}}': None,
    '{"apiVersion":"v1","kind":"Policy"}': None,
    '{"apiVersion":"a/b/c","kind":"Policy"}': None,
    '{"user":"a"}\n# a comment\n\n{"user":7}': None,
    "x": _JSON,
    "{": _JSON,
    "[]": _JSON,
    "7": _JSON,
    '"a"': _JSON,
    '{"user":"a"}x': _JSON,
    '{"user":"a"} {"user":"b"}': _JSON,
    '{"user":"a"}\n{"user":': _JSON,
    "user: [": Difference(
        "did not find expected node content", "the line is not valid", "another YAML library"
    ),
    f'{{"apiVersion":"{_ABAC}/v1beta1"}}': Difference(
        "unknown conversion", "the kind is missing", "kube-apiserver's text does not name the mistake"
    ),
}


def _line(text: str, other: Difference | None) -> Row[Start]:
    shown = text.replace("\n", " / ").replace(f"{_ABAC}/", "")
    options = "--authorization-mode=ABAC", "--authorization-policy-file={d}/lines"
    return Row(f"`{shown}`", Start(options, {"lines": text}), other)


ABAC_FILES = Table("ABAC files", [_line(text, other) for text, other in _LINES.items()])

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def _rules(text: str) -> str:
    return f"{HEAD}rules:\n- {text}\n"


def _policy(note: str, text: str, other: Difference | None = None) -> Row[Start]:
    options = "--audit-policy-file={d}/policy", "--audit-log-path={d}/log"
    return Row(note, Start(options, {"policy": text}), other)


AUDIT_POLICIES = Table(
    "Audit policies",
    [
        _policy("no rules", HEAD),
        _policy("an unknown level", _rules("level: Foo")),
        _policy("a level in lower case", _rules("level: metadata")),
        _policy("no level", _rules("users: [a]")),
        _policy("a level that is a number", _rules("level: 3")),
        _policy("unknown stages of the policy", f"{HEAD}omitStages: [Foo]\nrules:\n- level: None\n"),
        _policy("unknown stages of a rule", _rules("level: None\n  omitStages: [Bar, Panic]")),
        _policy(
            "unknown stages of both",
            f"{HEAD}omitStages: [Foo]\nrules:\n- level: None\n  omitStages: [Bar, Panic]\n",
        ),
        _policy("a path without a slash", _rules("level: None\n  nonResourceURLs: [healthz]")),
        _policy("a star within a path", _rules("level: None\n  nonResourceURLs: ['/a*b']")),
        _policy("an empty path", _rules("level: None\n  nonResourceURLs: ['']")),
        _policy(
            "several wrong paths",
            _rules("level: None\n  nonResourceURLs: ['healthz', '/a*b', '*', '/x/*/y*', '']"),
        ),
        _policy(
            "paths and namespaces", _rules("level: None\n  nonResourceURLs: ['/healthz']\n  namespaces: [a]")
        ),
        _policy(
            "paths and resources",
            _rules("level: None\n  nonResourceURLs: ['/healthz']\n  resources: [{group: ''}]"),
        ),
        _policy("a group with its version", _rules("level: None\n  resources: [{group: a.example/v1}]")),
        _policy("a group in upper case", _rules("level: None\n  resources: [{group: Foo}]")),
        _policy("a group with a dash first", _rules("level: None\n  resources: [{group: -a}]")),
        _policy(
            "names without resources",
            _rules("level: None\n  resources: [{group: '', resourceNames: [a, b]}]"),
        ),
        _policy(
            "many mistakes",
            f"{HEAD}omitStages: [X]\nrules:\n- level: Foo\n  nonResourceURLs: ['healthz']\n"
            "  resources: [{group: A}]\n- level: ''\n",
        ),
        _policy("rules that are a text", f"{HEAD}rules: foo\n"),
        _policy("a rule that is a text", _rules("foo")),
        _policy("users that are a text", _rules("level: None\n  users: foo")),
        _policy("a flag that is a text", _rules("level: None\n  omitManagedFields: 'yes'")),
        _policy("an empty file", ""),
        _policy("no version", "kind: Policy\nrules:\n- level: None\n"),
        _policy("another kind", "apiVersion: audit.k8s.io/v1\nkind: Foo\nrules:\n- level: None\n"),
        _policy(
            "an old version",
            "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules:\n- level: None\n",
        ),
        _policy(
            "YAML that does not end",
            f"{HEAD}rules: [\n",
            Difference(
                "failed decoding: yaml: line ",
                "failed decoding: yaml: line ",
                "the beginning is the same; then the text is that of another YAML library",
            ),
        ),
        _policy(
            "a list",
            "- a\n",
            Difference(
                "json: cannot unmarshal array into Go value",
                "json: cannot unmarshal array",
                "Tower's text does not name types of Go",
            ),
        ),
        _policy(
            "a second YAML document",
            f"{_rules('level: None')}---\n{_rules('level: Metadata')}",
            Difference(STARTS, "found another document", "its rules would silently have no effect"),
        ),
    ],
)
