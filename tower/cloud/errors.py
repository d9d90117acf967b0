"""What can go wrong with a cloud."""

from __future__ import annotations

from tower.errors import ConfigurationError, TowerError


class CloudError(TowerError):
    """A cloud did not do what it was asked; its text holds no secret.  Try again later."""


class InstanceNotFound(CloudError):
    """There is no such instance (any more)."""

    def __init__(self, message: str = "instance not found") -> None:
        super().__init__(message)


class DiskNotFound(CloudError):
    """There is no such disk."""

    def __init__(self, message: str = "disk is not found") -> None:
        super().__init__(message)


class NotImplementedByCloud(CloudError):
    """The provider, or the cloud as it is set up, cannot do that at all: asking again does not help.

    A text that says why, and what to do instead, begins with ``unimplemented: ``.
    """

    def __init__(self, message: str = "unimplemented") -> None:
        super().__init__(message)


class ImplementedElsewhere(CloudError):
    """Something else than the cloud provider does that."""

    def __init__(self, message: str = "implemented by alternate to cloud provider") -> None:
        super().__init__(message)


class CloudUnreachable(CloudError):
    """No answer came: no connection, a broken one, or too late."""


class AnswerTooLarge(CloudError):
    """The answer is larger than any should be; less may be asked for at a time."""


class CloudAnswerError(CloudError):
    """The cloud answered with something else than was expected.

    :ivar code: HTTP's status code.
    :ivar detail: what the cloud said about it, at most 300 printable characters.
    :ivar body: of the answer, for who knows its form; may be long, and is not for people.
    :ivar retry_after: how long it wants to be left alone, s.
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
    """A cloud's configuration that cannot work.

    :param text: what is wrong; never a secret's value.
    """

    def __init__(self, file: str, line: int, text: str) -> None:
        super().__init__(f"{file}:{line}: {text}" if line else f"{file}: {text}")
        self.file = file
        self.line = line
        self.text = text
