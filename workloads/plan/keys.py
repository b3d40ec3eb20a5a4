"""Keys of a plan's text, with what each takes and what it means in the words of its field."""

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
    """Value where a plan's text does not name it, as a text has it."""
    meaning: str
    """Docstring of its field in one line, with what that of its choices adds, and the key's other name."""


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
"""References of a docstring to code, which do not help who writes a plan."""


def _in_one_line(text: str) -> str:
    return " ".join(_PLACES_IN_CODE.sub("", text).replace("`", "").split())


def _choices_text(key: str) -> str:
    """Return what is said of a key's choices beyond the one line on all of them."""
    kind = kind_of(key)
    if not issubclass(kind, Enum):
        return ""
    told = [_in_one_line(inspect.getdoc(kind).partition("\n")[2])]  # type: ignore[union-attr]
    told += [f"{kind[name].value}: {text}" for name, text in field_texts(kind).items()]
    return "".join(f" {one}" for one in told if one)


def _takes(part: type, key: str) -> str:
    kind = kind_of(key)
    if kind is not int:
        return kind_phrase(kind)
    field = KEYS[key][1]
    if few := part.FEW.get(field):  # type: ignore[attr-defined]
        return f"one of {', '.join(map(str, few))}"
    return f"{0 if field in part.MAY_BE_ZERO else 1} or more"  # type: ignore[attr-defined]


def _written(key: str) -> str:
    value = Plan().value(key)
    if key == "sequence_length":
        return f"the model's longest, at most {DEFAULT_LONGEST_SEQUENCE}"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _other_names(key: str) -> str:
    return "".join(f" Also {other}." for other, named in ALIASES.items() if named == key)
