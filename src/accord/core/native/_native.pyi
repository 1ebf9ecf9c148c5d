from collections.abc import Callable, Hashable
from datetime import datetime
from typing import Any, final

@final
class Matcher:
    def __new__(
        cls,
        instant: Callable[[datetime | str], int | None],
        decode: Callable[[bytes], dict[str, Any] | None],
    ) -> Matcher: ...
    def root(self) -> int: ...
    def drop(self, root: int, /) -> None: ...
    def add(
        self,
        root: int,
        key: Hashable,
        terms: tuple[tuple[tuple[str, ...], bytes, bytes, object, int], ...],
        /,
    ) -> int: ...
    def remove(self, number: int, /) -> None: ...
    def match(
        self, roots: tuple[int, ...], values: Any, document: Any, limit: int, /
    ) -> tuple[list[Hashable], int, int]: ...
    def match_frames(
        self, roots: tuple[int, ...], data: bytes, spans: Any, limit: int, /
    ) -> tuple[list[tuple[Hashable, ...]], bytes, int, int]: ...
