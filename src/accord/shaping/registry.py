"""Registry of shapers: those shipped with Accord, and plug-ins found by entry point.

Checks that the shapers named by policies exist.

Trimming: drops attributes of an event that are unwanted or too large.

The shape's argument lists the wanted attributes by name; all others are dropped. If the byte target
is still exceeded, attributes are dropped one by one, largest first. What the system itself needs,
the key and the deadline, is always kept, and so is the payload.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Final, cast

from accord.core.model.errors import PolicyError
from accord.core.policy.policy_set import PolicySet
from accord.core.policy.preferences import NO_SHAPING
from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping.content import HEAD, Content, Shaper, ShapingError, property_size
from accord.shaping.images import Scaling
from accord.shaping.series import Decimation

_KEPT: Final = frozenset(("key", "deadline-ms"))


class Trimming:
    """Drops attributes."""

    name = "trimming"

    def accepts(self, content_type: str, head: bytes) -> bool:  # noqa: ARG002
        return True

    def shape(self, content: Content, shape: ShapingTarget) -> Content:
        wanted = frozenset(name for part in shape.argument.split(",") if (name := part.strip()))
        properties = content.properties
        if wanted:
            properties = tuple(item for item in properties if item[0] in wanted | _KEPT)
        if shape.max_bytes:
            properties = _largest_dropped(properties, shape.max_bytes - len(content.payload))
        return Content(content.payload, content.content_type, properties)


def _largest_dropped(
    properties: tuple[tuple[str, str], ...], max_bytes: int
) -> tuple[tuple[str, str], ...]:
    sizes = [property_size(item) for item in properties]
    excess = sum(sizes) - max_bytes
    dropped: set[int] = set()
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        if excess <= 0:
            break
        if properties[place][0] not in _KEPT:
            dropped.add(place)
            excess -= sizes[place]
    return tuple(item for place, item in enumerate(properties) if place not in dropped)


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


def check_shapers(policy_set: PolicySet) -> None:
    """Raises PolicyError for the first policy that names an unknown shaper."""
    known = (NO_SHAPING, *names())
    for policy in policy_set.policies:
        name = (policy.resolved_preferences.shaping or NO_SHAPING).partition(":")[0].strip()
        if name not in known:
            place = f'policy "{policy.name}", preferences.shaping'
            raise PolicyError(place, f"expected one of {', '.join(known)}, got {name[:40]!r}")
