import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.errors import ParameterError
from simulator.files import MAX_BYTES, MAX_DEPTH, read_json, read_text, read_toml


@pytest.fixture
def written(tmp_path):
    def write(content, name="file.toml"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_toml_is_read_with_mark_and_windows_line_ends(written):
    path = written(b"\xef\xbb\xbf# comment\r\n[core]\r\nrows = 64\r\nname = 'caf\xc3\xa9'\r\n")
    assert read_toml(path) == {"core": {"rows": 64, "name": "café"}}


def test_json_is_read_with_mark_and_windows_line_ends(written):
    assert read_json(written(b'\xef\xbb\xbf{\r\n"a": [1, 2.5e3, "x"]\r\n}\r\n')) == {"a": [1, 2500.0, "x"]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "file.toml: is empty"),
        ("\n \t\n", "file.toml: is empty"),
        ("a = 1\nb = [1, 2", "file.toml: not TOML|file.toml:2: not TOML"),
        ("a = 1\nb = \n", "file.toml:2: not TOML: invalid value"),
        ("a = 1\n\na = 2\n", "file.toml:3: key 'a' stands twice in one table; keep one"),
        (
            'gpu = "h100"\n[gpu.chip]\na = 1\n',
            r"file.toml:2: table \[gpu.chip\] .* as a table, \[gpu\] with part = \"h100\" beneath",
        ),
        ('fabric = "torus"\n[fabric]\nx = 1\n', r"\[fabric\] with kind = \"torus\" beneath"),
        ("[t]\na = 1\nrate = nan\n", r"file.toml:3: 't\.rate' is nan; write a finite number"),
        ("[t]\nrate = -inf\n", r"file.toml:2: 't\.rate' is -inf"),
        ("x = [1.0, inf]\n", r"'x\.1' is inf"),
        ("a = no\n", "file.toml:1: not TOML"),
        ("a = " + "9" * 5000, "file.toml.*not TOML"),
        ("a = " + "[" * 3000 + "]" * 3000, "nested deeper"),
        ("a = " + "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), f"nested deeper than {MAX_DEPTH}"),
        ("a = 1\n".encode("utf-16"), "save it as UTF-8"),
        ("a = 1\n".encode("utf-16-le"), "save it as UTF-8"),
        (b"a = 1\nname = 'caf\xe9'\n", r"file.toml:2: is not UTF-8 text \(byte 0xe9\)"),
        (b"#" * (MAX_BYTES + 1), "larger than 4 MiB"),
    ],
)
def test_a_bad_toml_file_is_one_sentence(written, content, message):
    with pytest.raises(ParameterError, match=message) as caught:
        read_toml(written(content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "file.json: is empty"),
        ('{"a": 1,\n "b": [1, 2', "file.json:2: not JSON: the file ends too early"),
        ('{"a": 1,\n "b" 2}', "file.json:2: not JSON: expecting ':' delimiter"),
        ('{"a": 1,\n "b": 2,\n "a": 3}', "file.json:3: key 'a' stands twice"),
        ('{"x": {"a": 1}, "y": {"a": 1, "a": 2}}', "file.json: key 'a' stands twice"),
        ('{"a": 1,\n "b": NaN}', "file.json:2: NaN is not a number"),
        ('{"b": -Infinity}', "file.json:1: -Infinity is not"),
        ('{"a": 1,\n "b": 1e999}', "file.json:2: 'b' is inf"),
        ('{"a": ' + "9" * 5000 + "}", "file.json: not JSON"),
        ("[1, 2]", "holds a list where an object"),
        ("null", "holds a NoneType where an object"),
        ('{"a":' * 100000, "nested deeper"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested deeper"),
        ('{"a": 1}'.encode("utf-16"), "save it as UTF-8"),
    ],
)
def test_a_bad_json_file_is_one_sentence(written, content, message):
    with pytest.raises(ParameterError, match=message) as caught:
        read_json(written(content, "file.json"))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_met_with_the_nearest(written, tmp_path):
    written("a = 1", "system.toml")
    with pytest.raises(ParameterError, match=r"did you mean '.*/system\.toml'"):
        read_toml(tmp_path / "sytem.toml")
    with pytest.raises(ParameterError, match="there is no directory"):
        read_toml(tmp_path / "nowhere" / "system.toml")


def test_a_directory_and_a_pipe_are_refused_without_waiting(tmp_path):
    with pytest.raises(ParameterError, match="is a directory"):
        read_json(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ParameterError, match="not a regular file"):
        read_json(tmp_path / "pipe")


@pytest.mark.slow
@given(st.dictionaries(st.text(), st.integers() | st.text() | st.lists(st.booleans() | st.none())))
def test_what_json_writes_is_read_back(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("json") / "file.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_json(path) == content


def test_text_is_returned_with_plain_line_ends(written):
    assert read_text(written(b"a\r\nb\rc\n")) == "a\nb\nc\n"
