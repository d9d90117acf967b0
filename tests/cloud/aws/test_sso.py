"""Credentials for who is signed in at IAM Identity Center."""

from __future__ import annotations

import json
import time
from hashlib import sha1
from pathlib import Path
from typing import Any

from tests.cloud.asking import logged
from tests.cloud.aws.kit import AWSTestCase
from tests.cloud.standins.aws import ACCOUNT, CLIENT, OTHER_ROLE, PORTAL_PATH, REGION, SSO_ROLE
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.errors import CloudError

START = "https://d-1234567890.awsapps.com/start"
ROLE = f"sso_account_id = {ACCOUNT}\nsso_role_name = {SSO_ROLE}\n"
OLD = f"sso_start_url = {START}\nsso_region = {REGION}\n{ROLE}"
NEW = f"sso_session = work\n{ROLE}[sso-session work]\nsso_region = {REGION}\nsso_start_url = {START}\n"


class SSOTestCase(AWSTestCase):
    """A home with somebody's tokens."""

    def setUp(self) -> None:
        """Make it."""
        super().setUp()
        self.home = Path(self.mktemp())
        self.cache = self.home / ".aws" / "sso" / "cache"
        self.cache.mkdir(parents=True)

    def moment(self, left: float) -> str:
        """Return the time in *left* s."""
        return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock.seconds() + left))

    def sign_in(self, name: str, life: float = 3600.0, **others: Any) -> Path:
        """Have somebody signed in; return where the token is."""
        token, renewal = self.aws.sign_in(life)
        path = self.cache / f"{sha1(name.encode(), usedforsecurity=False).hexdigest()}.json"
        said = {"startUrl": START, "region": REGION, "accessToken": token, "expiresAt": self.moment(life)}
        if others.pop("renewable", False):
            said |= CLIENT | {"refreshToken": renewal, "registrationExpiresAt": self.moment(90 * 86400)}
        path.write_text(json.dumps(said | others))
        return path

    def nodes(self, text: str, profile: str = "node") -> Any:
        """Return instances that are asked for by a profile that says *text*."""
        config = self.home / ".aws" / "config"
        config.write_text(f"[profile node]\n{text}\n")
        environ = {"HOME": str(self.home)}
        return self.provider(f"VPC = vpc-1\nProfile = {profile}", environ).instances()

    def list(self, text: str) -> str:
        """List the instances; return the access key that EC2 was asked with."""
        self.finish(self.nodes(text).list_instances())
        return (
            self.aws.resource.asks[-1].headers["authorization"].partition("Credential=")[2].partition("/")[0]
        )

    def error(self, text: str) -> str:
        """Return the error where there are no credentials; nothing secret is in it, nor in the log."""
        with logged() as lines:
            error = str(self.assertRaises(CloudError, self.list, text))
        for line in (error, *lines):
            self.assertNotIn("secret", line)
            self.assertNotIn("s3cr3t", line)
        return error


