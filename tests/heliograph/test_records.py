import csv
import io
import json
import os
import threading
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest

from heliograph import records
from heliograph.records import (
    TrainingCache,
    check_same_run,
    configuration,
    csv_text,
    fingerprint,
    new_run_directory,
    reserve_directory,
    whole,
    write_atomically,
    write_json,
    write_summary,
    write_trace,
)
from simulator.errors import HeliographError
from simulator.tables import COLUMNS, read_table
from tests.builders import csv_rows


class Kind(StrEnum):
    RING = "ring"


@dataclass(frozen=True, kw_only=True)
class Device:
    name: str = "laser"
    power_w: float = 0.1
    ideal_bits: float = float("inf")
    kind: Kind = Kind.RING


@dataclass(frozen=True, kw_only=True)
class System:
    devices: tuple[Device, ...] = (Device(),)
    weights: np.ndarray
    matrix: np.ndarray


@pytest.fixture
def system():
    return System(weights=np.arange(3), matrix=np.ones((9, 9)))


@pytest.fixture
def config(system, tmp_path):
    path = tmp_path / "optical" / "parameters" / "devices.csv"
    path.parent.mkdir(parents=True)
    path.write_text(",".join(COLUMNS) + "\nlaser,power_w,100,mW,,,published,someone\n")
    return configuration({"photonic": system}, seed=3, arguments={"model": "m"}, tables=[read_table(path)])


def test_the_configuration_holds_every_parameter_with_versions_seed_and_hashes(config):
    device = config["systems"]["photonic"]["devices"][0]
    assert device == {"type": "Device", "name": "laser", "power_w": 0.1, "ideal_bits": "inf", "kind": "ring"}
    assert config["systems"]["photonic"]["weights"] == [0, 1, 2]
    assert config["systems"]["photonic"]["matrix"]["shape"] == [9, 9]
    assert config["seed"] == 3
    assert {"python", "numpy", "torch", "heliograph"} <= set(config["versions"])
    assert list(config["table_sha256"]) == ["optical/devices.csv"]
    json.dumps(config, allow_nan=False)


def test_one_changed_number_is_another_fingerprint(system):
    def of(device):
        return fingerprint(configuration({"a": replace(system, devices=(device,))}, seed=0, arguments={}))

    assert of(Device()) == of(Device())
    assert of(Device()) != of(Device(power_w=0.1 + 1e-15))


def test_a_large_array_counts_in_the_fingerprint(system):
    other = replace(system, matrix=np.ones((9, 9)) * 1.0000001)
    assert fingerprint({"a": system}) != fingerprint({"a": other})


def test_what_cannot_be_recorded_is_named():
    with pytest.raises(HeliographError, match=r"systems\.a\.lock: a lock cannot be recorded"):
        configuration({"a": {"lock": threading.Lock()}}, seed=0, arguments={})


def test_the_same_run_gives_the_same_bytes_apart_from_created(tmp_path):
    texts = []
    for order in (("b", "a"), ("a", "b")):
        path = tmp_path / order[0] / "summary.json"
        path.parent.mkdir()
        found = {key: {"time_s": 0.1 + 0.2, "list": [np.float64(1.5)]} for key in order}
        write_summary(path.parent, "f", found)
        content = json.loads(path.read_text())
        assert content.pop("created").endswith("+00:00")
        texts.append([line for line in path.read_text().splitlines() if '"created"' not in line])
        assert content["a"] == {"time_s": 0.1 + 0.2, "list": [1.5]}
    assert texts[0] == texts[1]


def test_numbers_survive_the_table(tmp_path):
    rows = [{"system": "gpu", "t_s": 0.1 + 0.2, "x": None}, {"system": "light, fast", "t_s": None, "x": -3.5}]
    write_atomically(tmp_path / "table.csv", csv_text(rows))
    rows = csv_rows(tmp_path / "table.csv")
    assert float(rows[0]["t_s"]) == 0.1 + 0.2
    assert rows[1] == {"system": "light, fast", "t_s": "", "x": "-3.5"}


@pytest.mark.parametrize("text", ["=1+1", "+1|cmd", "-1+1", "@SUM(A1)", "\t=1"])
def test_text_that_a_spreadsheet_would_run_is_quoted(text):
    assert list(csv.reader(io.StringIO(csv_text([{"system": text}]), newline="")))[1] == ["'" + text]


def test_control_characters_do_not_reach_the_table():
    assert "\x1b" not in csv_text([{"system": "\x1b[31mred\x00"}])


def test_a_finished_run_of_another_configuration_is_not_overwritten(tmp_path):
    for _ in range(2):
        reserve_directory(tmp_path, "one")
        write_summary(tmp_path, "one", {"a": 1})
    with pytest.raises(HeliographError, match="holds another run; name another directory with --out"):
        reserve_directory(tmp_path, "two")


def test_a_damaged_summary_counts_as_another_run(tmp_path):
    (tmp_path / "summary.json").write_text('{"fingerprint": "on')
    with pytest.raises(HeliographError, match="holds another run"):
        reserve_directory(tmp_path, "one")


def test_an_unfinished_run_may_be_continued(tmp_path):
    write_json(tmp_path / "config.json", {})
    reserve_directory(tmp_path, "two")


def stopped(directory, error):
    with whole(directory, "summary.json") as aside:
        write_json(aside / "config.json", {"text": "third"})
        raise error


