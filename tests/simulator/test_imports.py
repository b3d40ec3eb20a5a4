import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIBLINGS = {"optical", "electronic", "workloads"}
FLOORS = {
    "simulator": set(),
    "optical": {"simulator"},
    "electronic": {"simulator"},
    "workloads": {"simulator"},
    "heliograph": {"simulator", *SIBLINGS},
    "experiments": {"simulator", *SIBLINGS, "heliograph"},
}
TORCH = (  # folders and files that execute products
    "optical/execution/",
    "optical/conversion/",
    "optical/transfer/gradients.py",
    "electronic/numerics.py",
    "workloads/training/",
)
FILES = sorted(path.relative_to(ROOT) for floor in FLOORS for path in (ROOT / floor).rglob("*.py"))


@functools.cache
def imports_of(source, *, only_at_import=False):
    """Return (module, level) of every import, or only of those that run when the file is imported."""
    found, pending = [], [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Import):
            found += [(alias.name, 0) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            found += [
                (node.module or "", node.level),
                *((f"{node.module}.{a.name}", node.level) for a in node.names),
            ]
        lazy = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if typing_only and only_at_import:
            pending += node.orelse
        elif not (lazy and only_at_import):
            pending += ast.iter_child_nodes(node)
    return found


def wrong_import(path, module, level):
    """Return what is wrong with an import of a file, or nothing."""
    package = module.split(".")[0]
    if level:
        return f"{path}: relative import of '{module}'"
    if package == "tests" or (package in FLOORS and package not in {path.parts[0], *FLOORS[path.parts[0]]}):
        return f"{path} must not import {module}"
    return None


def test_imports_point_down_only_and_are_absolute():
    wrong = [wrong_import(path, *one) for path in FILES for one in imports_of((ROOT / path).read_text())]
    assert not list(filter(None, wrong))
    assert wrong_import(Path("simulator/units.py"), "optical.cores", 0)
    assert wrong_import(Path("optical/cores/core.py"), "electronic.gpu", 0)
    assert wrong_import(Path("optical/cores/core.py"), "core", 1)


def test_torch_is_imported_only_where_products_are_executed():
    others = [path for path in FILES if not path.as_posix().startswith(TORCH)]
    assert not [
        str(path)
        for path in others
        if any(
            module.split(".")[0] == "torch"
            for module, _ in imports_of((ROOT / path).read_text(), only_at_import=True)
        )
    ]


@pytest.mark.parametrize("module", ["heliograph", "heliograph.simulation", "experiments.__main__"])
def test_analytic_runs_start_without_torch(module):
    program = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_modules_form_no_cycle():
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in FILES}
    graph = {
        name: {module for module, _ in imports_of((ROOT / path).read_text())} & set(names) - {name}
        for name, path in names.items()
    }
    while leaves := {name for name, needed in graph.items() if not needed}:
        graph = {name: needed - leaves for name, needed in graph.items() if name not in leaves}
    assert not graph, f"these modules import each other: {sorted(graph)}"


DEFINED = {
    node.name
    for path in FILES
    for node in ast.walk(ast.parse((ROOT / path).read_text()))
    if isinstance(node, ast.ClassDef | ast.FunctionDef)
}
FOLDERS = sorted({path.parent for path in FILES})


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_says_what_lives_there(folder):
    """Every module and folder in the words of `__init__.py`, and no module there that is gone."""
    text = (ROOT / folder / "__init__.py").read_text()
    words = set(re.findall(r"(?<!`)`(\w+)`(?!`)", ast.get_docstring(ast.parse(text))))
    inside = {path.stem for path in FILES if path.parent == folder}
    inside |= {one.name for one in FOLDERS if one.parent == folder and one != folder}
    assert inside - words <= {"__init__", "__main__", "_version"}
    assert words - inside <= DEFINED


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_folder_begins_where_a_subject_needs_three_files(folder):
    """Modules, folders and data beside them; less is a module or two of the folder above.

    The pipeline has two: what a schedule from outside imports, and the schedules that ship.
    """
    least = 2 if folder == Path("workloads/pipeline") else 3
    inside = [one for one in (ROOT / folder).iterdir() if one.name not in {"__init__.py", "__pycache__"}]
    assert len(inside) >= least


def test_the_walk_sees_what_it_must_see():
    source = "import a.b\nfrom c import d\nfrom . import e\ndef f():\n    import g\n"
    source += "if TYPE_CHECKING:\n    import h\n"
    assert {name for name, _ in imports_of(source)} >= {"a.b", "c", "c.d", "g", "h"}
    at_once = {name for name, _ in imports_of(source, only_at_import=True)}
    assert at_once >= {"a.b", "c.d"}
    assert not at_once & {"g", "h"}
    assert ("", 1) in imports_of(source)
