"""Tests of `tower.kube.access.abac`; `tests.integration.test_authorizers` has a real API server."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from tower.errors import ConfigurationError
from tower.kube.access.abac import LINE_LIMIT, Policy, parse_policies
from tower.kube.request_info import RequestInfo

V1BETA1 = "abac.authorization.kubernetes.io/v1beta1"
NAMES = st.sampled_from(["", "*", "a", "b"])


def versioned(**spec: object) -> bytes:
    """Return a line of the version v1beta1."""
    return json.dumps({"apiVersion": V1BETA1, "kind": "Policy", "spec": spec}).encode()


class ParseTests(SynchronousTestCase):
    """Lines of a file."""

    def one(self, line: bytes) -> Policy:
        """Return the policy of a file with one line."""
        (found,) = parse_policies(line, "f").policies
        return found

    def test_versions(self) -> None:
        """Lines of the old version grant more; ``*`` stands for authenticated users in both."""
        everyone = "system:authenticated"
        for line, expected in (
            (
                b"{}",
                Policy(group=everyone, api_group="*", resource="*", namespace="*", non_resource_path="*"),
            ),
            (
                b"null",
                Policy(group=everyone, api_group="*", resource="*", namespace="*", non_resource_path="*"),
            ),
            (b'{"user":"a","namespace":"n"}', Policy("a", "", False, "*", "*", "n")),
            (b'{"group":"*","resource":"r"}\r', Policy("", everyone, False, "*", "r", "*")),
            (b"user: a", Policy("a", "", False, "*", "*", "*", "*")),
            (versioned(user="*", group="g", resource="r"), Policy("", everyone, resource="r")),
            (versioned(user="a", readonly=True, apiGroup="*"), Policy("a", readonly=True, api_group="*")),
            (versioned(user="a", nonResourcePath="/x/*", unknown=1), Policy("a", non_resource_path="/x/*")),
        ):
            self.assertEqual(self.one(line), expected, line)

    def test_file(self) -> None:
        """Blank lines and comments are skipped; lines of the old version are counted."""
        found = parse_policies(b"# c\n\n  \n" + versioned(user="a") + b'\n{"user":"b"}\n', "f")
        self.assertEqual(([each.user for each in found.policies], found.unversioned), (["a", "b"], 1))
        explicit = b'{"apiVersion":"abac.authorization.kubernetes.io/v0","kind":"Policy","user":"x"}'
        self.assertEqual(parse_policies(explicit, "f").unversioned, 0)

    def test_errors(self) -> None:
        """An error names the file, the line with its number, and the cause, as upstream's."""
        for line, cause in (
            (b'{"user":5}', "json: cannot unmarshal number into Go struct field Policy.user of type string"),
            (
                versioned(readonly="yes"),
                "json: cannot unmarshal string into Go struct field PolicySpec.spec.readonly of type bool",
            ),
            (
                versioned(user=["a"]),
                "json: cannot unmarshal array into Go struct field PolicySpec.spec.user of type string",
            ),
            (
                b'{"apiVersion":"%b","kind":"Policy","spec":5}' % V1BETA1.encode(),
                "json: cannot unmarshal number into Go struct field Policy.spec of type v1beta1.PolicySpec",
            ),
            (
                b'{"apiVersion":5}',
                "json: cannot unmarshal number into Go struct field .apiVersion of type string",
            ),
            (b'{"apiVersion":"foo/v1","kind":"Bar"}', 'no kind "Bar" is registered for version "foo/v1"'),
            (
                b'{"kind":"Bar"}',
                'no kind "Bar" is registered for version "abac.authorization.kubernetes.io/v0"',
            ),
            (b'{"apiVersion":"%b"}' % V1BETA1.encode(), "the kind is missing"),
            (b"x y", "couldn't get version/kind; json parse error: json: cannot unmarshal string"),
            (b"[1]", "couldn't get version/kind; json parse error: json: cannot unmarshal array"),
            (b'{"user":"a",}', "couldn't get version/kind; json parse error: "),
            (b'{"user":NaN}', "couldn't get version/kind; json parse error: invalid value NaN"),
            (b"{" * 50_000, "couldn't get version/kind; json parse error: "),
            (b"user: bob: x", "yaml: "),
            (
                versioned(cluster=["a"]),
                "json: cannot unmarshal array into Go struct field PolicySpec.spec.cluster of type string",
            ),
            (versioned(cluster="al*"), 'spec.cluster: "al*": must be the name of a cluster, or * for all'),
            (b'{"user":"a","cluster":"alpha"}', "the field cluster is only supported in spec"),
        ):
            with self.assertRaises(ConfigurationError) as caught:
                parse_policies(b"# comment\n" + line, "policies.jsonl")
            text = str(caught.exception)
            self.assertIn("error reading policy file policies.jsonl, line 2: ", text)
            self.assertIn(cause, text)
            self.assertLess(len(text), 700)

    def test_long_line(self) -> None:
        """A line of 64 KiB is too long."""
        with self.assertRaisesRegex(ConfigurationError, "line 1 has more than 65535 B"):
            parse_policies(b"#" * LINE_LIMIT, "f")

    @given(st.binary(max_size=60))
    def test_any_content(self, content: bytes) -> None:
        """Any content is a list of policies or the one error."""
        try:
            parse_policies(content, "f")
        except ConfigurationError as e:
            self.assertIn("error reading policy file f", str(e))


