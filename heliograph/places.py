"""Places for whole parts in a tree of frozen dataclasses: find one by its path, put a part into it.

Where `heliograph.paths` changes one number, this exchanges the dataclass that holds several. A place is a
field whose annotation names dataclasses; it may stand empty where the annotation allows None.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from heliograph.errors import ParameterError
from heliograph.paths import rebuilt

TreeT = TypeVar("TreeT")


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A field that holds a part, or could."""

    segments: tuple[str, ...]
    """Fields from the root down."""
    owner: Any
    """The dataclass that has the field."""
    kinds: tuple[type, ...]
    """Dataclasses that fit."""
    optional: bool
    """Whether it may stand empty."""

    @property
    def path(self) -> str:
        """The full dotted path."""
        return ".".join(self.segments)

    @property
    def field(self) -> str:
        """Name of the field in its owner."""
        return self.segments[-1]

    @property
    def part(self) -> Any:  # noqa: ANN401 - whatever stands there
        """What stands there."""
        return getattr(self.owner, self.field)


def places(obj: object, above: tuple[str, ...] = ()) -> Iterator[Place]:
    """Yield every place of a tree, in the order of the fields."""
    hints = _hints(type(obj))
    for item in dataclasses.fields(typing.cast("Any", obj)):
        part = getattr(obj, item.name)
        hint = hints.get(item.name, type(part))
        members = typing.get_args(hint) or (hint,)
        kinds = tuple(one for one in members if isinstance(one, type) and dataclasses.is_dataclass(one))
        segments = (*above, item.name)
        if item.init and kinds:
            yield Place(segments=segments, owner=obj, kinds=kinds, optional=type(None) in members)
        if dataclasses.is_dataclass(part) and not isinstance(part, type):
            yield from places(part, segments)


def find_place(obj: object, path: str) -> Place | None:
    """Return the place that a path, or its ending, names; None where it names none.

    Raises
    ------
    ParameterError
        If it fits several.
    """
    found = [one for one in places(obj) if one.path == path]
    found = found or [one for one in places(obj) if one.path.endswith(f".{path}")]
    if len({id(one.owner) for one in found}) > 1:
        shown = ", ".join(one.path for one in found[:8]) + (", ..." if len(found) > 8 else "")
        msg = f"'{path}' fits {len(found)} parts; write one of {shown}"
        raise ParameterError(msg)
    return found[0] if found else None


def put_part(obj: TreeT, place: Place, part: object) -> TreeT:
    """Return a copy of a tree with another part in a place; every dataclass above is built and checked anew.

    Raises
    ------
    ParameterError
        If the part does not fit, or a constructor refuses it.
    """
    if not (isinstance(part, place.kinds) or (part is None and place.optional)):
        wanted = " or ".join(kind.__name__ for kind in place.kinds)
        msg = f"{place.path} takes {wanted}, not {type(part).__name__}"
        raise ParameterError(msg)
    changed = dataclasses.replace(place.owner, **{place.field: part})
    return typing.cast("TreeT", rebuilt(obj, {id(place.owner): changed}))


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError:  # an annotation that exists for the type checker only
        return {}
