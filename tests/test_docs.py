"""Pages name only tests, files, modules, options, commands and links that exist."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tower.cli.arguments import parser
from tower.doctor.host_rights import HostRight, needed_rights
from tower.kube.crds.manifests import crds
from tower.options.variables import OPTIONS

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"`(tests(?:\.\w+)+)`")
PAGES = [ROOT / "README.md", ROOT / "tests" / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LEFT_OUT = ROOT / "docs" / "not-carried.md"
CODE = re.compile(r"```(?:\w*)\n(.*?)```|`([^`\n]+)`", re.DOTALL)
FILE = re.compile(r"(?<![\w/.-])(?:tower|tests|docs|deploy|benchmarks|demo|tools|twisted)/[\w./*-]*\w")
MODULE = re.compile(r"tower(?:\.[a-z_0-9]+)+(?:\.[A-Z]\w*)?(?:\.\w+)?")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
PROGRAM = re.compile(r"(?:^|[\s|/])(tower-proxy|tower-agent|tower)((?: +[^\s|]+)*)")
LINK = re.compile(r"\[[^]]+\]\(([^)\s]+)\)")
#: Names in code that look like paths or modules.
NOT_FILES = {
    "deploy/tower-agent",
    "tower.example.org",
    "tower.example.com",
    "tower.cloud_providers",
    "tower/alpha",  # a context
    "tower/beta",
}
#: Options of other programs that pages name without the program: of kubectl, CPython's build, HAProxy's PROXY
#: protocol, cloud commands, and of the runners of tests and benchmarks; one that no program has.
OTHER_OPTIONS = frozenset(
    [
        "as",
        "as-group",
        "as-uid",
        "server-side",
        "reactor",
        "raw",
        "enable-optimizations",
        "with-lto",
        "proxy-header",
        "http-put-response-hop-limit",
        "os-cloud",
        "unmask",
        "profile",
        "property",
        "address",
        "chance",
        "replay",
        "silence",
        "limit",
        "json",
        "read",
        "check",
        "watches",
        "nothing",
    ]
)
LEAST = 40  # names on the page: with fewer the expression has missed them


class SecurityModelTests(SynchronousTestCase):
    """`docs/security-model.md` names a test for each promise."""

    def test_named_tests_exist(self) -> None:
        """Every test that the page names is there, as a module, a class or a method."""
        named = NAMED.findall((ROOT / "docs" / "security-model.md").read_text())
        self.assertGreater(len(named), LEAST)
        self.assertEqual([name for name in named if not _exists(name)], [])


def _exists(name: str) -> bool:
    """Return whether *name* is a module of tests, or a class or method in one."""
    parts = name.split(".")
    for count in range(len(parts), 1, -1):
        path = ROOT.joinpath(*parts[:count]).with_suffix(".py")
        if path.is_file():
            return _defines(ast.parse(path.read_text()).body, parts[count:])
    return False


def _defines(body: list[ast.stmt], names: list[str]) -> bool:
    if not names:
        return True
    return any(
        isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name == names[0]
        and _defines(node.body, names[1:])
        for node in body
    )


def _left_out() -> set[str]:
    """Return the options in the first column of the tables of kube-apiserver's parts that Tower lacks."""
    rows = [line for line in LEFT_OUT.read_text().splitlines() if line.startswith("| ")]
    return {option for row in rows for option in OPTION.findall(row.split(" | ")[0])}


