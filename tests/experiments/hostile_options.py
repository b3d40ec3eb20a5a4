"""Every option of every command with what nobody should write; run as a program, it tries all of it.

    python tests/experiments/hostile_options.py [COUNT [FIRST_WORD ...]]

Each case runs in a child of its own, which is stopped where real work begins; printed is what ended in
anything but an answer, or one sentence and exit code 2.
"""

import contextlib
import dataclasses
import importlib
import io
import json
import os
import random
import select
import signal
import sys
import traceback
from enum import Enum
from pathlib import Path

from experiments.cli import BAD_INPUT, COMMANDS, run
from experiments.study import _options

WORK_S = 0.1
"""Processor time after which a case counts as accepted."""
WAIT_S = 2.0
"""Time after which it does so where others work for it."""
FILES = {
    "bad.csv": b'a,b\n1,2,3\n"x\n',
    "bad.toml": b"[a\nb=",
    "bad.json": b'{"a": [1,',
    "list.json": b"[1, 2]",
    "empty": b"",
    "empty.toml": b"",
    "empty.json": b"",
    "binary.toml": bytes(range(256)),
    "binary.json": bytes(range(256)),
    "types.toml": b'base = 3\nsystem = [1]\n[sweep]\nx = {from = 1}\n[set]\n"laser_power_w" = true\n',
    "types.json": b'{"hidden_size": "x", "model_type": ["llama"], "nodes": {"a": 1}, "links": 3}',
    "nan.json": b'{"hidden_size": NaN}',
    "deep.json": b"[" * 100_000,
    "bad.graphml": b"<graphml><graph><node",
}
PATHS = [
    *FILES,
    *"missing folder graph:bad.graphml graph:types.json /dev/null nowhere/x.csv bad.csv/x".split(),
]
PATHS += ["x" * 300]
NUMBERS = "nan inf -inf 1e400 -1 0 1e-300 1e300 1.5 abc 0x10 1_000 \u0663 -0.0 1,5".split()
NUMBERS += ["", "5 Hz", "5 mW", "9" * 30]
WORDS = """
    nosuch nan -1 0 a=b = a= =1 , ; [ (1 {} fp8: a.b.c=1 1:0 nan:1 1:inf 10:36:9:9:9 tp=0 tp=-1 tp=1e9
    dp=8,global_batch=8,sequence_length=99999999999 schedule=nosuch,pp=2 zero=9 cores=0 laser_power_w=nan
    tp=8,tp=8 laser_power_w= laser_power_w=1e400 core=nosuch photonic=3 @ : gpu_packet@ photonic_packet:
    gpu_packet@torus@torus photonic_packet:crossbar:crossbar
""".split()
WORDS += ["", " ", "9" * 30, "x" * 500]
NEEDED = {"what": "cores", "name": "crossbar", "kind": "memory", "system": "gpu_packet"}
"""Values of what must be told; a file is missing."""


class Working(BaseException):
    """Real work has begun."""


def hostile(one):
    """Return what is tried for an option, by its type."""
    if one.kind is bool:
        return []
    if isinstance(one.kind, type) and issubclass(one.kind, Enum):
        return ["", "nosuch", str(next(iter(one.kind)).value).upper()]
    if one.kind in (int, float):
        return NUMBERS
    return PATHS if one.kind is Path else WORDS + PATHS


def cases(first_words):
    """Return the words of every case: one option of a command is hostile, what must be told is not."""
    found = []
    for name, command in COMMANDS.items():
        if first_words and name.partition(" ")[0] not in first_words:
            continue
        module, _, kind = command.study.partition(":")
        options = list(_options(getattr(importlib.import_module(module), kind)))
        usual = {
            one.path: NEEDED.get(one.path[-1], "missing")
            for one in options
            if one.default is dataclasses.MISSING
        }
        for tried in options:
            found += [words(name, options, usual | {tried.path: value}) for value in hostile(tried)]
    return found


def words(name, options, values):
    """Return a command's words; what is told by its place stands behind ``--``."""
    flags = [
        f"{one.flag}={values[one.path]}"
        for one in options
        if one.path in values and not one.declaration.positional
    ]
    places = [values[one.path] for one in options if one.path in values and one.declaration.positional]
    return [*name.split(), *flags, *(["--", *places] if places else [])]


def outcome(argv):
    """Return what is wrong with the answer to a command's words; nothing if it is fine or work begins."""
    told = io.StringIO()
    signal.signal(signal.SIGVTALRM, begun)
    signal.setitimer(signal.ITIMER_VIRTUAL, WORK_S)
    signal.signal(signal.SIGALRM, begun)
    signal.setitimer(signal.ITIMER_REAL, WAIT_S)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told):
            code = run(argv)
    except BaseException as error:
        within: BaseException | None = error  # of an import that was cut short, say
        while within is not None and not isinstance(within, Working):
            within = within.__context__
        return "" if within else traceback.format_exc(limit=-3)
    sentences = [line for line in told.getvalue().splitlines() if line.startswith("heliograph: ")]
    faults = [line for line in sentences if not line.startswith("heliograph: warning: ")]
    if code == 0 or (code == BAD_INPUT and len(faults) == 1):
        return ""
    return f"exit code {code}: {told.getvalue()}"


def begun(*_):
    raise Working


def in_child(argv):
    """Return the outcome of a case that cannot harm the next."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(theirs, "w") as stream:
            json.dump(outcome(argv), stream)
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours) as stream:
        if not select.select([ours], [], [], 60.0)[0]:
            os.kill(child, signal.SIGKILL)
        text = stream.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "no answer within a minute"


def main(directory, count, first_words, seed=0):
    """Try cases, all or so many of them; return what was wrong."""
    os.chdir(directory)
    Path("folder").mkdir()
    for name, content in FILES.items():
        Path(name).write_bytes(content)
    every = cases(first_words)
    chosen = random.Random(seed).sample(every, min(count or len(every), len(every)))
    answers = {" ".join(argv): in_child(argv) for argv in chosen}
    return {argv: answer for argv, answer in answers.items() if answer}


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as scratch:
        wrong = main(scratch, int(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:])
    sys.stdout.write(json.dumps(wrong, indent=1))
    sys.exit(bool(wrong))
