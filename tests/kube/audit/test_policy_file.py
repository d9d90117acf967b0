"""Tests of `tower.kube.audit.policy_file`; `tests.integration.test_bad_options` compares with upstream."""

from __future__ import annotations

import re

from twisted.trial.unittest import SynchronousTestCase

from tests.fakes.audits import HEAD
from tower.kube.audit.policy_file import parse_audit_policy, strict_errors


class ParseTests(SynchronousTestCase):
    """Tests of `parse_audit_policy`."""

    def error(self, text: str) -> str:
        """Return the error of a file."""
        return str(self.assertRaises(ValueError, parse_audit_policy, text.encode()))

    def test_values(self) -> None:
        """Wrong values have upstream's texts, all at once."""
        found = self.error(
            HEAD + "omitStages: [X]\nrules:\n- level: Foo\n  nonResourceURLs: ['healthz', '/a*b']\n"
            "  resources: [{group: A}, {group: '', resourceNames: [a]}]\n- level: ''\n"
        )
        for text in (
            (
                'omitStages[0]: Invalid value: "X": allowed stages are '
                "RequestReceived,ResponseStarted,ResponseComplete,Panic, "
            ),
            (
                'rules[0].level: Unsupported value: "Foo": supported values: "None", "Metadata", "Request", '
                '"RequestResponse", '
            ),
            (
                'rules[0].nonResourceURLs[0]: Invalid value: "healthz": non-resource URL rules must begin '
                "with a '/' character"
            ),
            (
                "rules[0].nonResourceURLs[1]: Invalid value: \"/a*b\": non-resource URL wildcards '*' must "
                "be the final character of the rule"
            ),
            'rules[0].resources.group: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of',
            (
                'rules[0].resources.resourceNames: Invalid value: ["a"]: using resourceNames requires at '
                "least one resource"
            ),
            (
                'rules[0].nonResourceURLs: Invalid value: ["healthz","/a*b"]: rules cannot apply to both '
                "regular resources and non-resource URLs"
            ),
            "rules[1].level: Required value]",
        ):
            self.assertIn(text, found)
        self.assertTrue(found.startswith("[omitStages"))
        self.assertEqual(self.error(HEAD + "rules:\n- users: [a]\n- level: Foo\n").count("rules["), 2)

    def test_types(self) -> None:
        """Values of a wrong type are errors with the field."""
        for text, kind, field, wanted in (
            ("rules: foo", "string", "Policy.rules", "[]v1.PolicyRule"),
            ("rules: [{level: 3}]", "number", "PolicyRule.rules.level", "v1.Level"),
            ("rules: [{level: None, users: foo}]", "string", "PolicyRule.rules.users", "[]string"),
            ("rules: [{level: None, users: [true]}]", "bool", "PolicyRule.rules.users", "string"),
            ("rules: [foo]", "string", "Policy.rules", "v1.PolicyRule"),
            ("rules: [{omitManagedFields: 'yes'}]", "string", "PolicyRule.rules.omitManagedFields", "bool"),
            ("metadata: 3", "number", "Policy.metadata", "v1.ObjectMeta"),
        ):
            self.assertEqual(
                self.error(HEAD + text),
                f"failed decoding: json: cannot unmarshal {kind} into Go struct field {field} of type "
                f"{wanted}",
            )

    def test_files(self) -> None:
        """Files that have no policy are errors with the cure."""
        version, kind = "apiVersion: audit.k8s.io/v1\n", "kind: Policy\n"
        rules = "rules: [{level: None}]\n"
        for text, error in (
            (
                "",
                "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy: set apiVersion",
            ),
            (kind + rules, "unknown group version field"),
            (
                version + "kind: Event\n" + rules,
                'no kind "Event" is registered for version "audit.k8s.io/v1"',
            ),
            ("apiVersion: audit.k8s.io/v1beta1\n" + kind + rules, 'for version "audit.k8s.io/v1beta1"'),
            (HEAD, "loaded illegal policy with 0 rules"),
            (HEAD + "rules: [", "failed decoding: yaml: line 3: "),
            ("foo", "couldn't get version/kind"),
            ("a: &a [x]\nb: *a\n", "aliases are not supported"),
            ("[" * 1000, "failed decoding: "),
            (HEAD + "rules:\n- level: \udcff".encode("utf-8", "surrogateescape").decode("latin-1"), "rules"),
        ):
            self.assertRegex(self.error(text), re.escape(error))
        self.assertIn("UTF-8", str(self.assertRaises(ValueError, parse_audit_policy, b"\xff")))

    def test_lenient(self) -> None:
        """As upstream, the kind may be missing, and unknown fields are ignored but reported."""
        text = b"apiVersion: audit.k8s.io/v1\nmetadata: {name: x}\nfoo: 1\nrules:\n- level: None\n  bar: 2\n"
        text += b"  resources: [{group: '', baz: 3}]\n"
        self.assertEqual(len(parse_audit_policy(text).rules), 1)
        self.assertEqual(
            strict_errors(text),
            [
                'unknown field "foo"',
                'unknown field "rules[0].bar"',
                'unknown field "rules[0].resources[0].baz"',
            ],
        )
        self.assertEqual(strict_errors(f"{HEAD}rules: [{{level: None}}]".encode()), [])

    def test_repeated(self) -> None:
        """As upstream, the last value of a repeated key counts, and each repetition is reported."""
        text = f"{HEAD}rules:\n- level: Metadata\n  users: [a]\n  level: None\n  users: [b]\nkind: Policy\n"
        (rule,) = parse_audit_policy(text.encode()).rules
        self.assertEqual((rule.decision.level, rule.users), ("None", {"b"}))
        self.assertEqual(
            strict_errors(text.encode()),
            [
                'line 6: key "level" already set in map',
                'line 7: key "users" already set in map',
                'line 8: key "kind" already set in map',
            ],
        )
