"""Keys of a plan's text with their values and meaning, read from the docstrings of the fields."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from workloads.plan.parts import kind_phrase
from workloads.plan.plan import ALIASES, DEFAULT_LONGEST_SEQUENCE, KEYS, PARTS, Plan, kind_of


@dataclass(frozen=True, kw_only=True)
class PlanKey:
    """A key of a plan's text."""

    name: str
    """The key."""
    part: str
    """Part of the plan that it is a field of."""
    takes: str
    """Values that it takes, as a phrase."""
    usual: str
    """Its default, as a text has it."""
    meaning: str
    """Docstring of its field in one line, with those of its choices, and the key's other name."""


def described_keys() -> tuple[PlanKey, ...]:
    """Return all keys, those of a part together, in the order of its fields."""
    key_of = {place: key for key, place in KEYS.items()}
    return tuple(
        PlanKey(
            name=key_of[part, field],
            part=part,
            takes=_takes(kind, key_of[part, field]),
            usual=_written(key_of[part, field]),
            meaning=meaning + _choices_text(key_of[part, field]) + _other_names(key_of[part, field]),
        )
        for part, kind in PARTS.items()
        for field, meaning in field_texts(kind).items()
        if (part, field) in key_of
    )


def field_texts(kind: type) -> dict[str, str]:
    """Return the docstring beneath each field or member of a class in one line, without marks of code."""
    (found,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    texts = {}
    for field, text in pairwise(found.body if isinstance(found, ast.ClassDef) else ()):
        if not isinstance(field, ast.Assign | ast.AnnAssign):
            continue
        target = field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
        value = text.value if isinstance(text, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant) and isinstance(value.value, str):
            texts[target.id] = _in_one_line(value.value)
    return texts


_PLACES_IN_CODE = re.compile(r"\s+\(`[\w.]+`\)|\s+See `[\w.]+`\.")
"""References of a docstring to code, which the writer of a plan does not need."""


def _in_one_line(text: str) -> str:
    """Return a docstring without line breaks, marks of code and references to code."""
    return " ".join(_PLACES_IN_CODE.sub("", text).replace("`", "").split())


def _choices_text(key: str) -> str:
    """Return the docstrings of a key's choices: of their class but its first line, and of each member."""
    kind = kind_of(key)
    if not issubclass(kind, Enum):
        return ""
    texts = [_in_one_line(inspect.getdoc(kind).partition("\n")[2])]  # type: ignore[union-attr]
    texts += [f"{kind[name].value}: {text}" for name, text in field_texts(kind).items()]
    return "".join(f" {text}" for text in texts if text)


def _takes(part: type, key: str) -> str:
    """Return the values that a key takes, as a phrase."""
    kind = kind_of(key)
    if kind is not int:
        return kind_phrase(kind)
    field = KEYS[key][1]
    if few := part.FEW.get(field):  # type: ignore[attr-defined]
        return f"one of {', '.join(map(str, few))}"
    return f"{0 if field in part.MAY_BE_ZERO else 1} or more"  # type: ignore[attr-defined]


def _written(key: str) -> str:
    """Return the default of a key, as a text has it."""
    value = Plan().value(key)
    if key == "sequence_length":
        return f"the model's longest, at most {DEFAULT_LONGEST_SEQUENCE}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _other_names(key: str) -> str:
    """Return a sentence on each other name of a key."""
    return "".join(f" Also {other}." for other, named in ALIASES.items() if named == key)
