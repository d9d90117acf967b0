"""Temporary credentials for AWS: for a token, of a container or an instance, or for other credentials.

Errors have only AWS's error code of a response.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode, urlsplit
from xml.etree.ElementTree import Element

from attrs import define

from tower.cloud.aws.api import AWSAPI, read_error
from tower.cloud.aws.credentials import NoCredentials, made_credentials, read_json_credentials, read_small
from tower.cloud.aws.metadata import Metadata, NoMetadata
from tower.cloud.aws.profiles import Role
from tower.cloud.aws.signing import AWSCredentials
from tower.cloud.aws.xml import parse_xml, text_of
from tower.cloud.config.sections import is_safe
from tower.cloud.errors import CloudAnswerError
from tower.cloud.session import CloudSession

#: Version of the Security Token Service's API.
STS_VERSION = "2011-06-15"

#: Lifetime of an assumed role, s.
ROLE_LIFE = 3600

#: Default name of the session in AWS's logs.
SESSION_NAME = "tower"

_CONTAINER_HOST = "http://169.254.170.2"
_LINK_LOCAL = frozenset(("169.254.170.2", "169.254.170.23", "fd00:ec2::23"))

# AWS did not reach the token's issuer: a temporary error.
_ISSUER_UNREACHABLE = "IDPCommunicationError"


class WebIdentity:
    """A role for a token in a file, as in a pod with a service account for AWS.

    :param sts: the Security Token Service's URL.
    :param environ: names role and file.
    """

    def __init__(self, session: CloudSession, sts: str, environ: Mapping[str, str]) -> None:
        self._session = session
        self._sts = sts
        self._environ = environ

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        path, role = (
            self._environ.get(f"AWS_{name}", "") for name in ("WEB_IDENTITY_TOKEN_FILE", "ROLE_ARN")
        )
        if not path or not role:
            return None
        try:
            token = read_small(Path(path)).strip()
        except (OSError, UnicodeDecodeError) as e:
            raise NoCredentials(f"web identity token {path}: {getattr(e, 'strerror', 'not UTF-8')}") from None
        form = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": STS_VERSION,
            "RoleArn": role,
            "RoleSessionName": self._environ.get("AWS_ROLE_SESSION_NAME") or SESSION_NAME,
            "WebIdentityToken": token,
        }
        headers = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
        try:
            answer = await self._session.request(
                "POST",
                self._sts,
                headers=headers,
                body=urlencode(form).encode(),
                again=lambda answer: read_error(answer.body)[0] == _ISSUER_UNREACHABLE,
            )
        except CloudAnswerError as e:
            # The message may quote the token; the code does not.
            raise NoCredentials(
                f"AssumeRoleWithWebIdentity for {role}: {read_error(e.body)[0] or f'HTTP status {e.code}'}"
            ) from None
        return read_assumed_role(parse_xml(answer.body), "AssumeRoleWithWebIdentity")


@define(eq=False, repr=False)
class Container:
    """The credentials endpoint of containers in ECS and EKS; *host* is the base of relative URLs."""

    _session: CloudSession
    _environ: Mapping[str, str]
    _host: str = _CONTAINER_HOST

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        relative, url, token, file = (
            self._environ.get(f"AWS_CONTAINER_{name}", "")
            for name in (
                "CREDENTIALS_RELATIVE_URI",
                "CREDENTIALS_FULL_URI",
                "AUTHORIZATION_TOKEN",
                "AUTHORIZATION_TOKEN_FILE",
            )
        )
        if relative:
            url = self._host + relative
        if not url:
            return None
        if not _is_trusted(url):
            raise NoCredentials("AWS_CONTAINER_CREDENTIALS_FULL_URI: must be https, or on this machine")
        try:
            token = read_small(Path(file)).strip() if file else token
        except (OSError, UnicodeDecodeError) as e:
            raise NoCredentials(
                f"authorization token {file}: {getattr(e, 'strerror', 'not UTF-8')}"
            ) from None
        headers = {"authorization": token} if token else {}
        try:
            answer = await self._session.request("GET", url, headers=headers)
        except CloudAnswerError as e:
            raise NoCredentials(f"the container's credentials for AWS: HTTP status {e.code}") from None
        return read_json_credentials(answer.body, "the container's credentials for AWS")


class InstanceRole:
    """The role of this instance."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def fetch(self) -> AWSCredentials | None:
        """See `ISource`."""
        base = "iam/security-credentials/"
        try:
            roles = await self._metadata.get(base)
        except NoMetadata:
            return None
        if not roles:
            return None
        role = roles.split()[0]
        text = await self._metadata.get(base + role)
        return read_json_credentials(text.encode(), f"the credentials of role {role}")


class AssumedRole:
    """A role, assumed with the credentials of *sts*, the Security Token Service."""

    def __init__(self, sts: AWSAPI, role: Role) -> None:
        self._sts = sts
        self._role = role

    async def fetch(self) -> AWSCredentials:
        """See `ISource`."""
        parameters = {
            "RoleArn": self._role.arn,
            "RoleSessionName": self._role.session or SESSION_NAME,
            "DurationSeconds": str(ROLE_LIFE),
        }
        if self._role.external_id:
            parameters["ExternalId"] = self._role.external_id
        return read_assumed_role(await self._sts.query(STS_VERSION, "AssumeRole", parameters), "AssumeRole")


def read_assumed_role(root: Element, action: str) -> AWSCredentials:
    """Return the credentials in a response of STS; raise `NoCredentials` if they are missing or invalid."""
    found = root.find(f"{action}Result/Credentials")
    if found is None:
        raise NoCredentials(f"{action}: the response has no credentials")
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken")
    return made_credentials([text_of(found, name) for name in names], text_of(found, "Expiration"), action)


def _is_trusted(url: str) -> bool:
    """Return whether secrets may travel to and from a URL of the environment."""
    parts = urlsplit(url)
    return is_safe(url) or (parts.scheme == "http" and parts.hostname in _LINK_LOCAL)