class MatchTests(SynchronousTestCase):
    """Policies and requests."""

    @given(
        st.builds(Policy, NAMES, NAMES, st.booleans(), NAMES, NAMES, NAMES),
        st.sampled_from(["a", "b"]),
        st.lists(st.sampled_from(["a", "b"])),
        st.builds(
            RequestInfo,
            st.sampled_from(["get", "delete"]),
            st.just("/"),
            NAMES,
            st.just("v1"),
            NAMES,
            NAMES,
            is_resource=st.just(True),
        ),
    )
    def test_resources(self, policy: Policy, user: str, groups: list[str], info: RequestInfo) -> None:
        """Every field that is given must match; without user and group nothing does."""
        expected = (
            bool(policy.user or policy.group)
            and (not policy.user or policy.user in ("*", user))
            and (not policy.group or policy.group == "*" or policy.group in groups)
            and (info.verb == "get" or not policy.readonly)
            and all(
                own in ("*", asked)
                for own, asked in (
                    (policy.namespace, info.namespace),
                    (policy.resource, info.resource),
                    (policy.api_group, info.group),
                )
            )
        )
        self.assertEqual(policy.matches(user, groups, info, "alpha"), expected)

    def test_clusters(self) -> None:
        """A line with a cluster applies in this cluster only, others in all clusters."""
        for more, clusters in (
            ({"cluster": "alpha"}, {"alpha"}),
            ({"cluster": "*"}, {"alpha", "beta"}),
            ({"cluster": ""}, {"alpha", "beta"}),
            ({}, {"alpha", "beta"}),
        ):
            found = parse_policies(versioned(user="a", nonResourcePath="*", **more), "f")
            allowed = {
                name for name in ("alpha", "beta") if found.allows("a", (), RequestInfo("get", "/"), name)
            }
            self.assertEqual(allowed, clusters, more)

    def test_paths(self) -> None:
        """A path matches exactly, or what precedes the asterisks at its end."""
        for pattern, path, expected in (
            ("*", "/a", True),
            ("/a", "/a", True),
            ("/a", "/a/", False),
            ("/a/*", "/a/", True),
            ("/a/*", "/a", False),
            ("/a**", "/ab", True),
            ("/*/a", "/b/a", False),
            ("", "", True),
            ("", "/", False),
        ):
            policy = Policy("a", non_resource_path=pattern)
            allowed = policy.matches("a", (), RequestInfo("get", path), "alpha")
            self.assertEqual(allowed, expected, (pattern, path))