class NamesTests(SynchronousTestCase):
    """Names in code on all pages."""

    def test_files(self) -> None:
        """Files and folders exist; a test may be named by its path below tests or tower."""
        found = [(page.name, name) for page in PAGES for code in _code(page) for name in FILE.findall(code)]
        self.assertGreater(len(found), LEAST)
        wrong = [each for each in found if each[1] not in NOT_FILES and not list(ROOT.glob(each[1]))]
        self.assertEqual(wrong, [])

    def test_modules(self) -> None:
        """Modules exist; a class or function may follow the module."""
        found = [(page.name, code) for page in PAGES for code in _code(page) if MODULE.fullmatch(code)]
        self.assertGreater(len(found), 2)
        self.assertEqual([each for each in found if each[1] not in NOT_FILES and not _is_module(each[1])], [])

    def test_options(self) -> None:
        """Options are those of the programs and of the command."""
        known = OPTIONS | OTHER_OPTIONS | {name for names in _commands().values() for name in names}
        found = [
            (page.name, option)
            for page in PAGES
            for code in _code(page)
            for option in OPTION.findall(code)
            if not _is_foreign(code) and not (page.name == LEFT_OUT.name and option in _left_out())
        ]
        self.assertGreater(len(found), 10 * LEAST)
        self.assertEqual([each for each in found if each[1] not in known], [])

    def test_left_out(self) -> None:
        """Options that are left out do not exist."""
        found = _left_out()
        self.assertGreater(len(found), LEAST // 2)
        self.assertEqual(
            found & (OPTIONS | {name for names in _commands().values() for name in names}), set()
        )

    def test_commands(self) -> None:
        """Lines with the command `tower` name a command that exists, with options that it has."""
        commands = _commands()
        checked, wrong = 0, []
        for page in PAGES:
            for code in _code(page):
                for name, options in _uses(code, commands):
                    checked += 1
                    if name is None or not options <= commands[name]:
                        wrong.append((page.name, code, name, options))
        self.assertGreater(checked, LEAST)
        self.assertEqual(wrong, [])

    def test_links(self) -> None:
        """Links lead to files and headings that exist."""
        checked, wrong = 0, []
        for page in PAGES:
            for link in LINK.findall(CODE.sub("", page.read_text())):
                if not link.startswith("http"):
                    checked += 1
                    if not _leads(page, link):
                        wrong.append((page.name, link))
        self.assertGreater(checked, LEAST)
        self.assertEqual(wrong, [])


def _leads(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    if not anchor:
        return target.exists()
    heads = re.findall(r"(?m)^#+ (.*)$", target.read_text()) if target.is_file() else []
    return anchor in [re.sub(r"[^\w -]", "", head.lower()).strip().replace(" ", "-") for head in heads]


def _is_module(name: str) -> bool:
    parts = name.split(".")
    paths = [ROOT.joinpath(*parts[:count]) for count in range(len(parts), 1, -1)]
    return any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths[:3])


def _is_foreign(code: str) -> bool:
    """Return whether the code is a command of another program."""
    first = code.strip().removeprefix("$ ").split()[:1]
    return (
        bool(first)
        and re.fullmatch(r"kubectl|helm|aws|gcloud|az|openstack|ssh\S*|promtool", first[0]) is not None
    )


def _commands() -> dict[tuple[str, ...], set[str]]:
    """Return the options of each command, by its words."""
    found: dict[tuple[str, ...], set[str]] = {}

    def walk(command: argparse.ArgumentParser, words: tuple[str, ...], before: set[str]) -> None:
        own = before | {name.lstrip("-") for each in command._actions for name in each.option_strings}
        found[words] = own
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                for word, inner in action.choices.items():
                    walk(inner, (*words, word), own)

    walk(parser({}), (), set())
    return found


def _uses(
    code: str, commands: dict[tuple[str, ...], set[str]]
) -> Iterator[tuple[tuple[str, ...] | None, set[str]]]:
    """Yield command and long options of each use of `tower` in a line; None: there is no such command."""
    for program, rest in PROGRAM.findall(code):
        words = rest.split()
        while words and words[0] in ("--state-dir", "--kubeconfig", "--context"):
            words = words[2:]
        if program != "tower" or not words or not re.fullmatch(r"[a-z-]+", words[0]) or words[0][0] == "-":
            continue
        name: tuple[str, ...] = ()
        for word in words:
            if (*name, word) not in commands:
                break
            name = (*name, word)
        options = set(OPTION.findall(" ".join(words).partition(" --agent")[0]))
        yield (name or None), options


def _code(page: Path) -> Iterator[str]:
    """Yield the code on a page: spans, and lines of blocks; continued lines are joined."""
    for block, span in CODE.findall(page.read_text()):
        yield from (block.replace("\\\n", " ").splitlines() if block else [span])


class HostRightsTests(SynchronousTestCase):
    """The table of rights in `docs/host-cluster.md`."""

    def test_are_those_of_the_manifest(self) -> None:
        """The table has exactly the rights of ``tower rbac host``."""
        text = (ROOT / "docs" / "host-cluster.md").read_text()
        section = text[text.index("\n## Rights\n") : text.index("\n## Messages\n")]
        rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
        self.assertGreater(len(rows), 8)
        shown: set[tuple[str, str, str, str]] = set()
        for resource, scope, verbs, _ in rows:
            first, *others = re.findall(r"`([^`]+)`", resource)
            kinds = [first]
            if first == "*.tower.kubesphere.io":
                kinds = [crd["metadata"]["name"] for crd in crds() if crd["spec"]["scope"] == "Namespaced"]
                kinds.remove(f"{others.pop()}.tower.kubesphere.io")
            for kind in kinds:
                shown |= {(kind, "".join(others), PLACES[scope], verb) for verb in verbs.split(", ")}
        self.assertEqual(shown, {_shown(each) for each in needed_rights("records")})


#: Namespaces of the scopes in the table.
PLACES = {"all namespaces": "", "namespace of the records": "records", "namespace `default`": "default"}


def _shown(right: HostRight) -> tuple[str, str, str, str]:
    plural, slash, subresource = right.resource.partition("/")
    kind = f"{plural}.{right.group}" if right.group else plural
    return f"{kind}{slash}{subresource}", right.name, right.namespace, right.verb
