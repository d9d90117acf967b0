"""Traps of mypyc that the syntax of the sources shows; see ``check-native``."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

CONSTANT = re.compile(r"_?[A-Z][A-Z0-9_]*")
# Decorators and metaclasses of native classes.
COMPILED = {
    "abc.ABCMeta",
    "dataclasses.dataclass",
    "mypy_extensions.mypyc_attr",
    "mypy_extensions.trait",
    "typing.final",
}
IMPLEMENTER = "zope.interface.implementer"
# Bases of classes that are meant to stay interpreted.
INTERPRETED = {
    "typing.NamedTuple",
    "typing.TypedDict",
    "enum.Enum",
    "enum.IntEnum",
    "enum.Flag",
    "enum.StrEnum",
}
# Functions that create a type, not a constant.
TYPES = {"typing.TypeVar", "typing.ParamSpec", "typing.NewType"}
OBJECTS = ast.Call | ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp


@dataclass(frozen=True, order=True)
class Finding:
    """A trap in a source file."""

    path: str
    line: int
    what: str
    cure: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}: {self.cure}"


@dataclass(frozen=True)
class Module:
    """A parsed module."""

    name: str
    path: str
    tree: ast.Module

    @cached_property
    def names(self) -> dict[str, str]:
        """Full names of its imports and of its classes, by the names that it uses."""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom):
                names.update(
                    {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
                )
            elif isinstance(node, ast.Import):
                names.update({alias.asname: alias.name for alias in node.names if alias.asname})
            elif isinstance(node, ast.ClassDef):
                names[node.name] = f"{self.name}.{node.name}"
        return names

    def full_name(self, node: ast.expr | None) -> str:
        """Return the full name of a class or function, without the arguments of a generic class or a call."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.full_name(node.value)}.{node.attr}"
        if isinstance(node, ast.Subscript):
            return self.full_name(node.value)
        return self.full_name(node.func) if isinstance(node, ast.Call) else ""

    def find(self, node: ast.stmt | ast.excepthandler, what: str, cure: str) -> Finding:
        """Return a finding in the line of *node*."""
        return Finding(self.path, node.lineno, what, cure)


@dataclass(frozen=True)
class Class:
    """A class definition."""

    module: Module
    node: ast.ClassDef

    @cached_property
    def bases(self) -> list[str]:
        """The full names of its bases."""
        return [self.module.full_name(base) for base in self.node.bases]

    @cached_property
    def unsupported(self) -> list[str]:
        """The decorators and the metaclass with which mypyc does not make a native class."""
        metaclasses = [keyword.value for keyword in self.node.keywords if keyword.arg == "metaclass"]
        names = map(self.module.full_name, [*self.node.decorator_list, *metaclasses])
        return [name for name in names if name not in COMPILED]

    @property
    def is_interpreted(self) -> bool:
        """Whether it is meant to stay interpreted in a compiled module."""
        return self.has_attribute("native_class", value=False) or not INTERPRETED.isdisjoint(self.bases)

    @property
    def is_native(self) -> bool:
        """Whether mypyc makes a native class of it."""
        return not self.is_interpreted and not self.unsupported

    @property
    def is_protocol(self) -> bool:
        """Whether it is a protocol."""
        return "typing.Protocol" in self.bases

    def has_attribute(self, name: str, *, value: bool) -> bool:
        """Return whether it has an attribute of mypyc, set with ``mypyc_attr``."""
        calls = (decorator for decorator in self.node.decorator_list if isinstance(decorator, ast.Call))
        keywords = (keyword for call in calls for keyword in call.keywords)
        return any(
            keyword.arg == name and isinstance(keyword.value, ast.Constant) and keyword.value.value is value
            for keyword in keywords
        )


def read_modules(root: Path) -> dict[str, Module]:
    """Return the modules of a package by name; *root* is its path, relative to the directory around it."""
    modules = {}
    for path in sorted(root.rglob("*.py")):
        parts = path.with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules[name] = Module(name, str(path), ast.parse(path.read_text()))
    return modules


