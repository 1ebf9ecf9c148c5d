"""Live sets: parts of a node's state that viewers watch over the live stream.

A set is declared once, like an operation: the decorator `live_set` binds a struct of parameters to
a function that returns the set's state. The state is one JSON object, and viewers are sent how it
changes. It is computed once for all viewers with the same parameters and rights, so the function
gets an asker of whom only the rights are known. It is computed only while it is watched, and when
what it `changes_with` changed, such as the time of the node's last sample. Modules that declare
sets are listed in `live_catalog`.

A member without a value is left out of the state, because null means removal in a difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any, Final, cast, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from accord.operations.operation import Asker, RequestError, Right
from accord.operations.ports import NodePorts

MAX_NUMBER: Final = 1 << 31

Number = Annotated[int, Meta(ge=0, le=MAX_NUMBER)]
Compute = Callable[[NodePorts, Any, Asker], Any]
Version = Callable[[NodePorts], object]


class Watch(
    Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="set",
):
    """Base of the parameters of sets; the tag is the set's name. `watch` is the viewer's number."""

    watch: Number


class Stop(Struct, frozen=True, forbid_unknown_fields=True):
    """A viewer's request to end a watch."""

    stop: Number


_encoder: Final = msgspec.json.Encoder(order="deterministic")


class LiveSet:
    """A set, and how its state is computed: at most every `every_ms`, if `version` changed."""

    def __init__(self, compute: Compute, right: Right, version: Version, every_ms: int) -> None:
        hints = get_type_hints(compute)
        parameters = [name for name in hints if name != "return"]
        self.watch = cast("type[Watch]", hints[parameters[1]])
        self.state: Any = hints["return"]  # a struct
        self.name = str(self.watch.__struct_config__.tag)
        self.right = right
        self.version = version
        self.every_ms = every_ms
        self._compute = compute
        self._decoder = msgspec.json.Decoder(self.watch)

    @property
    def description(self) -> str:
        return " ".join((self._compute.__doc__ or "").split())

    @property
    def fields(self) -> dict[str, msgspec.structs.FieldInfo]:
        """Its parameters."""
        found = msgspec.structs.fields(self.watch)
        return {each.name: each for each in found if each.name != "watch"}

    def decode(self, text: str) -> Watch:
        found: Watch = self._decoder.decode(text)
        return found

    def compute(self, node: NodePorts, ask: Watch, asker: Asker) -> Any:
        return self._compute(node, ask, asker)


_by_name: Final[dict[str, LiveSet]] = {}


def live_set(
    *,
    changes_with: Version,
    right: Right = Right.STATISTICS,
    every_ms: int = 100,
) -> Callable[[Compute], Compute]:
    """Declare a set: `compute(node, parameters, asker)` returns its state."""

    def declare(compute: Compute) -> Compute:
        made = LiveSet(compute, right, changes_with, every_ms)
        assert made.name not in _by_name, made.name
        _by_name[made.name] = made
        return compute

    return declare


def declared_sets() -> Iterator[LiveSet]:
    yield from _by_name.values()


def sharing_key(ask: Watch) -> bytes:
    """The set and its parameters, equal for viewers that share a state."""
    return _encoder.encode(replace(ask, watch=0))


class WatchError(RequestError):
    """A request of a viewer that is refused; `watch` is its number, None if unknown."""

    def __init__(self, error: RequestError, watch: int | None) -> None:
        self.watch = watch
        super().__init__(error.status, error.problem, error.place, remedy=error.remedy)


def sampled(node: NodePorts) -> object:
    """Version of sets that follow the node's samples, which are taken once a second."""
    return None if node.ledger is None else node.ledger.sampled_ms
