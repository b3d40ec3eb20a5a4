"""Commands and programs of README and docs are run as they stand; one that does not run is a defect."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from experiments import cli

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
NOT_RUN = {
    "make compare": "installs an environment; `heliograph compare`, which it runs, is tested where it stands",
    "make test": "would run this test within itself",
    "git clone": "needs the network",
    "cd heliograph": "follows git clone",
}
READ = {
    "heliograph validate famous": "two minutes; test_famous_runs.py runs every run",
    "heliograph compare --": "half a minute each; test_cli.py runs some, and the README's own is run",
    "heliograph search": "half a minute; test_search.py and test_plan_search.py run it",
    "heliograph core compare": "half a minute; test_cores_command.py runs it smaller",
    "heliograph core rescue": "half a minute; test_rescue.py runs it smaller",
    "heliograph accuracy predict": "half a minute; test_accuracy_command.py runs it",
    "heliograph accuracy photons": "test_photons.py runs it",
    "heliograph split --model": "a minute; test_split.py runs it smaller",
}
"""Commands whose options are read, but which are not run, with what runs them."""
SLOW = ("heliograph compare",)
FENCE = re.compile(
    r"^(?P<fence>`{3,})(?P<info>[^\n`]*)\n(?P<body>.*?)^(?P=fence)`*\s*$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    title: str
    body: str
    commands: tuple[str, ...] = field(default=())

    @property
    def slow(self):
        return any(command.startswith(SLOW) and "--accuracy" in command for command in self.commands)


def blocks_of(text, page=README):
    found = []
    for match in FENCE.finditer(text):
        words = match["info"].split(maxsplit=1) or [""]
        line = text.count("\n", 0, match.start()) + 1
        commands = commands_of(match["body"]) if words[0] == "console" else ()
        found.append(
            Block(page, line, words[0], words[1].strip() if len(words) > 1 else "", match["body"], commands)
        )
    return found


def commands_of(body):
    joined = re.sub(r"\\\n\s*", "", body)
    return tuple(line[2:].strip() for line in joined.splitlines() if line.startswith("$ "))


def reason_not_to_run(command):
    return next((why for start, why in NOT_RUN.items() if f"{command} ".startswith(f"{start} ")), None)


def argv_of(command):
    words = shlex.split(command, comments=True)
    assert words, "an empty command"
    assert words[0] == "heliograph", f"only heliograph is run; list '{words[0]}' in NOT_RUN with its reason"
    return [sys.executable, "-m", "experiments", *words[1:]]


def page_blocks(language):
    """Return the blocks of all pages as test parameters."""
    blocks = [block for page in PAGES for block in blocks_of(page.read_text(), page)]
    return [
        pytest.param(b, id=f"{b.page.name} line {b.line}", marks=[pytest.mark.slow] if b.slow else [])
        for b in blocks
        if b.language == language
    ]


def run(argv, directory):
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "COLUMNS": "110"}
    done = subprocess.run(
        argv, cwd=directory, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert done.returncode == 0, (
        f"{argv[1:]} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    )


@pytest.fixture
def directory(block, tmp_path):
    """Return a directory with the examples and the files that the page shows under a title."""
    for one in ("examples", "tutorials"):
        shutil.copytree(ROOT / "docs" / one, tmp_path / one)
    for one in blocks_of(block.page.read_text(), block.page):
        if one.title and one.language in {"toml", "json", "csv"}:
            (tmp_path / one.title).write_text(one.body)
    return tmp_path


def test_the_readme_shows_commands_and_a_program():
    blocks = blocks_of(README.read_text())
    assert any(command.startswith("make compare") for block in blocks for command in block.commands)
    assert any(command.startswith("heliograph ") for block in blocks for command in block.commands)
    assert any(block.language == "python" for block in blocks)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("block", page_blocks("console"))
def test_commands_of_the_pages_run(block, directory, monkeypatch):
    assert block.commands, f"{block.page.name}:{block.line}: no line starts with '$ '"
    monkeypatch.chdir(directory)
    monkeypatch.setenv("COLUMNS", "110")
    for command in block.commands:
        if command.startswith(tuple(READ)):
            with monkeypatch.context() as patched:
                read = []
                patched.setattr(cli, "drive", lambda name, study, driven, read=read: read.append(name))
                assert cli.run(argv_of(command)[3:]) == 0
            assert command.startswith(f"heliograph {read.pop()}")
        elif reason_not_to_run(command) is None and block.page == README:
            run(argv_of(command), directory)
        elif reason_not_to_run(command) is None:  # in this process: statistics are read once for all pages
            assert cli.run(argv_of(command)[3:]) == 0, command


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("block", page_blocks("python"))
def test_programs_of_the_pages_run(block, directory):
    (directory / "program.py").write_text(block.body)
    run([sys.executable, "program.py"], directory)


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "tutorials").glob("*.py")), ids=lambda path: path.name
)
def test_tutorials_run_and_are_shown(path, tmp_path):
    assert f"tutorials/{path.name}" in (ROOT / "docs" / "tutorials.md").read_text()
    run([sys.executable, str(path)], tmp_path)


TABLE = ("time", "energy", "cost", "power", "price", "snr")
"""Columns of numbers of the README's table."""