def check_sources(modules: dict[str, Module], compiled: Iterable[str]) -> Iterator[Finding]:
    """Yield the traps in the *compiled* modules, and in interpreted classes that inherit from theirs."""
    native = {}
    classes = [
        Class(module, node)
        for module in modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    ]
    compiled = set(compiled)
    for one in classes:
        if one.module.name in compiled:
            yield from check_class(one)
            if one.is_native:
                native[f"{one.module.name}.{one.node.name}"] = one
    for one in classes:
        if one.module.name not in compiled or not one.is_native:
            yield from check_bases(one, modules, native)
    for name in sorted(compiled):
        yield from check_constants(modules[name])
        yield from check_handlers(modules[name])


def check_class(one: Class) -> Iterator[Finding]:
    """Yield the traps in a class of a compiled module."""
    module, node = one.module, one.node
    if one.is_interpreted:
        return
    for name in one.unsupported:
        if name == IMPLEMENTER:
            cure = f"call classImplements({node.name}, …) after the class"
        else:
            cure = "write its methods out, or move it to a module that is not compiled"
        yield module.find(node, f"{name} keeps {node.name} interpreted", cure)
    if one.unsupported or "dataclasses.dataclass" in map(module.full_name, node.decorator_list):
        return
    for statement in node.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        if (
            module.full_name(target) != "__slots__"
            and annotation_of(module, statement) not in {"typing.ClassVar", "typing.Final"}
            and any(isinstance(part, OBJECTS) for part in ast.walk(statement.value))
        ):
            what = f"each {node.name} gets its own {ast.unparse(target)}"
            yield module.find(statement, what, "annotate it with ClassVar")


def check_bases(one: Class, modules: dict[str, Module], native: dict[str, Class]) -> Iterator[Finding]:
    """Yield the traps in the bases of an interpreted class."""
    for name in one.bases:
        base = native.get(definition_of(name, modules))
        if base is None or (base.is_protocol and one.is_protocol):
            continue
        what = f"{one.node.name} is interpreted, but its base {base.node.name} is native"
        if base.is_protocol:
            yield one.module.find(one.node, what, "leave out the base; a protocol needs none")
        elif not base.has_attribute("allow_interpreted_subclasses", value=True):
            cure = f"decorate {base.node.name} with @mypyc_attr(allow_interpreted_subclasses=True)"
            yield one.module.find(one.node, what, cure)


def check_constants(module: Module) -> Iterator[Finding]:
    """Yield the constants of a module that are not declared as such, so that each use looks them up."""
    assigned: dict[str, list[ast.Assign | ast.AnnAssign]] = defaultdict(list)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            for name in node.names:
                assigned[name] += [ast.Assign()] * 2  # a variable
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    assigned[target.id].append(statement)
    for name, statements in assigned.items():
        if (
            CONSTANT.fullmatch(name)
            and len(statements) == 1
            and annotation_of(module, statements[0]) not in {"typing.Final", "typing.TypeAlias"}
            and module.full_name(statements[0].value) not in TYPES
        ):
            yield module.find(statements[0], f"{name} is looked up for each use", "annotate it with Final")


def check_handlers(module: Module) -> Iterator[Finding]:
    """Yield the names that two ``except`` clauses of a function bind to errors of different types."""
    for function in ast.walk(module.tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            continue
        types: dict[str, str] = {}
        for node in nodes_of(function):
            if isinstance(node, ast.ExceptHandler) and node.name and node.type:
                caught = ast.unparse(node.type)
                if types.setdefault(node.name, caught) != caught:
                    what = f"{node.name} was {types[node.name]} in this function, and is {caught} here"
                    yield module.find(node, what, "use another name")


def nodes_of(function: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function in their order, without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from nodes_of(node)


def annotation_of(module: Module, statement: ast.Assign | ast.AnnAssign) -> str:
    """Return the full name of the annotation, without its arguments; empty: there is none."""
    return module.full_name(statement.annotation) if isinstance(statement, ast.AnnAssign) else ""


def definition_of(name: str, modules: dict[str, Module]) -> str:
    """Return the full name by which a class is defined; *name* may be that of a module that imports it."""
    module, _, short = name.rpartition(".")
    known = modules[module].names.get(short, name) if module in modules else name
    return name if known == name else definition_of(known, modules)
