"""Errors of options, and how an error at start ends a program: with one line for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from twisted.internet.error import CannotListenError
from twisted.python import usage

from tower.errors import ConfigurationError, Invalid
from tower.escaping import escaped


class OptionError(usage.UsageError):
    """The value of an option is invalid.

    :ivar flag: the option's name, without dashes.
    :ivar problem: what is wrong, and the cure; follows name and value.
    """

    def __init__(self, name: str, value: str, problem: str, variable: str = "") -> None:
        super().__init__(f"{variable or '--' + name} {value!r} {problem}")
        self.flag, self.value, self.problem = name, value, problem


class OptionErrors(usage.UsageError):
    """Several options are invalid; the text has one line for each of `errors`, at least two."""

    def __init__(self, errors: Sequence[Exception]) -> None:
        super().__init__("\n".join(map(one_line, errors)))
        self.errors = tuple(errors)


def errors_of(*rules: Callable[[], object]) -> list[Exception]:
    """Return the errors that *rules* raise: all of them."""
    found: list[Exception] = []
    for rule in rules:
        try:
            rule()
        except OptionErrors as e:
            found += e.errors
        except (usage.UsageError, ConfigurationError, Invalid) as e:
            found.append(e)
    return found


def raise_all(errors: Sequence[Exception]) -> None:
    """Raise the errors, if there are any."""
    if errors:
        raise errors[0] if len(errors) == 1 else OptionErrors(errors)


@contextmanager
def one_line_errors(program: str) -> Iterator[None]:
    """End the program with one line for each configuration error, and exit code 1.

    Also a decorator: ``@one_line_errors("tower-proxy")`` before a ``makeService``.
    """
    try:
        yield
    except (ConfigurationError, usage.UsageError, CannotListenError) as e:
        errors = e.errors if isinstance(e, OptionErrors) else (e,)
        raise SystemExit("\n".join(f"{program}: {one_line(each)}" for each in errors)) from None


def one_line(error: BaseException) -> str:
    """Return the text of an error at start, in one line, with the cure."""
    if isinstance(error, CannotListenError):
        reason = getattr(error.socketError, "strerror", None) or error.socketError
        return (
            f"cannot listen on {error.interface or '*'} port {error.port} ({reason}): "
            "stop what uses it, or choose another"
        )
    return escaped(" ".join(str(error).split()))
