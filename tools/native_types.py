"""Traps of mypyc that only types show; see ``check-native``.

mypyc's front end checks the types and makes the intermediate representation (IR) of the modules; no C
compiler is needed.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator

from mypy.build import build
from mypy.errors import CompileError
from mypy.fscache import FileSystemCache
from mypy.nodes import TypeInfo
from mypy.options import Options
from mypy.plugin import FunctionContext, Plugin
from mypy.subtypes import is_subtype
from mypy.types import Instance, Type, UnionType, get_proper_type
from mypy.typevars import fill_typevars
from mypyc.build import construct_groups, get_mypy_config
from mypyc.codegen.emitmodule import MypycPlugin, compile_modules_to_ir
from mypyc.errors import Errors
from mypyc.ir.func_ir import FuncIR
from mypyc.ir.ops import (
    BasicBlock,
    Branch,
    Call,
    CallC,
    Cast,
    DecRef,
    GetAttr,
    IncRef,
    MethodCall,
    Op,
    PrimitiveOp,
    SetAttr,
    Unbox,
    Value,
)
from mypyc.irbuild.mapper import Mapper
from mypyc.options import CompilerOptions
from native_sources import Finding

# Functions of mypyc's runtime library (for integers, strings, bytes, exceptions) that call no code of Tower.
HARMLESS = ("CPyTagged_", "CPyLong_", "CPyStr_", "CPyBytes_", "CPy_")
# Classes of weak references: which of their type arguments is the type of the referent.
WEAK = {
    "WeakKeyDictionary": 0,
    "WeakValueDictionary": 1,
    "WeakSet": 0,
    "ReferenceType": 0,
    "ref": 0,
    "finalize": -1,
}


class Uncompilable(Exception):
    """The modules cannot be compiled; the argument is mypy's or mypyc's messages."""


def check_types(compiled: dict[str, str], others: list[str]) -> Iterator[Finding]:
    """Yield the traps in the *compiled* modules, and weak references to their classes, also in *others*.

    :param compiled: the paths of the modules, by name.
    :param others: paths.
    :raise Uncompilable: there is an error.
    """
    options, cache = CompilerOptions(), FileSystemCache()
    paths = list(compiled.values())
    sources, everything, config = get_mypy_config([*paths, *others], paths, options, cache)
    groups = construct_groups(sources, separate=False, use_shared_lib=True, group_name_override="checked")
    plugin, references = MypycPlugin(config, options, groups), WeakReferences(config)
    try:
        result = build(everything, config, fscache=cache, extra_plugins=[plugin, references])
    except CompileError as e:
        raise Uncompilable("\n".join(e.messages)) from e
    finally:
        plugin.metastore.close()
    mapper = Mapper({source.module: name for group, name in groups for source in group})
    errors = Errors(config)
    modules = {} if result.errors else compile_modules_to_ir(result, mapper, options, errors)
    if result.errors or errors.num_errors:
        raise Uncompilable("\n".join(result.errors or errors.new_messages()))
    for name, module in modules.items():
        for function in module.functions:
            yield from check_reads(compiled[name], function)
    for info, one in mapper.type_to_ir.items():
        if one.is_ext_class and not one.is_trait and not one.has_dict:
            yield from references.find(info)


def check_reads(path: str, function: FuncIR) -> Iterator[Finding]:
    """Yield the reads of attributes after a call that rely on a check of their type before it."""
    places: dict[Op, tuple[BasicBlock, int]] = {}
    uses: dict[Value, list[Op]] = defaultdict(list)
    before: dict[BasicBlock, list[BasicBlock]] = defaultdict(list)
    for block in function.blocks:
        for target in block.terminator.targets():
            before[target].append(block)
        for index, op in enumerate(block.ops):
            places[op] = block, index
            for source in op.sources():
                uses[source].append(op)
    for op in places:
        if (
            isinstance(op, Cast | Unbox)
            and isinstance(op.src, GetAttr)
            and op.type != op.src.type
            and not op.src.class_type.class_ir.is_generated  # a variable of a generator or closure
            and all(is_conversion(use) for use in uses[op.src])
            and (call := call_before(op.src, *places[op.src], before))
        ):
            kind = str(op.type).rpartition(".")[2]
            what = f"{op.src.attr} is read as {kind} again after the call in line {call.line}"
            yield Finding(path, op.line, what, "assign it to a variable before the check")


def is_conversion(op: Op) -> bool:
    """Return whether *op* converts a value, or is part of that; otherwise, it may be a check of the value."""
    return isinstance(op, Cast | Unbox | IncRef | DecRef) or (
        isinstance(op, Branch) and op.op == Branch.IS_ERROR
    )


def call_before(
    read: GetAttr, block: BasicBlock, index: int, before: dict[BasicBlock, list[BasicBlock]]
) -> Op | None:
    """Return a call between the last access to an attribute and *read*, which is at *index* in *block*."""
    left, seen = [(block, block.ops[:index])], set()
    while left:
        block, ops = left.pop()
        for op in reversed(ops):
            if isinstance(op, GetAttr | SetAttr) and op.attr == read.attr:
                break
            if is_call(op):
                return op
        else:
            for previous in before[block]:
                if previous not in seen:
                    seen.add(previous)
                    left.append((previous, previous.ops))
    return None


def is_call(op: Op) -> bool:
    """Return whether *op* may run code of Tower."""
    if isinstance(op, CallC):
        return not op.function_name.startswith(HARMLESS)
    return isinstance(op, Call | MethodCall | PrimitiveOp)


class WeakReferences(Plugin):
    """Records weak references while mypy checks the types."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._references: list[tuple[str, int, Instance]] = []

    def get_function_hook(self, fullname: str) -> Callable[[FunctionContext], Type] | None:
        """Return the method that records what a function returns."""
        return self._record if fullname.rpartition(".")[2] in {*WEAK, "field"} else None

    def _record(self, context: FunctionContext) -> Type:
        made = get_proper_type(context.default_return_type)
        if isinstance(made, Instance) and made.type.name in WEAK:
            referent = get_proper_type(made.args[WEAK[made.type.name]])
            items = referent.items if isinstance(referent, UnionType) else [referent]
            for item in map(get_proper_type, items):
                if isinstance(item, Instance) and item.type.fullname != "builtins.object":
                    self._references.append((context.api.path, context.context.line, item))
        return context.default_return_type

    def find(self, info: TypeInfo) -> Iterator[Finding]:
        """Yield the weak references to a native class."""
        for path, line, referent in self._references:
            if is_subtype(fill_typevars(info), referent):
                what = f"{info.name} is native and cannot be weakly referenced"
                cure = "refer to an interpreted object, or delete the entry at its end"
                yield Finding(path, line, what, cure)
