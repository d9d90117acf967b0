"""Sources of credentials for AWS, and their renewal before expiry."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs

from tests.cloud.asking import finish, logged
from tests.cloud.aws.kit import ENVIRON, HOST, AWSTestCase
from tests.cloud.standins.aws import (
    CONTAINER_TOKEN,
    EC2_PATH,
    IDENTITY,
    KEY,
    OTHER_ROLE,
    ROLE,
    SECRET,
    STS_PATH,
)
from tests.cloud.standins.rest import Fault, Reply
from tower.cloud.aws.credentials import Environment, NoCredentials, read_json_credentials
from tower.cloud.aws.provider import AWSInstances
from tower.cloud.errors import CloudError

NOBODY: dict[str, str] = {}


class SourcesTestCase(AWSTestCase):
    """Requests with credentials of an environment."""

    def asked_with(self, text: str = "", environ: dict[str, str] = NOBODY) -> str:
        """Return the access key that EC2 is asked with."""
        self.finish(self.nodes(text, environ).list_instances())
        return (
            self.aws.resource.asks[-1].headers["authorization"].partition("Credential=")[2].partition("/")[0]
        )

    def nodes(self, text: str, environ: dict[str, str]) -> AWSInstances:
        """Return instances with the credentials of *environ*."""
        return self.provider(f"VPC = vpc-1\n{text}", {"HOME": "/nowhere", **environ}).instances()

    def error(self, text: str = "", environ: dict[str, str] = NOBODY) -> str:
        """Return the error where there are no credentials."""
        return str(self.assertRaises(CloudError, self.asked_with, text, environ))

    def file(self, text: str) -> str:
        """Write a file with credentials."""
        path = Path(self.mktemp())
        path.write_text(text)
        return str(path)


class SourcesTest(SourcesTestCase):
    """Each source, and their order."""

    def test_environment(self) -> None:
        """The environment's are used, with the session's token if it has one."""
        self.assertEqual(self.asked_with(environ=ENVIRON), KEY)
        key, made = self.aws.issue()
        session = {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": made.secret,
            "AWS_SESSION_TOKEN": made.token,
        }
        self.assertEqual(self.asked_with(environ=session), key)
        self.assertIn("set both", self.error(environ={"AWS_ACCESS_KEY_ID": KEY}))

    def test_shared_file(self) -> None:
        """A profile of the shared file is used: the configuration's, the environment's, or the default."""
        path = self.file(
            "# mine\n[default]\naws_access_key_id = AKIDWRONG\naws_secret_access_key = x\n"
            f"[tower]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\nregion = eu-west-1\n"
        )
        self.assertEqual(self.asked_with(f"SharedCredentialsFile = {path}\nProfile = tower"), KEY)
        environ = {"AWS_SHARED_CREDENTIALS_FILE": path, "AWS_PROFILE": "tower"}
        self.assertEqual(self.asked_with(environ=environ), KEY)
        self.assertIn("AuthFailure", self.error(f"SharedCredentialsFile = {path}"))

    def test_named_profile_first(self) -> None:
        """A profile that a cluster's configuration names is used, whatever the environment is for."""
        path = self.file(f"[tower]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\n")
        others = {"AWS_ACCESS_KEY_ID": "AKIDOTHER", "AWS_SECRET_ACCESS_KEY": "of another account"}
        environ = {"AWS_SHARED_CREDENTIALS_FILE": path, **others}
        self.assertEqual(self.asked_with("Profile = tower", environ), KEY)
        default = self.file(f"[default]\naws_access_key_id={KEY}\naws_secret_access_key = {SECRET}\n")
        self.assertEqual(self.asked_with(f"SharedCredentialsFile = {default}", others), KEY)

    def test_shared_file_wrong(self) -> None:
        """A broken file that was set by name is an error that does not quote it."""
        self.aws.give_role()
        for text, wanted in {
            "[other]\naws_access_key_id = a\n": "profile default does not exist",
            f"[default]\naws_secret_access_key = {SECRET}\n": "profile default has no aws_access_key_id",
            f"aws_secret_access_key = {SECRET}\n": "MissingSectionHeaderError",
        }.items():
            error = self.error(f"SharedCredentialsFile = {self.file(text)}")
            self.assertIn(wanted, error)
            self.assertNotIn(SECRET, error)
        self.assertIn("default does not exist", self.error("SharedCredentialsFile = /nowhere/at/all"))

    def test_web_identity(self) -> None:
        """A token in a file gets the role that the environment names; no error quotes the token."""
        environ = {"AWS_WEB_IDENTITY_TOKEN_FILE": self.file(IDENTITY), "AWS_ROLE_ARN": OTHER_ROLE}
        self.assertTrue(self.asked_with(environ=environ).startswith("ASIA"))
        environ["AWS_WEB_IDENTITY_TOKEN_FILE"] = self.file("another-token")
        error = self.error(environ=environ)
        self.assertEqual(error, f"AssumeRoleWithWebIdentity for {OTHER_ROLE}: InvalidIdentityToken")
        environ["AWS_WEB_IDENTITY_TOKEN_FILE"] = "/nowhere/at/all"
        self.assertIn("No such file", self.error(environ=environ))

    def test_issuer_silent(self) -> None:
        """It is retried if AWS did not reach the token's issuer."""
        environ = {"AWS_WEB_IDENTITY_TOKEN_FILE": self.file(IDENTITY), "AWS_ROLE_ARN": OTHER_ROLE}
        silent = b"<ErrorResponse><Error><Code>IDPCommunicationError</Code></Error></ErrorResponse>"
        self.aws.resource.faults = [Fault(Reply(400, silent), 2, STS_PATH)]
        self.assertTrue(self.asked_with(environ=environ).startswith("ASIA"))

    def test_container(self) -> None:
        """A container's endpoint is asked with its token, if it is one's own machine's or https."""
        environ = {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": CONTAINER_TOKEN,
        }
        self.assertTrue(self.asked_with(environ=environ).startswith("ASIA"))
        environ["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] = self.file(CONTAINER_TOKEN + "\n")
        del environ["AWS_CONTAINER_AUTHORIZATION_TOKEN"]
        self.assertTrue(self.asked_with(environ=environ).startswith("ASIA"))
        relative = {
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/credentials",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": CONTAINER_TOKEN,
        }
        self.assertTrue(self.asked_with(environ=relative).startswith("ASIA"))
        before = len(self.aws.resource.asks)
        for url in ("http://192.0.2.1/credentials", "http://evil.example/", "file:///etc/passwd", "https://"):
            environ["AWS_CONTAINER_CREDENTIALS_FULL_URI"] = url
            self.assertIn("must be https", self.error(environ=environ))
        self.assertEqual(len(self.aws.resource.asks), before)

    def test_instance_role(self) -> None:
        """The role of the instance is used, had by a session token of the metadata service."""
        self.aws.give_role()
        self.assertTrue(self.asked_with().startswith("ASIA"))
        self.assertEqual(self.aws.resource.count("PUT", "/latest/api/token"), 1)
        self.assertEqual(self.aws.resource.refused, [])

    def test_nothing(self) -> None:
        """Without credentials, the error names the sources."""
        self.assertIn("no credentials for AWS: set them in the environment", self.error())
        self.aws.resource.faults = [Fault(Reply(403), 1000, "/latest/")]
        self.assertIn("no credentials for AWS", self.error())

    def test_no_metadata_service(self) -> None:
        """A missing metadata service is detected within seconds."""
        self.aws.resource.faults = [Fault(None, 1000, "/latest/")]
        before = self.clock.seconds()
        self.assertIn("no credentials for AWS", self.error())
        self.assertLess(self.clock.seconds() - before, 10)
        error = self.assertRaises(CloudError, self.finish, self.nodes("", NOBODY).current_node_name("me"))
        self.assertIn("a metadata hop limit below 2", str(error))

    def test_metadata_disabled(self) -> None:
        """The environment can disable the metadata service."""
        self.aws.give_role()
        self.assertIn("no credentials for AWS", self.error(environ={"AWS_EC2_METADATA_DISABLED": "true"}))
        self.assertEqual(self.aws.resource.asks, [])

    def test_order(self) -> None:
        """The environment comes before the file, this before the web identity, the instance's role last."""
        self.aws.give_role()
        path = self.file(f"[default]\naws_access_key_id={KEY}\naws_secret_access_key={SECRET}\n")
        environ = {
            "AWS_SHARED_CREDENTIALS_FILE": path,
            "AWS_WEB_IDENTITY_TOKEN_FILE": self.file(IDENTITY),
            "AWS_ROLE_ARN": OTHER_ROLE,
        }
        key, made = self.aws.issue()
        first = {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": made.secret,
            "AWS_SESSION_TOKEN": made.token,
        }
        self.assertEqual(self.asked_with(environ={**environ, **first}), key)
        self.assertEqual(self.asked_with(environ=environ), KEY)
        del environ["AWS_SHARED_CREDENTIALS_FILE"]
        self.asked_with(environ=environ)
        self.assertEqual(self.aws.resource.count("POST", "/sts/"), 1)
        self.assertEqual(self.aws.resource.count("GET", ROLE), 0)

    def test_assumed_role(self) -> None:
        """The role of the configuration is taken on with the credentials that are found."""
        text = f"RoleARN = {OTHER_ROLE}"
        self.assertTrue(self.asked_with(text, ENVIRON).startswith("ASIA"))
        self.aws.external_id = "of-this-customer"
        self.assertIn("sts AssumeRole: AccessDenied", self.error(text, ENVIRON))
        self.assertTrue(
            self.asked_with(f"{text}\nRoleExternalID = of-this-customer", ENVIRON).startswith("ASIA")
        )
        self.aws.external_id = ""
        self.aws.denied = {"AssumeRole"}
        self.assertIn("sts AssumeRole: AccessDenied", self.error(text, ENVIRON))


class ProfilesTest(SourcesTestCase):
    """Profiles of the configuration file, with roles."""

    def setUp(self) -> None:
        """Write keys to the credentials file."""
        super().setUp()
        self.keys_file = self.file(f"[base]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")

    def environ(self, config: str, **others: str) -> dict[str, str]:
        """Return an environment with a configuration file."""
        path = self.file(config)
        return {"AWS_SHARED_CREDENTIALS_FILE": self.keys_file, "AWS_CONFIG_FILE": path, **others}

    def test_source_profile(self) -> None:
        """The role of a profile is taken on with the keys of another, as the role's owner wants it."""
        self.aws.external_id = "of-this-customer"
        environ = self.environ(
            f"[profile node]\nrole_arn = {OTHER_ROLE}\nsource_profile = base\nexternal_id = of-this-customer"
            "\nrole_session_name = nodes\nregion = us-east-1\n"
        )
        self.assertTrue(self.asked_with("Profile = node", environ).startswith("ASIA"))
        (form,) = (parse_qs(ask.body.decode()) for ask in self.aws.resource.asks if ask.path == STS_PATH)
        self.assertEqual(form["RoleSessionName"], ["nodes"])
        self.assertTrue(self.asked_with("", {**environ, "AWS_PROFILE": "node"}).startswith("ASIA"))

    def test_itself(self) -> None:
        """A profile may be the source of its own role."""
        environ = self.environ(f"[profile base]\nrole_arn = {OTHER_ROLE}\nsource_profile = base\n")
        self.assertTrue(self.asked_with("Profile = base", environ).startswith("ASIA"))

    def test_credential_source(self) -> None:
        """The role of a profile is assumed with credentials of the environment or the instance."""
        self.aws.give_role()
        for place, others in (("Environment", ENVIRON), ("Ec2InstanceMetadata", NOBODY)):
            config = f"[profile node]\nrole_arn = {OTHER_ROLE}\ncredential_source = {place}\n"
            environ = self.environ(config, **others)
            self.assertTrue(self.asked_with("Profile = node", environ).startswith("ASIA"))
        self.assertEqual(self.aws.resource.count("GET", ROLE), 1)
        self.assertEqual(self.aws.resource.count("POST", STS_PATH), 2)

    def test_token_file(self) -> None:
        """The role of a profile is taken on for the token in a file."""
        token = self.file(IDENTITY)
        environ = self.environ(
            f"[default]\nrole_arn = {OTHER_ROLE}\nweb_identity_token_file = {token}\n", AWS_PROFILE="default"
        )
        self.assertTrue(self.asked_with("", environ).startswith("ASIA"))

    def test_keys_in_config(self) -> None:
        """Keys may be in the configuration file too; those in the credentials file count first."""
        keys = "aws_access_key_id = AKIDOTHER\naws_secret_access_key = x\n"
        self.assertEqual(self.asked_with("Profile = base", self.environ(f"[profile base]\n{keys}")), KEY)
        mine = f"[profile mine]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
        self.assertEqual(self.asked_with("Profile = mine", self.environ(mine)), KEY)

    def test_region(self) -> None:
        """The region defaults to the profile's."""
        environ = {"HOME": "/nowhere", **self.environ("[profile base]\nregion = us-east-1\n")}
        nodes = self.instances("VPC = vpc-1\nProfile = base", environ, region="")
        self.finish(nodes.list_instances())
        self.assertEqual(self.aws.resource.count("GET", "placement/region"), 0)

    def test_not_done(self) -> None:
        """Unsupported and incomplete settings are errors."""
        for text, wanted in {
            "login_session = x": "profile node has login_session, which Tower does not support",
            "region = us-east-1": "profile node has no aws_access_key_id",
            f"role_arn = {OTHER_ROLE}": "node has role_arn, but no source_profile or credential_source",
            f"role_arn = {OTHER_ROLE}\nsource_profile = base\nmfa_serial = x": "requires an MFA code",
            f"role_arn = {OTHER_ROLE}\nsource_profile = none": "profile none has no credentials",
            f"role_arn = {OTHER_ROLE}\ncredential_source = Moon": "use Environment, EcsContainer,",
            f"role_arn = {OTHER_ROLE}\ncredential_source = Environment": "which has no credentials",
            f"role_arn = {OTHER_ROLE}\nsource_profile = node": "profile node has no credentials",
        }.items():
            environ = self.environ(f"[profile node]\n{text}\n")
            self.assertIn(wanted, self.error("Profile = node", environ))
        self.aws.give_role()
        somebody = {"AWS_CONFIG_FILE": self.file("[default]\nsso_session = x\n")}
        self.assertTrue(self.asked_with("", somebody).startswith("ASIA"))

    def test_identity_center(self) -> None:
        """A profile with settings for IAM Identity Center is an error that names it and the replacement."""
        cure = "profile node has settings for IAM Identity Center (sso_*), which Tower does not support: set "
        cure += "credential_process = aws configure export-credentials --profile node --format process"
        role = "sso_account_id = 123456789012\nsso_role_name = TowerNodes\n"
        for text in ("sso_session = x", f"sso_session = x\n{role}", f"sso_start_url = https://x\n{role}"):
            self.assertIn(cure, self.error("Profile = node", self.environ(f"[profile node]\n{text}\n")))
        source = f"[profile a]\nrole_arn = {OTHER_ROLE}\nsource_profile = node\n[profile node]\n{role}"
        self.assertIn(cure, self.error("Profile = a", self.environ(source)))

    def test_identity_center_by_default(self) -> None:
        """The default profile is not replaced silently by the instance's role."""
        self.aws.give_role()
        environ = {"AWS_CONFIG_FILE": self.file("[default]\nsso_role_name = TowerNodes\n")}
        self.assertIn("profile default has settings for IAM Identity Center", self.error("", environ))


class RenewalTest(AWSTestCase):
    """Credentials that end."""

    def setUp(self) -> None:
        """Make a provider with the role of its instance."""
        super().setUp()
        self.aws.give_role()
        self.nodes = self.instances(text="VPC = vpc-1", environ=NOBODY)

    def ask(self) -> None:
        """Ask EC2."""
        finish(self.clock, self.nodes.list_instances())

    def fetched(self) -> int:
        """Return how often the role's credentials were fetched."""
        return self.aws.resource.count("GET", ROLE)

    def test_before_they_end(self) -> None:
        """Credentials are renewed before they end, and EC2 never sees any that have."""
        for _ in range(30):
            self.ask()
            self.clock.advance(299)
        self.assertEqual(self.aws.resource.refused, [])
        self.assertIn(self.fetched(), range(3, 6))

    def test_revoked(self) -> None:
        """Credentials that are rejected early are fetched again, once."""
        self.ask()
        self.aws.credentials.clear()
        self.ask()
        self.assertEqual(self.fetched(), 2)
        for made in self.aws.credentials.values():
            made.expires = self.clock.seconds()
        self.ask()
        self.assertEqual(self.fetched(), 3)

    def test_metadata_session(self) -> None:
        """A session token that the metadata service knows no more is replaced; one that ends is renewed."""
        self.ask()
        self.aws.sessions.clear()
        self.clock.advance(3500)
        self.ask()
        self.assertEqual(self.aws.resource.count("PUT", "/latest/api/token"), 2)
        self.clock.advance(21600)
        self.ask()
        self.ask()
        self.assertEqual(self.aws.resource.count("PUT", "/latest/api/token"), 3)
        self.assertEqual([reply.code for _, reply in self.aws.resource.refused], [401])

    def test_not_renewed(self) -> None:
        """While the metadata service is down the credentials that there are serve to their end."""
        self.ask()
        self.aws.resource.faults = [Fault(Reply(500), 1000, "/latest/")]
        self.clock.advance(3400)
        with logged() as lines:
            self.ask()
        self.assertEqual(self.aws.resource.asks[-1].path, EC2_PATH)
        self.clock.advance(300)
        self.assertRaises(CloudError, self.ask)
        for line in lines:
            self.assertNotIn("secret-of-session", line)


class ReadTest(AWSTestCase):
    """Parsing of responses with credentials."""

    def test_garbage(self) -> None:
        """An answer without credentials is an error that quotes none of it."""
        for body in (
            b"",
            b"[]",
            b"null",
            b'{"Code": "AssumeRoleUnauthorizedAccess", "Message": "s3cr3t"}',
            b'{"AccessKeyId": "a", "SecretAccessKey": "s3cr3t"}',
            b'{"AccessKeyId": "a", "SecretAccessKey": "s3cr3t", "Token": "t", "Expiration": "s3cr3t"}',
            b'{"AccessKeyId": "", "SecretAccessKey": "", "Token": "", "Expiration": "2030-01-01T00:00:00Z"}',
        ):
            error = self.assertRaises(NoCredentials, read_json_credentials, body, "it")
            self.assertNotIn("s3cr3t", str(error))

    def test_times(self) -> None:
        """An end is read with and without fractions of a second."""
        for text in ("2015-08-30T12:36:00Z", "2015-08-30T12:36:00.123Z"):
            body = f'{{"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t", "Expiration": "{text}"}}'
            self.assertEqual(read_json_credentials(body.encode(), "it").expires, 1440938160.0)

    def test_no_environment(self) -> None:
        """An environment without credentials is not in use."""
        self.assertIsNone(self.finish(Environment({"HOST": HOST}).fetch()))
