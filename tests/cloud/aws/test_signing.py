"""Signature Version 4 against the signatures that AWS published."""

from __future__ import annotations

import re
from calendar import timegm

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import TestCase

from tower.cloud.aws.signing import AWSCredentials, Scope, canonical_request, sign, signing_key

# The key, the day and the scope of the suite.
EXAMPLE = AWSCredentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
THEN = float(timegm((2015, 8, 30, 12, 36, 0)))
SCOPE = Scope("us-east-1", "service")
HOST = "https://example.amazonaws.com"
FORM = ("Content-Type", "application/x-www-form-urlencoded")
ALL = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SESSION = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267"

# By name: method, path and query as sent, fields except Host and X-Amz-Date, body, signed fields, signature.
SUITE = {
    "get-vanilla": (
        *("GET", "/", (), b"", "host;x-amz-date"),
        "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
    ),
    "post-vanilla": (
        *("POST", "/", (), b"", "host;x-amz-date"),
        "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    "get-vanilla-empty-query-key": (
        *("GET", "/?Param1=value1", (), b"", "host;x-amz-date"),
        "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
    ),
    "get-vanilla-query-order-key": (
        *("GET", "/?Param1=value2&Param1=Value1", (), b"", "host;x-amz-date"),
        "eedbc4e291e521cf13422ffca22be7d2eb8146eecf653089df300a15b2382bd1",
    ),
    "get-vanilla-query-order-key-case": (
        *("GET", "/?Param2=value2&Param1=value1", (), b"", "host;x-amz-date"),
        "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    "get-vanilla-query-order-value": (
        *("GET", "/?Param1=value2&Param1=value1", (), b"", "host;x-amz-date"),
        "5772eed61e12b33fae39ee5e7012498b51d56abc0abb7c60486157bd471c4694",
    ),
    "get-vanilla-query-order-encoded": (
        *("GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1", (), b"", "host;x-amz-date"),
        "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
    ),
    "get-vanilla-query-unreserved": (
        *("GET", f"/?{ALL}={ALL}", (), b"", "host;x-amz-date"),
        "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
    ),
    "get-vanilla-utf8-query": (
        *("GET", "/?\u1234=bar", (), b"", "host;x-amz-date"),
        "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
    ),
    "get-utf8": (
        *("GET", "/\u1234", (), b"", "host;x-amz-date"),
        "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
    ),
    "get-space": (
        *("GET", "/example space/", (), b"", "host;x-amz-date"),
        "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
    ),
    "get-unreserved": (
        *("GET", f"/{ALL}", (), b"", "host;x-amz-date"),
        "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    "get-header-key-duplicate": (
        "GET",
        "/",
        (("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")),
        *(b"", "host;my-header1;x-amz-date"),
        "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
    ),
    "get-header-value-order": (
        "GET",
        "/",
        tuple(("My-Header1", value) for value in ("value4", "value1", "value3", "value2")),
        *(b"", "host;my-header1;x-amz-date"),
        "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
    ),
    "get-header-value-trim": (
        "GET",
        "/",
        (("My-Header1", " value1"), ("My-Header2", ' "a   b   c"')),
        *(b"", "host;my-header1;my-header2;x-amz-date"),
        "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
    ),
    "post-header-key-sort": (
        *("POST", "/", (("My-Header1", "value1"),), b"", "host;my-header1;x-amz-date"),
        "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c",
    ),
    "post-header-value-case": (
        *("POST", "/", (("My-Header1", "VALUE1"),), b"", "host;my-header1;x-amz-date"),
        "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d",
    ),
    "post-vanilla-query": (
        *("POST", "/?Param1=value1", (), b"", "host;x-amz-date"),
        "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11",
    ),
    "post-x-www-form-urlencoded": (
        *("POST", "/", (FORM,), b"Param1=value1", "content-type;host;x-amz-date"),
        "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
    ),
}


