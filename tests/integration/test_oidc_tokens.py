"""A real API server and Tower with the same issuer: bad tokens, and good ones that enter a cluster."""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import jwt
import yaml
from twisted.trial.unittest import SynchronousTestCase

from tests.integration.harness import Tower
from tests.integration.member import Running
from tests.integration.person import Person
from tests.integration.programs import wait_for
from tests.integration.token_issuer import CLIENT, TokenIssuer, segment
from tests.integration.token_users import CLUSTERS, PODS, anybody, is_authenticated, message

POLICIES = "/apis/cluster.kubesphere.io/v1alpha1/accesspolicies"
REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

# The rest of a text is the API server's own: its time, or a message of its JSON parser.
OWN = re.compile(r"(?<= current time).*|(?<=malformed jwt).*|(?<=distributed claims: ).*")

#: Why the API server rejected a token, in its log.
REASON = re.compile(r'err="\[invalid bearer token, (.*)\]"')


def flags(issuer: TokenIssuer) -> tuple[str, ...]:
    """Return the options of both."""
    return (
        f"oidc-issuer-url={issuer.url}",
        f"oidc-client-id={CLIENT}",
        f"oidc-ca-file={issuer.ca}",
        "oidc-username-claim=email",
        "oidc-groups-claim=groups",
        "oidc-required-claim=hd=example.org",
    )


@cache
def servers() -> tuple[TokenIssuer, Running]:
    """Return the issuer and the API server, which end with the process."""
    folder = Path(tempfile.mkdtemp(prefix="tower-oidc-"))
    issuer = TokenIssuer(folder)
    started = Running(folder, "--bare", *(f"--apiserver-flag={flag}" for flag in flags(issuer)))
    owner = os.getpid()
    atexit.register(lambda: started.stop() if os.getpid() == owner else None)
    started.run()
    return issuer, started


def has_reason(log: Path, start: int) -> bool:
    """Return whether the API server has logged a rejection after *start*."""
    return b"err=" in log.read_bytes()[start:]


