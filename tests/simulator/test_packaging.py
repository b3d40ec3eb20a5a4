import fnmatch
import importlib.util
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest

import heliograph

ROOT = Path(__file__).parents[2]
NAMES = ("heliograph", "simulator", "optical", "electronic", "workloads", "experiments")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_each_name_resolves_to_this_repository(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert Path(spec.origin) == ROOT / name / "__init__.py"


def test_the_tests_are_the_ones_of_this_repository():
    assert Path(__file__).is_relative_to(ROOT / "tests")
    assert PROJECT["tool"]["pytest"]["ini_options"]["testpaths"] == ["tests"]


def test_every_package_on_disk_is_installed():
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    on_disk = {
        ".".join(p.parent.relative_to(ROOT).parts) for n in NAMES for p in (ROOT / n).rglob("__init__.py")
    }
    assert listed == on_disk


def test_every_data_file_is_installed():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]
    for name in NAMES:
        for path in (ROOT / name).rglob("*"):
            inside = path.relative_to(ROOT / name)
            if path.is_dir() or path.suffix == ".py" or "__pycache__" in path.parts:
                continue
            assert any(fnmatch.fnmatch(inside.as_posix(), p) for p in patterns.get(name, [])), (
                f"{path} is left out"
            )


def test_the_version_stands_in_one_place():
    assert PROJECT["project"]["dynamic"] == ["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {heliograph.__version__}\n" in citation


def test_the_installed_distribution_is_this_one():
    try:
        distribution = metadata.distribution("heliograph")
    except metadata.PackageNotFoundError:
        pytest.skip("run from a checkout that is not installed")
    assert distribution.version == heliograph.__version__
    scripts = [point for point in distribution.entry_points if point.group == "console_scripts"]
    assert [(point.name, point.value) for point in scripts] == [("heliograph", "experiments.__main__:main")]


@pytest.mark.parametrize("group", ["dependencies", "test"])
def test_every_dependency_is_pinned(group):
    project = PROJECT["project"]
    needed = project["dependencies"] if group == "dependencies" else project["optional-dependencies"][group]
    pinned = {line.split("==")[0] for line in constraints()}
    assert {name.split(">=")[0] for name in needed} <= pinned


def test_constraints_pin_exactly_and_once():
    lines = constraints()
    names = [line.split("==")[0].lower() for line in lines]
    assert all(line.count("==") == 1 for line in lines)
    assert len(names) == len(set(names))
    assert "torch==2.13.0" in lines


def constraints():
    lines = (line.split("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines())
    return [line for line in lines if line]


def test_the_ground_is_imported_without_torch():
    code = f"import sys, {', '.join(NAMES)}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
