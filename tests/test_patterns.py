"""No regular expression of Tower's depends on possessive quantifiers, and none needs long for a long input.

``re`` of Python 3.11.0 to 3.11.4 gets possessive quantifiers and atomic groups wrong (CPython issues 100061
and 106052), and Tower runs there, too.
"""

from __future__ import annotations

import ast
import gc
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

import tower
from tower.cloud.aws.ec2 import _UNUSED
from tower.http import bodies
from tower.http.field_lines import field_lines, field_pairs
from tower.http.paths import has_dot_segment, leaves_prefix
from tower.http.requests import BadHead, Fields, HeadReader
from tower.http.responses import PLAIN, BadResponse, ResponseHead
from tower.kube.head_fields import Upstream
from tower.kube.head_policy import _LINE, _PLAIN_LINE, HeadPolicy
from tower.web.gateway import http_channel
from tower.websocket import frames, server_handshake

_parser: Any = import_module("re._parser")

#: Neither after a backslash nor in a class of characters.
WRONG = re.compile(r"[*+?}]\+|\(\?>")
ESCAPED = re.compile(r"\\.", re.DOTALL)
CLASS = re.compile(r"\[\^?\]?[^\]]*\]")

SIZE = 16 * 1024


def is_wrong(text: str) -> bool:
    """Return whether *text*, maybe a part of a pattern, has a possessive quantifier or an atomic group."""
    return WRONG.search(CLASS.sub("[]", ESCAPED.sub("_", text))) is not None


def literals(source: str) -> Iterator[tuple[int, str]]:
    """Return each string in *source* that is not a docstring, and its line."""
    tree = ast.parse(source)
    docstrings = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in docstrings:
            if isinstance(node.value, bytes):
                yield node.lineno, node.value.decode("latin-1")
            elif isinstance(node.value, str):
                yield node.lineno, node.value


def operations(parsed: Any) -> Iterator[str]:
    """Return what a parsed pattern consists of."""
    if isinstance(parsed, _parser.SubPattern):
        parsed = parsed.data
    if isinstance(parsed, list | tuple):
        for part in parsed:
            yield from operations(part)
    elif hasattr(parsed, "name"):
        yield parsed.name


def patterns(module: ModuleType) -> Iterator[re.Pattern[Any]]:
    """Return the patterns of a module, in any container."""
    seen: set[int] = set()
    found: list[Any] = list(vars(module).values())
    while found:
        each = found.pop()
        if id(each) in seen or isinstance(each, ModuleType):
            continue
        seen.add(id(each))
        if isinstance(each, re.Pattern):
            yield each
        elif isinstance(each, dict):
            found += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            found += each
        elif isinstance(each, type) and each.__module__ == module.__name__:
            found += vars(each).values()


class SourceTests(SynchronousTestCase):
    def test_knows_them(self) -> None:
        """The search finds such patterns."""
        for text in ("a*+", "a++", "a?+", "a{2}+", "(?>a)", r"\++x++", r"[]*+]++", ")*+"):
            self.assertTrue(is_wrong(text), text)
        for text in ("a*", "a+", r"\*+", "[*+]", "[^]*+]", r"\\[a]+", "a*?", "(?:a)+", r"\?\+"):
            self.assertFalse(is_wrong(text), text)

    def test_sources(self) -> None:
        """No string in the sources of Tower has one."""
        sources = sorted(Path(tower.__file__).parent.rglob("*.py"))
        self.assertGreater(len(sources), 100)
        for path in sources:
            for line, text in literals(path.read_text(encoding="utf-8")):
                self.assertFalse(is_wrong(text), f"{path}:{line}: {text!r}")

    def test_compiled(self) -> None:
        """No pattern that a module of Tower keeps has one, however it was put together."""
        count = 0
        for found in walk_packages(tower.__path__, "tower."):
            for pattern in patterns(import_module(found.name)):
                text = pattern.pattern
                named = set(operations(_parser.parse(text, pattern.flags & ~re.DEBUG)))
                self.assertTrue(
                    named.isdisjoint({"POSSESSIVE_REPEAT", "ATOMIC_GROUP"}), f"{found.name}: {text!r}"
                )
                count += 1
        self.assertGreater(count, 100)


def tried(read: Callable[[bytes], object], text: bytes) -> object:
    """Read what may be bad."""
    try:
        return read(text)
    except (BadHead, BadResponse) as e:
        return e


SERVER = Upstream(b"/k8s", b"Host: a\r\n", b"")

IDENTITY = b"Impersonate-User: jane\r\nHost: x\r\n"

