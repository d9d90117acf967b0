"""Tokens for Compute Engine for a person who logged in with gcloud."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cloud.asking import logged
from tests.cloud.gce.login_files import LoginFileTestCase
from tests.cloud.standins.gce import PERSON
from tower.cloud.errors import CloudAnswerError
from tower.cloud.gce.config import parse_gce_config
from tower.cloud.gce.federation import load_account
from tower.errors import ConfigurationError

REFRESH = "1//refresh-secret"


class UserTests(LoginFileTestCase):
    """Files of type authorized_user."""

    def write(self, path: Path | None = None, **changes: Any) -> str:
        """Write the file, with changes; a None is left out."""
        said = {
            "type": "authorized_user",
            "account": "",
            "universe_domain": "googleapis.com",
            "refresh_token": REFRESH,
            "token_uri": "http://localhost/token",
            **PERSON,
            **changes,
        }
        return self.write_login(said, path)

    def test_used(self) -> None:
        """The refresh token is traded for a token, and before that ends for another one."""
        cloud = self.cloud_of(self.write())
        for _ in range(3):
            self.assertEqual(3, len(self.names(cloud)))
        self.clock.advance(3500)
        self.names(cloud)
        self.assertEqual(2, self.gce.resource.count("POST", "/token"))
        self.assertEqual([], self.gce.resource.refused)
        self.assertNotIn("x-goog-user-project", self.gce.resource.asks[-1].headers)

    def test_quota_project(self) -> None:
        """Requests count against the project that the file names for that."""
        self.names(self.cloud_of(self.write(quota_project_id="who-pays")))
        self.assertEqual("who-pays", self.gce.resource.asks[-1].headers["x-goog-user-project"])

    def test_logged_in_again(self) -> None:
        """A file that is replaced is used from the next token on."""
        path = self.write()
        cloud = self.cloud_of(path)
        self.names(cloud)
        self.gce.revoke()
        self.gce.logins = {"1//another"}
        self.write(Path(path), refresh_token="1//another")
        self.names(cloud)

    def test_ended(self) -> None:
        """A login that has ended is an error that says what to do, and shows nothing of it."""
        self.gce.logins.clear()
        path = self.write()
        with logged() as lines, self.assertRaises(CloudAnswerError) as caught:
            self.names(self.cloud_of(path))
        error = str(caught.exception)
        self.assertIn(f"{path} is of a login that has ended: gcloud auth application-default login", error)
        self.assertIn("400: invalid_grant: Token has been expired or revoked", error)
        for text in (error, *lines):
            self.assertNotIn("secret", text)

    def test_unknown_client(self) -> None:
        """Another refusal is told as it is."""
        with self.assertRaisesRegex(CloudAnswerError, "401: invalid_client: The OAuth client was not found"):
            self.names(self.cloud_of(self.write(client_id="x")))

    def test_bad_files(self) -> None:
        """A file without a login is a clear error that shows nothing of it."""
        for changes, wanted in (
            ({"refresh_token": None}, "refresh_token is missing"),
            ({"client_secret": 5}, "client_secret is missing"),
            ({"token_uri": "http://evil.example/token"}, "no https:// URL"),
            ({"token_uri": "ftp://localhost/token"}, "no https:// URL"),
        ):
            with self.assertRaisesRegex(ConfigurationError, wanted) as caught:
                load_account(self.write(**changes))
            self.assertNotIn("secret:", str(caught.exception))
            self.assertNotIn(REFRESH, str(caught.exception))

    def test_repr(self) -> None:
        """A login's repr has nothing secret."""
        self.assertNotIn("secret", repr(load_account(self.write())))

    def test_usual_file(self) -> None:
        """The login at gcloud's usual place counts where nobody names another."""
        home = Path(self.mktemp())
        folder = home / ".config" / "gcloud"
        folder.mkdir(parents=True)
        environ = {"HOME": str(home)}
        self.assertEqual("", parse_gce_config(None, environ).credentials_file)
        path = self.write(folder / "application_default_credentials.json")
        self.assertEqual(path, parse_gce_config(None, environ).credentials_file)
        elsewhere = {"HOME": "/nowhere", "CLOUDSDK_CONFIG": str(folder)}
        self.assertEqual(path, parse_gce_config(None, elsewhere).credentials_file)
        environ["GOOGLE_APPLICATION_CREDENTIALS"] = "/mine.json"
        self.assertEqual("/mine.json", parse_gce_config(None, environ).credentials_file)
