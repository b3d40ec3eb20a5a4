import hashlib
import time

import numpy as np
import pytest

from simulator.errors import WorkloadError
from workloads.training.gpt import python_source


def write_files(root, count=30, size=100):
    for index in range(count):
        folder = root / ("package" if index % 2 else "")
        folder.mkdir(exist_ok=True)
        (folder / f"module_{index}.py").write_bytes(bytes([index]) * size)


def test_standard_library_is_there_and_loads_in_a_second():
    started = time.perf_counter()
    corpus = python_source()
    assert time.perf_counter() - started < 1.0
    assert corpus.train.dtype == corpus.validation.dtype == np.uint8
    assert 1e6 < corpus.train.size + corpus.validation.size <= 8 * 2**20
    assert 0.03 < corpus.validation.size / corpus.train.size < 0.3
    assert b"def __init__(self" in corpus.train.tobytes()


def test_same_files_give_the_same_corpus_and_hash():
    one, other = python_source(most_bytes=2**20), python_source(most_bytes=2**20)
    assert one.sha256 == other.sha256
    assert np.array_equal(one.train, other.train)
    whole = one.train.tobytes() + one.validation.tobytes()
    assert one.sha256 == hashlib.sha256(whole).hexdigest()


def test_parts_share_no_file_and_hold_all(tmp_path):
    write_files(tmp_path)
    corpus = python_source(tmp_path, validation_every=5)
    train, validation = set(corpus.train.tolist()), set(corpus.validation.tolist())
    assert not train & validation
    assert train | validation == set(range(30))
    assert len(validation) == 6


def test_size_is_kept_by_whole_files_and_smaller_is_a_part_of_larger(tmp_path):
    write_files(tmp_path)
    small = python_source(tmp_path, most_bytes=1250)
    assert small.train.size + small.validation.size == 1200
    assert set(small.train.tolist()) <= set(python_source(tmp_path).train.tolist())


def test_left_out_folders_and_other_files_are_not_read(tmp_path):
    write_files(tmp_path)
    before = python_source(tmp_path)
    for folder in ("test", "site-packages", "__pycache__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "more.py").write_text("x = 1\n")
    (tmp_path / "notes.txt").write_text("not code")
    assert python_source(tmp_path).sha256 == before.sha256


def test_corpus_too_small_to_split_is_refused(tmp_path):
    with pytest.raises(WorkloadError, match="too little to split"):
        python_source(tmp_path)
    with pytest.raises(WorkloadError, match="at least 2"):
        python_source(tmp_path, validation_every=1)