#: Prefix and suffix of a long piece, for each reader; a reader takes bytes.
READERS: tuple[
    tuple[str, Callable[[bytes], object], tuple[bytes, ...], tuple[tuple[bytes, bytes], ...]], ...
] = (
    (
        "paths",
        lambda text: (has_dot_segment(text), leaves_prefix(text)),
        (b"/", b".", b"%", b"%25", b"25", b"%2e", b"/a", b"/.a", b"\\", b";", b"%25252e", b"/%2525", b"..."),
        ((b"/", b""), (b"/%", b""), (b"/%25", b"2e")),
    ),
    (
        "request line",
        lambda text: (_LINE.match(text), _PLAIN_LINE.match(text), tried(HeadReader().read, text)),
        (b"A", b"/", b".", b"a.", b"/.", b"?", b"%25", b" ", b"%2e", b"a"),
        (
            (b"GET /", b""),
            (b"", b""),
            (b"GET /", b" HTTP/1.1"),
            (b"GET /?", b" HTTP/1.1\r"),
            (b"GET /%", b"\r\n\r\n"),
        ),
    ),
    (
        "fields",
        lambda text: (field_pairs(field_lines(text) or []), tried(Fields, text)),
        (
            b"a:\r\n",
            b"a",
            b":",
            b" ",
            b"\r\n",
            b"a: b\r\n",
            b",",
            b", ",
            b"\t ,",
            b"a,",
            b"a ",
            b"Impersonate-\r\n",
        ),
        (
            *((b"", b""), (b"", b"\r\n"), (b"", b"\r\n\r\n"), (b"a: ", b"\0\r\n\r\n")),
            *((b"Connection: ", b"\r\n\r\n"), (b"Connection: a", b"(\r\n\r\n"), (b"Host: ", b"!\r\n\r\n")),
            *((b"Upgrade: ", b"!\r\nConnection: upgrade\r\n\r\n"), (b"Impersonate-", b"\r\n\r\n")),
            (b"Sec-WebSocket-Protocol: ", b"\r\n\r\n"),
        ),
    ),
    (
        "policy",
        HeadPolicy(lambda: SERVER).rewrite,
        (
            b"a: b\r\n",
            b"a",
            b" ",
            b"Impersonate-Group: a\r\n",
            b"X-Remote",
            b"Connection: upgrade\r\n",
            b"h2,",
        ),
        (
            (b"GET / HTTP/1.1\r\n" + IDENTITY, b"\r\n"),
            (b"GET / HTTP/1.1\r\nImpersonate-User: ", b"\r\nHost: x\r\n\r\n"),
            (b"GET / HTTP/1.1\r\n" + IDENTITY + b"Upgrade: ", b"\r\n\r\n"),
            (b"GET / HTTP/1.1\r\nContent-Length: 1", b"\r\n" + IDENTITY + b"\r\n"),
        ),
    ),
    (
        "response",
        lambda text: (PLAIN.match(text), tried(partial(ResponseHead, bodiless=False), text)),
        (
            b"a: b\r\n",
            b"C: b\r\n",
            b"a",
            b":",
            b" ",
            b"Connection: keep-alive\r\n",
            b"te",
            b"t:\r\n",
            b"Content-Length",
        ),
        (
            (b"HTTP/1.1 200 OK\r\n", b""),
            (b"HTTP/1.1 200 ", b"\r\n"),
            (b"HTTP/1.1 200 OK\r\n", b"Content-Length: 1\r\na\r\n\r\n"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n", b"Content-Length: 1\r\n\r\n"),
        ),
    ),
    (
        "chunks",
        lambda text: (bodies._SIZE_LINE.match(text), bodies._TRAILER.match(text)),
        (b"1", b" ", b"\t", b";", b"; a", b"a", b":"),
        ((b"", b""), (b"1", b""), (b"1;", b"\n"), (b"a:", b"\r")),
    ),
    (
        "frames",
        lambda text: (frames._RUN.match(text), frames._RUN_IN_MESSAGE.match(text)),
        (b"\0\xfe\4\0", b"\2\xfe\4\0", b"\x80\xfe\4\0", b"\2\xfe\4\0\0\xfe\4\0", b"\2\xfe\4\0\x80\xfe\4\0"),
        ((b"", b""), (b"\2\xfe\4\0", b"\x81"), (b"\x80\xfe\4\0", b"\2\xfe")),
    ),
    (
        "handshake",
        lambda text: (
            server_handshake._REQUEST_LINE.fullmatch(text),
            http_channel._EMPTY_LINES.sub(b"", text),
        ),
        (b"/", b"a", b"\r\n", b"\r", b" HTTP/1.1"),
        ((b"GET /", b""), (b"", b"")),
    ),
    (
        "EC2",
        lambda text: _UNUSED.sub(b"", text),
        (b"<", b"<a", b"<a>", b"</a>", b"<a>b", b"<a>b</a>", b"<tagSet></tagSet>", b"a", b"<a>b</"),
        ((b"", b""), (b"<tagSet>", b""), (b"<", b""), (b"<a>", b"</")),
    ),
)


def work(read: Callable[[bytes], object], text: bytes) -> float:
    """Return how long the processor is busy with *text* at the least, s."""
    best = float("inf")
    for _ in range(3):
        begin = time.thread_time()
        read(text)
        best = min(best, time.thread_time() - begin)
    return best


class LinearTests(SynchronousTestCase):
    def test_long_inputs(self) -> None:
        """Four times the input takes no more than some four times as long, for any content."""
        gc.disable()
        self.addCleanup(gc.enable)
        for name, read, pieces, around in READERS:
            for piece in pieces:
                for before, behind in around:
                    once, more = (before + piece * (size // len(piece)) + behind for size in (SIZE, 4 * SIZE))
                    short, long = work(read, once), work(read, more)
                    for _ in range(3):
                        if long < 10 * short or long < 0.005:  # shorter times are not reliable
                            break
                        short, long = work(read, once), work(read, more)
                    else:
                        self.fail(f"{name}: {before!r} {piece!r} {behind!r}: {short} s, then {long} s")
