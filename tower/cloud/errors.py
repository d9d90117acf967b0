"""Errors of clouds and of their configurations."""

from __future__ import annotations

from tower.errors import ConfigurationError, TowerError


class CloudError(TowerError):
    """A request to a cloud failed.  The text has no secrets.  A later retry may succeed."""


class InstanceNotFound(CloudError):
    """The instance does not exist."""

    def __init__(self, message: str = "instance not found") -> None:
        super().__init__(message)


class DiskNotFound(CloudError):
    """The disk does not exist."""

    def __init__(self, message: str = "disk is not found") -> None:
        super().__init__(message)


class NotImplementedByCloud(CloudError):
    """The provider or the cloud does not support the call; a retry does not help.

    A text with reason and cure begins with ``unimplemented: ``.
    """

    def __init__(self, message: str = "unimplemented") -> None:
        super().__init__(message)


class ImplementedElsewhere(CloudError):
    """The cloud provider does not do this; another program does."""

    def __init__(self, message: str = "implemented by alternate to cloud provider") -> None:
        super().__init__(message)


class CloudUnreachable(CloudError):
    """There was no response: the connection failed, or the request timed out."""


class AnswerTooLarge(CloudError):
    """A response exceeds the size limit; request a smaller page."""


class CloudAnswerError(CloudError):
    """A response has an unexpected status.

    :ivar code: HTTP status.
    :ivar detail: the cloud's message, at most 300 printable characters.
    :ivar body: of the response; may be long; not for logs.
    :ivar retry_after: the cloud's ``Retry-After``, s.
    """

    def __init__(
        self, code: int, text: str, *, detail: str = "", body: bytes = b"", retry_after: float = 0.0
    ) -> None:
        super().__init__(text)
        self.retry_after = retry_after
        self.code = code
        self.detail = detail
        self.body = body


class CloudConfigError(ConfigurationError):
    """A cloud's configuration is invalid; *text* has no secrets."""

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.file = file
        self.line = line
        self.text = text
