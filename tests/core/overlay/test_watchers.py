"""Who is told of changes, also where somebody fails over one."""

from __future__ import annotations

import pytest

from accord.core.overlay.state_store import Watchers


def test_who_fails_keeps_nobody_from_hearing() -> None:
    watchers = Watchers()
    heard: list[tuple[str, str]] = []

    def failing(_: str, key: str, __: bytes | None) -> None:
        heard.append(("failing", key))
        if key == "poison":
            raise ValueError(key)

    watchers.add("need", failing)
    watchers.add("need", lambda _, key, __: heard.append(("other", key)))
    with pytest.raises(ValueError, match="poison"):
        watchers.notify("evil", [("need", "poison", b""), ("need", "sane", b"")])
    assert heard == [
        ("failing", "poison"),
        ("other", "poison"),
        ("failing", "sane"),
        ("other", "sane"),
    ]
    watchers.notify("evil", [("need", "more", b"")])
    assert heard[-1] == ("other", "more")