@pytest.mark.parametrize(
    ("told", "column", "light", "gpu"),
    [
        ("it takes (1.4) times the time", "time", "h100", "h100:fp8"),
        ("(1.4) times the energy", "energy", "h100", "h100:fp8"),
        ("(2.8) to (2.9) times the money of H100s in fp8", "cost", "h100", "h100:fp8"),
        ("in place of a B200 (1.9) times the time", "time", "b200", "b200:fp8"),
        ("in place of a B200 (1.9) times the time and the energy", "energy", "b200", "b200:fp8"),
        ("and (3.7) to (3.8) times the money", "cost", "b200", "b200:fp8"),
        ("it takes (15) % less time", "time", "h100", "h100:bf16"),
        ("(17) to (18) % less energy and", "energy", "h100", "h100:bf16"),
        ("and (1.7) times the money", "cost", "h100", "h100:bf16"),
        ("which are (22) dB more precise", "snr", "h100", "h100:bf16"),
    ],
)
def test_a_sentence_of_the_readme_follows_from_its_table(told, column, light, gpu):
    """Packets and circuits are its ends, to the digit of the sentence and the three of the table."""
    text = README.read_text()
    found = re.search(told, text)
    assert found, told
    rows = re.findall(r"^ (\w+:\S+)" + r" +([\d.]+)" * len(TABLE), text, re.MULTILINE)
    cells = {name: float(numbers[TABLE.index(column)]) for name, *numbers in rows}
    pairs = [(cells[f"photonic_{way}:{light}"], cells[f"gpu_{way}:{gpu}"]) for way in ("packet", "ocs")]
    if column == "snr":
        exact, slack = sorted(other - one for one, other in pairs), 0.6
    elif "less" in told:
        exact, slack = sorted(100 * (1 - one / other) for one, other in pairs), 1.0
    else:
        exact, slack = sorted(one / other for one, other in pairs), 0.06
    ends = [float(one) for one in found.groups()]
    assert abs(ends[0] - exact[0]) <= slack
    assert abs(ends[-1] - exact[-1]) <= slack


def test_the_readme_is_short():
    assert len(README.read_text().splitlines()) <= 120


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pictures_and_links_of_a_page_exist(page):
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page):
    folders = {one.name for one in ROOT.iterdir() if one.is_dir()}
    for name in re.findall(r"`([\w.-]+/[\w./*-]*)`", page.read_text()):
        if name.partition("/")[0] in folders - {"results", "build"}:
            assert list(ROOT.glob(name)), f"{page.name} names {name}, which does not exist"


SAMPLE = """Text with `$ heliograph not-a-block`.

```console
$ make compare
$ heliograph step --system gpu \\
    --json   # a comment
some output $ heliograph not-a-command
$ heliograph list models
```

```toml my_system.toml
[core]
```

````markdown
```python
inner
```
````

```python
print("x")
```

```console
$ heliograph compare
```
"""


def test_blocks_are_found_with_language_line_and_title():
    found = [(block.language, block.line, block.title) for block in blocks_of(SAMPLE)]
    assert found == [
        ("console", 3, ""),
        ("toml", 11, "my_system.toml"),
        ("markdown", 15, ""),
        ("python", 21, ""),
        ("console", 25, ""),
    ]


def test_commands_are_joined_and_outputs_left_out():
    assert blocks_of(SAMPLE)[0].commands == (
        "make compare",
        "heliograph step --system gpu --json   # a comment",
        "heliograph list models",
    )


def test_only_training_is_slow():
    assert not any(block.slow for block in blocks_of(SAMPLE))
    assert blocks_of("```console\n$ heliograph compare --accuracy\n```\n")[0].slow


def test_a_command_is_run_by_this_interpreter():
    argv = argv_of("heliograph step --set 'laser.power_w=20 mW' # why")
    assert argv == [sys.executable, "-m", "experiments", "step", "--set", "laser.power_w=20 mW"]


@pytest.mark.parametrize("command", ["rm -rf x", "make install", "python x.py"])
def test_an_unlisted_command_fails(command):
    assert reason_not_to_run(command) is None
    with pytest.raises(AssertionError, match="list '"):
        argv_of(command)


def test_a_listed_command_has_a_reason():
    assert reason_not_to_run("make compare ARGS=--quick")
    assert reason_not_to_run("make compared") is None


def test_a_failing_program_fails(tmp_path):
    (tmp_path / "program.py").write_text("raise SystemExit(3)")
    with pytest.raises(AssertionError, match="ended with 3"):
        run([sys.executable, "program.py"], tmp_path)