def test_a_run_is_written_whole_or_not_at_all(tmp_path):
    for text in ("first", "second"):
        with whole(tmp_path, "summary.json") as aside:
            write_json(aside / "config.json", {"text": text})
            write_summary(aside, "one", {})
    for error in (ValueError, KeyboardInterrupt):
        with pytest.raises(error):
            stopped(tmp_path, error)
    assert json.loads((tmp_path / "config.json").read_text()) == {"text": "second"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "summary.json"]


def test_another_run_is_known_before_its_systems_have_run(tmp_path):
    asked = {"arguments": {"model": "gpt2"}, "systems": {}}
    check_same_run(tmp_path / "none", asked)
    write_json(tmp_path / "config.json", {**asked, "systems": {"gpu": {"tdp_w": 700.0}}})
    write_summary(tmp_path, "one", {})
    check_same_run(tmp_path, asked)
    with pytest.raises(HeliographError, match="holds another run; name another directory"):
        check_same_run(tmp_path, {**asked, "arguments": {"model": "gpt3"}})


def test_a_new_run_takes_the_next_free_name(tmp_path):
    assert new_run_directory(tmp_path, "compare") == tmp_path / "compare"
    (tmp_path / "compare").mkdir()
    write_summary(tmp_path / "compare", "one", {})
    assert new_run_directory(tmp_path, "compare") == tmp_path / "compare-2"


@pytest.mark.parametrize("name", ["../up", "a/b", "", "...", "-rf", "x" * 300, "caf\u00e9 \U0001f600"])
def test_any_name_stays_one_directory_below_the_root(tmp_path, name):
    directory = new_run_directory(tmp_path, name)
    assert directory.parent == tmp_path
    reserve_directory(directory, "f")
    write_summary(directory, "f", {"name": name})
    assert (tmp_path / directory.name / "summary.json").is_file()


def test_a_trace_is_in_the_form_that_perfetto_opens(tmp_path):
    event = {"name": "forward", "ph": "X", "ts": 0.0, "dur": 5.5, "pid": 0, "tid": 1, "args": {"bytes": 3}}
    write_trace(tmp_path / "trace.json", [event])
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"] == [event]


@pytest.mark.parametrize(
    ("code", "message"),
    [("ENOSPC", "the disk is full; free some space"), ("EROFS", "read-only; name another with --out")],
)
def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path, monkeypatch, code, message):
    import errno

    path = tmp_path / "config.json"
    write_json(path, {"a": 1})

    def fail(*_):
        raise OSError(getattr(errno, code), "as the system says it")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(HeliographError, match=message) as caught:
        write_json(path, {"a": 2})
    assert "\n" not in str(caught.value)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_an_output_path_that_is_a_file_is_one_sentence(tmp_path):
    (tmp_path / "out").write_text("")
    for directory in (tmp_path / "out", tmp_path / "out" / "run"):
        with pytest.raises(HeliographError, match="cannot make"):
            reserve_directory(directory, "f")


def test_a_directory_that_vanishes_is_one_sentence(tmp_path):
    with pytest.raises(HeliographError, match="the directory does not exist"):
        write_summary(tmp_path / "run", "f", {})


@pytest.fixture
def cache(tmp_path):
    return TrainingCache(tmp_path / "cache")


def test_a_stored_curve_is_found_again(cache):
    key = cache.key(numerics=Device(), model={"layers": 2}, training={"seed": 1}, corpus_sha256="c")
    assert cache.load(key) is None
    cache.store(key, {"losses": [2.5, 1 / 3]})
    assert cache.load(key) == {"losses": [2.5, 1 / 3]}


def test_every_part_of_a_run_is_in_its_key(cache):
    parts = {"numerics": Device(), "model": {"layers": 2}, "training": {"seed": 1}, "corpus_sha256": "c"}
    other = {
        "numerics": Device(power_w=1),
        "model": {"layers": 3},
        "training": {"seed": 2},
        "corpus_sha256": "d",
    }
    keys = {cache.key(**parts)} | {cache.key(**{**parts, name: value}) for name, value in other.items()}
    assert len(keys) == 5


@pytest.mark.parametrize("content", ["", '{"key": "', "[]", '{"key": "other", "curves": {}}', "\x00\xff"])
def test_a_damaged_entry_is_run_again(cache, content):
    key = cache.key(numerics="exact", model={}, training={}, corpus_sha256="")
    cache.store(key, {"losses": []})
    (cache.directory / f"{key}.json").write_bytes(content.encode("latin-1"))
    assert cache.load(key) is None


def test_versions_are_told_without_importing_torch():
    import subprocess
    import sys

    code = "import sys; from heliograph.records import versions; versions(); sys.exit('torch' in sys.modules)"
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0
    assert records.versions()["torch"] != "absent"


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path):
    """A file put in the place of /dev/full, or of /dev/stdout, breaks more than this program."""
    file, link, pipe = tmp_path / "file", tmp_path / "link", tmp_path / "pipe"
    file.write_text("old")
    link.symlink_to(file)
    records.write_atomically(link, "new")
    assert link.is_symlink()
    assert file.read_text() == "new"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    records.write_atomically(pipe, "through")
    reader.join(timeout=10.0)
    assert read == ["through"]
    assert pipe.is_fifo()
    full = Path("/dev/full")
    if full.exists():
        with pytest.raises(HeliographError, match="cannot write /dev/full: the disk is full"):
            records.write_atomically(full, "x")
        assert full.is_char_device()