class SSOTest(SSOTestCase):
    """Both kinds of profiles."""

    def test_both_kinds(self) -> None:
        """The token of the session, or of the start URL, gets the role's credentials."""
        self.sign_in("work")
        self.assertTrue(self.list(NEW).startswith("ASIA"))
        self.sign_in(START)
        self.assertTrue(self.list(OLD).startswith("ASIA"))

    def test_source_profile(self) -> None:
        """A role is taken on by who is signed in."""
        self.sign_in(START)
        text = f"role_arn = {OTHER_ROLE}\nsource_profile = base\n[profile base]\n{OLD}"
        self.assertTrue(self.list(text).startswith("ASIA"))
        self.assertEqual(self.aws.resource.count("POST", "/sts/"), 1)

    def test_not_signed_in(self) -> None:
        """Who has not signed in, or not lately, is told the command that does it, by profile."""
        login = "run aws sso login --profile node as the user"
        self.assertIn(login, self.error(OLD))
        path = self.sign_in(START, -1.0)
        self.assertIn(f"its token has ended: {login}", self.error(OLD))
        self.assertEqual(self.aws.resource.count("GET", "credentials"), 0)
        path.write_text("{}")
        self.assertIn(login, self.error(OLD))
        self.sign_in(START)
        self.aws.signed_in.clear()
        self.assertIn(f"AWS does not take its token any more: {login}", self.error(OLD))

    def test_ended_meanwhile(self) -> None:
        """Credentials serve to their end though the token has ended; signing in again is seen."""
        self.sign_in(START, 600.0)
        nodes = self.nodes(OLD)
        for _ in range(10):
            self.finish(nodes.list_instances())
            self.clock.advance(300)
        self.assertEqual(self.aws.resource.count("GET", "credentials"), 1)
        self.clock.advance(900)
        self.assertRaises(CloudError, self.finish, nodes.list_instances())
        self.sign_in(START)
        self.finish(nodes.list_instances())

    def test_refused(self) -> None:
        """A role that is not his is an error with AWS's word for it."""
        self.sign_in(START)
        error = self.error(OLD.replace(SSO_ROLE, "Admin"))
        wanted = f"profile node, role Admin of account {ACCOUNT}: HTTP status 403: ForbiddenException"
        self.assertEqual(error, wanted)

    def test_garbage(self) -> None:
        """Answers and files without what should be in them are errors that quote none of it."""
        self.sign_in(START)
        bodies: list[Any] = [{}, [], {"roleCredentials": {"accessKeyId": "secret"}}, {"roleCredentials": 1}]
        bodies.append(
            {"roleCredentials": {"accessKeyId": "a", "secretAccessKey": "b", "expiration": "secret"}}
        )
        for body in bodies:
            self.aws.resource.faults = [Fault(Reply(200, body), 1, PORTAL_PATH)]
            self.assertIn("the answer has none", self.error(OLD))
        for text in ("secret", "[1]", '{"accessToken": 1, "expiresAt": "secret"}'):
            self.sign_in(START).write_text(text)
            self.assertIn("profile node", self.error(OLD))

    def test_incomplete(self) -> None:
        """What a profile lacks, or contradicts, is told by name."""
        for text, wanted in {
            OLD.replace(f"sso_account_id = {ACCOUNT}\n", ""): "profile node has no sso_account_id",
            OLD.replace(f"sso_region = {REGION}\n", ""): "profile node has no sso_region",
            OLD.replace(ACCOUNT, "42"): "has an sso_account_id that is none",
            OLD.replace(REGION, "x.evil/"): "has an sso_region that is none",
            f"sso_session = play\n{ROLE}": "has an sso_session that is not in",
            f"sso_region = eu-west-1\n{NEW}": "has another sso_region than its sso_session",
        }.items():
            self.assertIn(wanted, self.error(text))


class RenewalTest(SSOTestCase):
    """Tokens of sessions, which are renewed."""

    def test_renewed(self) -> None:
        """A token near its end is renewed, and what came is left for all others, for no eyes but theirs."""
        path = self.sign_in("work", 100.0, renewable=True, other="stays")
        before = json.loads(path.read_text())
        self.assertTrue(self.list(NEW).startswith("ASIA"))
        after = json.loads(path.read_text())
        self.assertNotEqual(before["accessToken"], after["accessToken"])
        self.assertIn(after["refreshToken"], self.aws.renewals)
        self.assertEqual((after["expiresAt"], after["other"]), (self.moment(3600), "stays"))
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual([each.name for each in self.cache.iterdir()], [path.name])
        self.clock.advance(3500)
        self.list(NEW)
        self.assertEqual(self.aws.resource.count("POST", "/oidc/token"), 2)

    def test_not_before(self) -> None:
        """A token that lasts is not renewed, and one of the older kind never."""
        self.sign_in("work", renewable=True)
        self.list(NEW)
        self.sign_in(START, 100.0, renewable=True)
        self.list(OLD)
        self.assertEqual(self.aws.resource.count("POST", "/oidc/token"), 0)

    def test_refused(self) -> None:
        """Where AWS does not renew it the token serves to its end; then somebody has to sign in."""
        self.sign_in("work", 100.0, renewable=True)
        self.aws.renewals.clear()
        with logged() as lines:
            self.list(NEW)
        self.assertIn("the token of the SSO session work is not renewed: HTTP status 400", lines)
        self.clock.advance(101)
        self.assertIn("run aws sso login --profile node", self.error(NEW))
        self.sign_in("work", -1.0, renewable=True, registrationExpiresAt=self.moment(-1))
        self.assertIn("run aws sso login --profile node", self.error(NEW))
        self.assertEqual(self.aws.resource.count("POST", "/oidc/token"), 2)
