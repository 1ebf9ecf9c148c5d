from __future__ import annotations

from collections.abc import Callable

import msgspec

from accord.core.channels.members import Members
from accord.core.overlay.interests import Interest

Watcher = Callable[[str, str, bytes | None], None]


class Facts:
    def __init__(self) -> None:
        self.members = Members(self._watch)

    def _watch(self, kind: str, watcher: Watcher) -> None:
        assert kind == "need"
        self._watcher = watcher

    def tell(self, node: str, key: str, need: Interest | bytes | None) -> None:
        value = msgspec.msgpack.encode(need) if isinstance(need, Interest) else need
        self._watcher(node, key, value)
        self.members.check_invariants()


def test_who_needs_something_of_a_channel_is_a_member() -> None:
    facts = Facts()
    facts.tell("b", "1", Interest("chat/#", "loud = 1"))
    facts.tell("a", "1", Interest("chat/+"))
    facts.tell("c", "1", Interest("sea"))
    assert facts.members.of("chat/one") == ("a", "b")
    assert facts.members.has("sea", "c")
    assert not facts.members.has("sea", "a")


def test_a_node_is_a_member_until_its_last_need_is_gone() -> None:
    facts = Facts()
    facts.tell("a", "1", Interest("chat"))
    facts.tell("a", "2", Interest("#"))
    facts.tell("a", "3", Interest("chat"))
    facts.tell("a", "1", None)
    facts.tell("a", "2", Interest("sea"))
    assert facts.members.of("chat") == ("a",)
    before = facts.members.version
    facts.tell("a", "3", None)
    assert facts.members.of("chat") == ()
    assert facts.members.version > before


def test_nonsense_is_no_need() -> None:
    facts = Facts()
    facts.tell("a", "1", b"\xff")
    facts.tell("b", "1", Interest("a/#/b"))
    assert facts.members.of("a") == ()