class SuiteTest(TestCase):
    """AWS's test suite for Signature Version 4, and the examples of its guides."""

    def test_suite(self) -> None:
        """Every request of the suite gets the signature that the suite has for it."""
        for name, (method, target, headers, body, signed, signature) in SUITE.items():
            added = dict(sign(EXAMPLE, SCOPE, THEN, method, HOST + target, headers, body))
            wanted = (
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
                f"SignedHeaders={signed}, Signature={signature}"
            )
            self.assertEqual((name, added["Authorization"]), (name, wanted))
            self.assertEqual(added["X-Amz-Date"], "20150830T123600Z")

    def test_paths_that_are_made_shorter(self) -> None:
        """Dots and double slashes of a path are resolved before it is signed (suite: normalize-path)."""
        vanilla = SUITE["get-vanilla"][-1]
        example = "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"
        for target, signature in {
            "//": vanilla,
            "/example/..": vanilla,
            "/example1/example2/../..": vanilla,
            "/./": vanilla,
            "/./example": example,
        }.items():
            added = dict(sign(EXAMPLE, SCOPE, THEN, "GET", HOST + target))
            self.assertEqual((target, added["Authorization"][-64:]), (target, signature))

    def test_session_token(self) -> None:
        """A session's token is sent and signed (suite: get-vanilla-with-session-token)."""
        credentials = AWSCredentials(EXAMPLE.access_key, EXAMPLE.secret_key, SESSION)
        added = dict(sign(credentials, SCOPE, THEN, "GET", HOST + "/"))
        self.assertEqual(added["X-Amz-Security-Token"], SESSION)
        self.assertIn("SignedHeaders=host;x-amz-date;x-amz-security-token,", added["Authorization"])
        self.assertEqual(
            added["Authorization"][-64:], "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"
        )

    def test_list_users(self) -> None:
        """The guide's worked example, ListUsers of IAM, has the documented signature."""
        added = dict(
            sign(
                EXAMPLE,
                Scope("us-east-1", "iam"),
                THEN,
                "GET",
                "https://iam.amazonaws.com/?Action=ListUsers&Version=2010-05-08",
                [("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")],
            )
        )
        self.assertEqual(
            added["Authorization"],
            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
            "SignedHeaders=content-type;host;x-amz-date, "
            "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7",
        )

    def test_signing_key(self) -> None:
        """The key for IAM on that day is the guide's."""
        self.assertEqual(
            signing_key(EXAMPLE.secret_key, "20150830", Scope("us-east-1", "iam")).hex(),
            "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9",
        )


class RequestTest(TestCase):
    """The signed parts of a request."""

    def test_port_and_login(self) -> None:
        """The host is signed with its port, and without a login that the URL has."""
        canonical, _ = canonical_request("GET", "http://127.0.0.1:4566", [("Host", "127.0.0.1:4566")], b"")
        self.assertEqual(canonical.split("\n")[1], "/")
        one = sign(EXAMPLE, SCOPE, THEN, "GET", "http://u:p@127.0.0.1:4566/")
        two = sign(EXAMPLE, SCOPE, THEN, "GET", "http://127.0.0.1:4566/")
        self.assertEqual(one, two)

    def test_encoded_path(self) -> None:
        """The encoded path is encoded again, as all services except S3 require."""
        canonical, _ = canonical_request("GET", "https://h/a%20b", [], b"")
        self.assertEqual(canonical.split("\n")[1], "/a%2520b")

    def test_no_secret_shown(self) -> None:
        """Neither the secret nor the token of credentials is in their repr."""
        text = repr(AWSCredentials("AKID", "s3cr3t", "t0k3n"))
        self.assertIn("AKID", text)
        self.assertNotIn("s3cr3t", text)
        self.assertNotIn("t0k3n", text)

    @given(st.binary(max_size=64), st.text(max_size=16), st.integers(0, 4_000_000_000))
    def test_every_part_counts(self, body: bytes, value: str, now: int) -> None:
        """Whatever the body, the field and the time are: one byte more, and the signature is another."""
        fields = [("X-Amz-Target", value)]
        one = sign(EXAMPLE, SCOPE, now, "POST", HOST, fields, body)[-1][1]
        self.assertTrue(
            re.fullmatch(r"AWS4-HMAC-SHA256 Credential=\S+, SignedHeaders=\S+, Signature=[0-9a-f]{64}", one)
        )
        for other in (
            sign(EXAMPLE, SCOPE, now, "POST", HOST, fields, body + b"x"),
            sign(EXAMPLE, SCOPE, now, "POST", HOST, [("X-Amz-Target", value + "x")], body),
            sign(EXAMPLE, SCOPE, now + 1, "POST", HOST, fields, body),
            sign(EXAMPLE, Scope("eu-west-1", "service"), now, "POST", HOST, fields, body),
        ):
            self.assertNotEqual(one, other[-1][1])