class SameTokensTests(SynchronousTestCase):
    """The same tokens to a real API server and to Tower with the same options."""

    timeout = 240

    def setUp(self) -> None:
        """Start Tower with the API server's options."""
        self.issuer, self.server = servers()
        self.folder = Path(tempfile.mkdtemp(prefix="tower-test-"))
        self.addCleanup(shutil.rmtree, self.folder, True)
        self.tower = Tower(self.folder)
        self.addCleanup(self.tower.stop)
        self.tower.proxy = self.tower.proxy_program(*(f"--{flag}" for flag in flags(self.issuer)))
        self.tower.start()

    def test_tokens(self) -> None:
        """Status, reason and message agree, and Tower's text is what the API server logs."""
        ours = anybody(self.tower)
        direct = self._direct()
        good: dict[str, Any] = {"email": "jane@example.org", "hd": "example.org"}
        token = self.issuer.token(**good)
        for person, path in ((ours, CLUSTERS), (direct, "/api/v1/nodes")):
            wait_for("the keys", partial(is_authenticated, person, path, token), 60)

        log = self.server.member.place / "kube-apiserver.log"
        differences, seen = [], 0
        for name, token in self.cases(good).items():
            start = log.stat().st_size
            theirs = message(direct, "/api/v1/nodes", token)
            mine = message(ours, CLUSTERS, token)
            wanted = ""
            if theirs[0] == 401:
                wait_for("the log", partial(has_reason, log, start), 10)
                found = REASON.search(log.read_bytes()[start:].decode())
                wanted = OWN.sub("", json.loads(f'"{found[1]}"')) if found else ""
                seen += bool(found)
            said = f"Unauthorized: {wanted}" if wanted else ""
            if (
                mine[:2] != theirs[:2]
                or not mine[2].startswith(said)
                or ("oidc: " in mine[2]) != bool(wanted)
            ):
                differences.append(f"{name}: {theirs} {wanted}\n    {mine}")
        self.assertEqual(differences, [], "\n".join(differences))
        self.assertGreater(seen, 25)

    def test_entry(self) -> None:
        """A policy admits a user to a cluster, which sees the names of the token."""
        self.tower.add("alpha", self.server.member.admin)
        client, admin = anybody(self.tower), self.tower.admin()
        token = self.issuer.token(email="jane@example.org", hd="example.org", groups=["dev"])
        wait_for("the keys", partial(is_authenticated, client, CLUSTERS, token), 60)
        self.assertEqual(message(client, PODS, token)[:2], (403, "Forbidden"))

        spec = {"subjects": [{"kind": "Group", "name": "dev"}], "clusters": {"names": ["alpha"]}}
        value = {"apiVersion": "cluster.kubesphere.io/v1alpha1", "kind": "AccessPolicy", "spec": spec}
        headers = {"Content-Type": "application/json"}
        body = json.dumps({**value, "metadata": {"name": "dev"}}).encode()
        self.assertEqual(admin.request("POST", POLICIES, body=body, headers=headers).status, 201)
        review = json.dumps({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}).encode()
        headers["Authorization"] = f"Bearer {token}"
        answer = client.request("POST", f"/clusters/alpha{REVIEWS}", body=review, headers=headers)
        self.assertEqual(answer.status, 201, answer.body)
        user = json.loads(answer.body)["status"]["userInfo"]
        self.assertEqual((user["username"], user["groups"][0]), ("jane@example.org", "dev"))
        other = self.issuer.token(email="joe@example.org", hd="example.org", groups=["ops"])
        self.assertEqual(message(client, PODS, other)[:2], (403, "Forbidden"))

    def _direct(self) -> Person:
        config = yaml.safe_load(self.server.member.admin.read_text())
        config["users"][0]["user"] = {}
        path = self.folder / "direct.kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return Person(path)

    def cases(self, good: Mapping[str, Any]) -> dict[str, str]:
        """Return the tokens by their names."""
        issuer, now = self.issuer, int(time.time())
        token = issuer.token

        def made(**claims: Any) -> str:
            return token(**{**good, **claims})

        whole = made()
        header, payload, signature = whole.split(".")
        other = segment(json.dumps({**issuer.claims, **good, "email": "joe@example.org"}).encode())
        return {
            "good": whole,
            "good, several audiences": made(aud=["x", CLIENT]),
            "good, azp of another": made(azp="another"),
            "good, groups": made(groups=["a", "b"]),
            "good, one group": made(groups="a"),
            "good, verified": made(email_verified=True),
            "good, nbf within the leeway": made(nbf=now + 40),
            "good, fractional expiry": made(exp=now + 600.5),
            "good, without kid": made(header={"kid": None}),
            "none": issuer.unsigned(**good),
            "key confusion": issuer.confused(),
            "another algorithm": issuer.of_a_curve(),
            "RS512": made(algorithm="RS512"),
            "another key": issuer.of_another_key(),
            "another key, unknown kid": issuer.of_another_key(kid="other"),
            "another key, no kid": issuer.of_another_key(kid=None),
            "changed claims": f"{header}.{other}.{signature}",
            "no signature": f"{header}.{payload}.",
            "cut": whole[:-6],
            "expired": made(exp=now - 60),
            "expired, a text": made(exp=str(now - 60)),
            "expiry missing": made(without="exp"),
            "expiry true": made(exp=True),
            "expiry a word": made(exp="soon"),
            "not yet": made(nbf=now + 300),
            "nbf an object": made(nbf={}),
            "audience of another": made(aud="another"),
            "audiences of others": made(aud=["a", "b"]),
            "no audience": made(without="aud"),
            "audience a number": made(aud=7),
            "audience with a number": made(aud=[7]),
            "subject a number": _raw(issuer, {**issuer.claims, **good, "sub": 7}),
            "another issuer": made(iss="https://other.example"),
            "issuer with a slash": made(iss=issuer.url + "/"),
            "no issuer": made(without="iss"),
            "no email": made(without="email"),
            "email a number": made(email=7),
            "email unverified": made(email_verified=False),
            "email verified a text": made(email_verified="true"),
            "groups a number": made(groups=7),
            "groups with a number": made(groups=["a", 7]),
            "groups an object": made(groups={"a": "b"}),
            "required missing": made(without="hd"),
            "required differs": made(hd="example.com"),
            "required a list": made(hd=["example.org"]),
            "not a token": "abc",
            "two parts": f"{header}.{payload}",
            "four parts": whole + ".x",
            "key in the header": issuer.with_own_key(good),
            "extension": made(header={"crit": ["x"], "x": 1}),
            "kid a number": _joined({"alg": "RS256", "kid": 7}, payload, signature),
            "no alg": _joined({"kid": "first"}, payload, signature),
            "groups null": made(groups=None),
            "groups empty": made(groups=[]),
            "credential ID": made(jti="a-1"),
            "credential ID a number": _raw(issuer, {**issuer.claims, **good, "jti": 7}),
            "distributed groups": made(
                _claim_names={"groups": "a"}, _claim_sources={"a": {"endpoint": "https://127.0.0.1:1"}}
            ),
            "header not JSON": f"{segment(b'x')}.{payload}.{signature}",
            "payload not JSON": f"{header}.{segment(b'x')}.{signature}",
        }


def _joined(header: Mapping[str, Any], payload: str, signature: str) -> str:
    return f"{segment(json.dumps(header).encode())}.{payload}.{signature}"


def _raw(issuer: TokenIssuer, claims: Mapping[str, Any]) -> str:
    """Return a signed token with claims that PyJWT rejects."""
    return jwt.api_jws.encode(json.dumps(claims).encode(), issuer.key, "RS256", {"kid": issuer.key_id})
