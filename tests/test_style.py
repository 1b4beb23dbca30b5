"""House rules that no linter knows: names, arguments, docstrings and turns of phrase. CONTRIBUTING.md states them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tpmdp

SOURCE = Path(tpmdp.__file__).parent
ROOT = Path(__file__).parents[1]
VAGUE = {"told", "made", "kept", "found", "one"}
POSITIONAL_MOST = 3
FOUR_PARTS = {"InputError"}  # field, value, rule, remedy: the one call whose four arguments everybody knows
OVERRIDDEN = {"limits"}  # users override it, and may name its arguments as they like
FOREIGN_CALLS = {"pack", "plain", "fill"}  # struct's, MPyC's, and a compiled function, which takes no keywords
FOREIGN_PHRASES = re.compile(
    r"is no sum|are no sums|for ever\b|\bone a (party|record|row)|[0-9] a (second|round)|words of ours"
    r"|of one's own|\bissue [0-9]|\bspec\.md|design\.md|\bthe specification\b",
    re.IGNORECASE,
)

Tree = tuple[str, ast.Module]


def trees(source: Path = SOURCE) -> list[Tree]:
    return [(str(path.relative_to(source)), ast.parse(path.read_text())) for path in sorted(source.rglob("*.py"))]


def vague_names(module: Tree) -> Iterator[str]:
    """Variables, arguments and functions whose name says nothing."""
    path, tree = module
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) | ast.FunctionDef(name=name):
                if name in VAGUE:
                    yield f"{path}:{node.lineno}: the name {name} says nothing"


def long_calls(module: Tree, ours: set[str]) -> Iterator[str]:
    """Calls of our own functions with more than three arguments by position."""
    path, tree = module
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
            plain = [argument for argument in node.args if not isinstance(argument, ast.Starred)]
            if len(plain) > POSITIONAL_MOST and name in ours - FOUR_PARTS - OVERRIDDEN - FOREIGN_CALLS:
                yield f"{path}:{node.lineno}: {name} gets {len(plain)} arguments by position"


def copies(module: Tree) -> Iterator[str]:
    """`vars(...)` where `dataclasses.replace` or `fields` is meant."""
    path, tree = module
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "vars":
            target = ast.unparse(node.args[0]) if node.args else ""
            if not re.search(r"module|class|cls|kind", target):
                yield f"{path}:{node.lineno}: vars({target})"


def flags(module: Tree) -> Iterator[str]:
    """Errors of the library that name a command-line flag as their field."""
    path, tree = module
    if path.startswith("cli/"):
        return
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "InputError"
            and node.args
        ):
            field = node.args[0]
            if isinstance(field, ast.Constant) and str(field.value).startswith("--"):
                yield f"{path}:{node.lineno}: {field.value!s} is a flag, not a field"


def defined(modules: list[Tree]) -> set[str]:
    """Names of our functions and classes, but for those that take any number of arguments."""
    nodes = [node for _, tree in modules for node in ast.walk(tree)]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    variadic = {node.name for node in functions if node.args.vararg is not None}
    return {node.name for node in nodes if isinstance(node, ast.ClassDef)} | {
        node.name for node in functions
    } - variadic


def undocumented(modules: list[Tree]) -> Iterator[str]:
    """Public methods without a docstring that neither override one nor implement an interface."""
    classes = {node.name: node for _, tree in modules for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}

    def members(node: ast.ClassDef) -> set[str]:
        functions = {item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)}
        return functions | {ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)}

    interfaces = [node for node in classes.values() if "Protocol" in map(ast.unparse, node.bases)]
    promised = {name for node in interfaces for name in members(node)}

    def inherits(node: ast.ClassDef, method: str) -> bool:
        for base in node.bases:
            name = ast.unparse(base).split("[")[0].split(".")[-1]
            parent = classes.get(name)
            if parent is None:  # a class of a library, which documents its methods
                return name not in ("Protocol", "NamedTuple", "ABC", "Generic")
            if method in members(parent):
                return True
            if inherits(parent, method):
                return True
        return False

    for path, tree in modules:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
                for item in methods:
                    if item.name.startswith("_") or ast.get_docstring(item):
                        continue
                    if (node in interfaces or item.name not in promised) and not inherits(node, item.name):
                        yield f"{path}:{item.lineno}: {node.name}.{item.name} has no docstring"


MODULES = trees()
OURS = defined(MODULES)


def test_names_say_something() -> None:
    assert [line for module in MODULES for line in vague_names(module)] == []


def test_arguments_from_the_fourth_on_have_names() -> None:
    assert [line for module in MODULES for line in long_calls(module, OURS)] == []


def test_values_are_copied_by_replace() -> None:
    assert [line for module in MODULES for line in copies(module)] == []


def test_no_error_of_the_library_names_a_flag() -> None:
    assert [line for module in MODULES for line in flags(module)] == []


def test_no_two_public_classes_share_a_name() -> None:
    names = Counter(
        node.name
        for _, tree in MODULES
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_methods_are_documented_where_they_are_defined_first() -> None:
    assert list(undocumented(MODULES)) == []


@pytest.mark.parametrize("folder", ["src", "examples", "benchmarks"])
def test_prose_is_plain_english(folder: str) -> None:
    files = [path for kind in ("*.py", "*.md") for path in (ROOT / folder).rglob(kind)]
    assert [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FOREIGN_PHRASES.search(line)
    ] == []


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("found = 1", "the name found says nothing"),
        ("def f(one): ...", "the name one says nothing"),
        ("def f(a, b, c, d): ...\nf(1, 2, 3, 4)", "f gets 4 arguments by position"),
        ("g = {**vars(release)}", "vars(release)"),
        ("InputError('--as', 1, 'is bad', 'change it')", "--as is a flag, not a field"),
        ("class A:\n    def b(self): ...", "A.b has no docstring"),
    ],
)
def test_each_rule_can_be_broken(source: str, complaint: str) -> None:
    module = ("planted.py", ast.parse(source))
    rules = [*vague_names(module), *long_calls(module, {"f"}), *copies(module), *flags(module), *undocumented([module])]
    assert any(complaint in line for line in rules)
