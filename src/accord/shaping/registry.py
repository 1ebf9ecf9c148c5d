"""Registry of shapers: those shipped with Accord, and plug-ins found by entry point."""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.attributes import Trimming
from accord.shaping.content import Content, Shaper, ShapingError
from accord.shaping.images import Scaling
from accord.shaping.series import Decimation
from accord.shaping.sniffing import HEAD

GROUP: Final = "accord.shapers"

_OWN: Final[tuple[Shaper, ...]] = (Scaling(), Decimation(), Trimming())


@cache
def _plug_ins() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP)}


def names() -> list[str]:
    """Names that preferences may use."""
    return sorted({shaper.name for shaper in _OWN} | set(_plug_ins()))


@cache
def find(name: str) -> Shaper:
    """The shaper called `name`. Raises ShapingError if there is none, or it can't be loaded."""
    for shaper in _OWN:
        if shaper.name == name:
            return shaper
    point = _plug_ins().get(name)
    if point is None:
        raise ShapingError(f"no shaper {name[:40]!r}, expected one of {', '.join(names())}")
    try:
        loaded = point.load()
        return cast(Shaper, loaded() if isinstance(loaded, type) else loaded)
    except Exception as error:
        # Foreign code: whatever it raises must cost no more than one failed shaping.
        raise ShapingError(f"shaper {name} can't be loaded: {error!r}") from error


def accepts(name: str, content_type: str, head: bytes) -> bool:
    """Whether `name` is a shaper that can shape such content."""
    try:
        return bool(find(name).accepts(content_type, head[:HEAD]))
    except Exception:  # as above
        return False


def shape(content: Content, wanted: ShapingTarget) -> Content:
    """`content` as `wanted`, or unchanged if that is no gain. Raises only ShapingError."""
    shaper = find(wanted.shaper)
    try:
        if not shaper.accepts(content.content_type, content.payload[:HEAD]):
            kind = content.content_type or "content without a known type"
            raise ShapingError(f"{wanted.shaper} can't shape {kind}")
        shaped = shaper.shape(content, wanted)
        if not isinstance(shaped, Content):
            raise ShapingError(f"{wanted.shaper} gave no content")
    except ShapingError:
        raise
    except MemoryError:
        raise ShapingError(f"{wanted.shaper} needs more memory than it may use") from None
    except Exception as error:
        raise ShapingError(f"{wanted.shaper} failed: {error!r}") from error
    return shaped if shaped.size <= content.size else content
