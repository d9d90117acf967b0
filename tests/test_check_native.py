"""Tests of `tools/check-native`: each trap in a small source is found, and its cure is not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from textwrap import dedent

from twisted.trial.unittest import SynchronousTestCase

_TOOL = Path(__file__).parents[1] / "tools" / "check-native"
_CONFIG = """
[tool.mypy]
explicit_package_bases = true
ignore_missing_imports = true
namespace_packages = true
"""
_MODULES = {
    "narrowed": """
        class Link:
            def __init__(self) -> None:
                self.text: str | None = ""

            def act(self) -> None:
                self.text = None

            def trap(self) -> int:
                if self.text is not None:
                    self.act()
                    return len(self.text)  # TRAP
                return 0

            def after_assignment(self) -> int:
                self.text = "a"
                self.act()
                return len(self.text)  # TRAP

            def in_a_loop(self) -> None:
                if self.text is not None:
                    while True:
                        print(self.text.upper())  # TRAP

            def variable(self) -> int:
                text = self.text
                if text is not None:
                    self.act()
                    return len(text)
                return 0

            def checked_again(self) -> int:
                if self.text is not None:
                    self.act()
                    if self.text is not None:  # TRAP
                        return 1
                return 0

            def without_a_call(self, more: str) -> str:
                if self.text is not None and more:
                    return self.text + more
                return more


        class Chain:
            def __init__(self, link: Link) -> None:
                self.link: Link | None = None
                self.any: Link | Chain = link

            def same(self, link: Link) -> Link | None:
                if self.link is link:
                    link.act()
                    return self.link  # TRAP
                return None

            def one_of_two(self, link: Link) -> None:
                if isinstance(self.any, Link):
                    link.act()
                    self.any.act()  # TRAP
        """,
    "handlers": """
        def trap(text: str) -> int:
            try:
                return int(text)
            except ValueError as e:
                print(e)
            try:
                return len(text)
            except TypeError as e:  # TRAP
                print(e)
            return 0

        def other_names(text: str) -> int:
            try:
                return int(text)
            except ValueError as e:
                print(e)
            except TypeError as error:
                print(error)
            return 0

        def same_type(text: str) -> int:
            try:
                return int(text)
            except ValueError as e:
                print(e)
            try:
                return int(text)
            except ValueError as e:
                print(e)
            return 0
        """,
    "referents": """
        from typing import Protocol

        class Target:
            pass

        class Named(Protocol):
            @property
            def name(self) -> str: ...

        class WithName:
            def __init__(self) -> None:
                self.name = ""

        class Ended(Exception):
            pass
        """,
    "bodies": """
        from typing import ClassVar, Final
        from dataclasses import dataclass, field

        class Log:
            log = dict[str, str]()  # TRAP
            names: list[str] = []  # TRAP
            shared: ClassVar[list[str]] = []
            fixed: Final = frozenset({1})
            number = 1
            pair: tuple[int, ...] = (1, -2)
            __slots__ = ()

        @dataclass
        class Record:
            names: list[str] = field(default_factory=list)
        """,
    "constants": """
        from typing import Final, TypeAlias, TypeVar

        _LIMIT = 4  # TRAP
        NAMES: list[str] = []  # TRAP
        TIMEOUT: Final = 4.0
        WORDS: Final[list[str]] = []
        T = TypeVar("T")
        ID: TypeAlias = int
        names = ""
        COUNT = 0

        def count() -> None:
            global COUNT
            COUNT += 1
        """,
    "decorated": """
        from abc import ABCMeta
        from typing import NamedTuple, final
        from attrs import define
        from mypy_extensions import mypyc_attr
        from zope.interface import classImplements, implementer
        from tower.interfaces import IThing

        @define
        class Defined:  # TRAP
            a: int

        @implementer(IThing)
        class Thing:  # TRAP
            pass

        class Typed(metaclass=type("Meta", (type,), {})):  # type: ignore  # TRAP
            pass

        @final
        class Cured:
            pass

        classImplements(Cured, IThing)

        class Abstract(metaclass=ABCMeta):
            pass

        @mypyc_attr(native_class=False)
        @define
        class Interpreted:
            a: int

        class Pair(NamedTuple):
            a: int
        """,
    "bases": """
        from typing import Protocol
        from mypy_extensions import mypyc_attr

        class Closed:
            pass

        @mypyc_attr(allow_interpreted_subclasses=True)
        class Open:
            pass

        class Pipe(Protocol):
            def send(self) -> None: ...

        class Compiled(Closed):
            pass
        """,
}
#: Modules that stay interpreted.
_OTHERS = {
    "interfaces": """
        from zope.interface import Interface

        class IThing(Interface):
            pass
        """,
    "exports": "from tower.bases import Closed as Renamed\n",
    "subclasses": """
        from typing import Protocol
        import tower.bases as bases
        from tower.bases import Open, Pipe
        from tower.exports import Renamed

        class Direct(bases.Closed):  # TRAP
            pass

        class Indirect(Renamed):  # TRAP
            pass

        class Socket(Pipe):  # TRAP
            def send(self) -> None:
                pass

        class Allowed(Open):
            pass

        class LongPipe(Pipe, Protocol):
            pass
        """,
    "references": """
        import weakref
        from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref
        from attrs import define, field
        from tower.referents import Ended, Named, Target

        class Interpreted:
            pass

        class Subclass(Target):  # TRAP
            pass

        @define
        class Owner:
            targets: WeakSet[Target] = field(factory=WeakSet)  # TRAP
            objects: WeakSet[Interpreted] = field(factory=WeakSet)

        def trap(target: Target, maybe: Target | None, one: Interpreted) -> None:
            keys: WeakKeyDictionary[Target, int] = WeakKeyDictionary()  # TRAP
            values = WeakValueDictionary[int, Target]()  # TRAP
            named: WeakSet[Named] = WeakSet()  # TRAP
            ref(target)  # TRAP
            weakref.finalize(target, print)  # TRAP
            ref(maybe or one)  # TRAP

        def cured(one: Interpreted, error: Ended, subclass: Subclass) -> None:
            keys: WeakKeyDictionary[Interpreted, Target] = WeakKeyDictionary()
            values = WeakValueDictionary[Target, Interpreted]()
            ref(one)
            ref(error)  # errors have a dictionary
            ref(subclass)
        """,
}


@cache
def check() -> tuple[int, str]:
    """Return the exit status and the output for all sources, which are checked once."""
    root = Path(mkdtemp())
    package = root / "tower"
    package.mkdir()
    for name, source in {**_MODULES, **_OTHERS}.items():
        (package / f"{name}.py").write_text(dedent(source))
    (package / "__init__.py").touch()
    (package / "native.py").write_text(f"MODULES = {tuple(f'tower.{name}' for name in _MODULES)}\n")
    (root / "pyproject.toml").write_text(_CONFIG)
    done = run(root)
    shutil.rmtree(root)
    return done.returncode, done.stdout + done.stderr


def run(root: Path) -> subprocess.CompletedProcess[str]:
    """Check the package below *root*."""
    return subprocess.run([sys.executable, str(_TOOL)], cwd=root, capture_output=True, text=True, check=False)


class CheckTests(SynchronousTestCase):
    """Findings in sources, whose traps are marked."""

    def check(self, name: str, *words: str) -> None:
        """Check that the traps of a module are found in their lines, and that messages contain *words*."""
        _, output = check()
        source = dedent({**_MODULES, **_OTHERS}[name])
        expected = [number for number, line in enumerate(source.split("\n"), 1) if line.endswith("# TRAP")]
        prefix = f"tower/{name}.py:"
        lines = [line.removeprefix(prefix) for line in output.split("\n") if line.startswith(prefix)]
        self.assertEqual([int(line.partition(":")[0]) for line in lines], expected, output)
        for word in words:
            self.assertIn(word, "\n".join(lines))

    def test_narrowed(self) -> None:
        """An attribute is not read after a call as of the type that was checked before the call."""
        self.check("narrowed", "text is read as str again after the call in line 11: assign it to")

    def test_handlers(self) -> None:
        """One name is not bound to two types of errors in one function."""
        self.check("handlers", "e was ValueError in this function, and is TypeError here: use another name")

    def test_references(self) -> None:
        """Native classes are not weakly referenced, in containers, by their protocols, or directly."""
        self.check("references", "Target is native and cannot", "WithName is native and cannot")

    def test_bodies(self) -> None:
        """Objects in the body of a class are shared by its instances only if declared so."""
        self.check("bodies", "each Log gets its own log: annotate it with ClassVar")

    def test_constants(self) -> None:
        """Constants are declared as such; variables, types and aliases are not constants."""
        self.check("constants", "_LIMIT is looked up for each use: annotate it with Final")

    def test_decorated(self) -> None:
        """Decorators and metaclasses that keep a class interpreted are found, unless that is declared."""
        self.check("decorated", "attrs.define keeps Defined interpreted", "call classImplements(Thing, …)")

    def test_subclasses(self) -> None:
        """Interpreted classes inherit only from native classes that allow it, and not from protocols."""
        self.check("subclasses", "decorate Closed with @mypyc_attr(", "leave out the base")
        self.check("bases")

    def test_status(self) -> None:
        """Findings make the check fail."""
        status, output = check()
        self.assertEqual(status, 1, output)
        self.assertIn(f" findings in {len(_MODULES)} modules", output)

    def test_clean(self) -> None:
        """A program without traps passes."""
        root = self.package("class Target:\n    pass\n")
        done = run(root)
        self.assertEqual((done.returncode, done.stdout), (0, "0 findings in 1 modules\n"), done.stderr)

    def test_error(self) -> None:
        """Sources that mypy or mypyc rejects fail the check, with its message."""
        for source, message in (
            ("number: int = ''\n", "Incompatible types in assignment"),
            (
                "def make() -> None:\n    class Inner:\n        pass\n",
                "Nested class definitions not supported",
            ),
        ):
            done = run(self.package(source))
            self.assertEqual(done.returncode, 1)
            self.assertIn("tower/only.py:", done.stdout)
            self.assertIn(message, done.stdout)

    def package(self, source: str) -> Path:
        """Return the directory of a package whose only compiled module has this *source*."""
        root = Path(self.mktemp())
        (root / "tower").mkdir(parents=True)
        (root / "tower" / "__init__.py").touch()
        (root / "tower" / "native.py").write_text('MODULES = ("tower.only",)\n')
        (root / "tower" / "only.py").write_text(source)
        (root / "pyproject.toml").write_text(_CONFIG)
        return root
