"""Profiles of the running proxy for administrators, at paths as those of Go's ``net/http/pprof``."""

from __future__ import annotations

import cProfile
import gc
import io
import marshal
import pstats
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from urllib.parse import parse_qs

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater

from tower.kube.status import StatusError
from tower.web.outcome import NOT_CACHED, Outcome, Response
from tower.web.ports.plain_port import NOSNIFF, TEXT_TYPE

PREFIX = b"/debug/pprof"

#: Duration of a profile: default and longest, s.  Requests are slower meanwhile.
DURATION, LONGEST = 30.0, 50.0

#: Most rows of a page.
ROWS = 100

_TEXT = (TEXT_TYPE, NOSNIFF, NOT_CACHED)
_BINARY = (
    (b"Content-Type", b"application/octet-stream"),
    (b"Content-Disposition", b'attachment; filename="profile"'),
    NOSNIFF,
    NOT_CACHED,
)
_INDEX = """\
/debug/pprof/

profile?seconds=N   functions by CPU time, for N s (default 30); &format=pstats for Python's pstats module
threads             what each thread is doing
objects             number of live objects by type
cmdline             the command line
"""


class Profiling:
    """Makes the pages; one profile at a time."""

    def __init__(self, reactor: IReactorTime) -> None:
        self._reactor = reactor
        self._is_running = False
        self._pages: dict[bytes, Callable[[str], Outcome | Deferred[Outcome]]] = {
            b"": lambda _: _text(_INDEX),
            b"/": lambda _: _text(_INDEX),
            b"/profile": self._profile,
            b"/threads": lambda _: _text(_threads()),
            b"/objects": lambda _: _text(_objects()),
            b"/cmdline": lambda _: _text("\0".join(sys.orig_argv)),
        }

    def page(self, path: bytes, query: bytes) -> Callable[[], Outcome | Deferred[Outcome]] | None:
        """Return the function that makes the page at *path*; None: there is none."""
        make = self._pages.get(path.removeprefix(PREFIX))
        return None if make is None else lambda: make(query.decode("latin-1"))

    def _profile(self, query: str) -> Deferred[Outcome]:
        values = parse_qs(query)
        seconds = _seconds(values.get("seconds", [f"{DURATION:g}"])[0])
        is_binary = values.get("format") == ["pstats"]
        profile = cProfile.Profile()
        if self._is_running:
            raise _in_use("retry when the other profile is complete")
        try:
            profile.enable()
        except ValueError as e:
            raise _in_use("end the other profiler of this process") from e
        self._is_running = True

        def finish(result: object) -> object:
            profile.disable()
            self._is_running = False
            return result

        waiting: Deferred[None] = deferLater(self._reactor, seconds)
        return waiting.addBoth(finish).addCallback(lambda _: _shown(profile, is_binary=is_binary))


def _in_use(cure: str) -> StatusError:
    return StatusError(500, f"Could not enable CPU profiling: cpu profiling already in use: {cure}")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= LONGEST:
        raise StatusError(400, f"seconds {text!r}: give a number from 1 to {LONGEST:g}")
    return seconds


def _shown(profile: cProfile.Profile, *, is_binary: bool) -> Outcome:
    profile.create_stats()
    if is_binary:
        stats = vars(profile)["stats"]
        return Response(200, marshal.dumps(stats), _BINARY)
    text = io.StringIO()
    pstats.Stats(profile, stream=text).sort_stats("tottime").print_stats(ROWS)
    return _text(text.getvalue())


def _threads() -> str:
    names = {each.ident: each.name for each in threading.enumerate()}
    parts = []
    for number, frame in sys._current_frames().items():  # noqa: SLF001 - public by its documentation
        parts.append(f"thread {names.get(number, 'unknown')}:\n{''.join(traceback.format_stack(frame))}")
    return "\n".join(parts)


def _objects() -> str:
    counts = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    lines = [f"{count:10} {name}" for name, count in counts.most_common(ROWS)]
    return "\n".join([f"{sum(counts.values()):10} objects", *lines, ""])


def _text(text: str) -> Response:
    return Response(200, text.encode("utf-8", "backslashreplace"), _TEXT)
