from __future__ import annotations

import msgspec
import pytest

from accord.core.overlay.channel_directory import (
    MAX_PATHS,
    ChannelDefinition,
    ChannelDirectory,
    problem_with_definition,
)
from accord.core.overlay.state_store import StateOptions, StateStore

MS = 1_000
S = 1_000_000


class Site:
    """A node's directory, with what it was told to have lost."""

    def __init__(self, name: str, options: StateOptions | None = None) -> None:
        self.store = StateStore(name, 1, options)
        self.lost: list[tuple[str, ChannelDefinition | None, str]] = []
        self.registry = ChannelDirectory(self.store, self._on_lost)

    def _on_lost(
        self, mine: ChannelDefinition, theirs: ChannelDefinition | None, origin: str
    ) -> None:
        self.lost.append((mine.name, theirs, origin))


class Sites:
    """All joined with all; nothing gets lost, and nothing takes time."""

    def __init__(self, *names: str) -> None:
        self.all = {name: Site(name) for name in names}
        self.now_us = 0
        self.join()

    def join(self) -> None:
        for one in self.all:
            for other in self.all:
                if one != other:
                    self.all[one].store.link_up(other, self.now_us)
        self.settle()

    def part(self) -> None:
        for one in self.all:
            for other in self.all:
                self.all[one].store.link_down(other)

    def settle(self) -> None:
        for _ in range(20):
            self.now_us += 50 * MS
            for name, site in self.all.items():
                site.store.advance(self.now_us)
                sends, site.store.sends = site.store.sends, []
                for neighbour, message in sends:
                    self.all[neighbour].store.receive(name, message, self.now_us)
        for site in self.all.values():
            site.registry.check_invariants()
            site.store.check_invariants()

    def agreed(self) -> list[ChannelDefinition]:
        """What all directories say; they say the same."""
        directories = [site.registry.all() for site in self.all.values()]
        assert all(each == directories[0] for each in directories)
        return directories[0]


IMAGERY = ChannelDefinition("uav/imagery", max_delay_us=200 * MS, paths=2, created_us=10)


def test_a_definition_is_known_everywhere() -> None:
    sites = Sites("denver", "orlando")
    denver, orlando = (site.registry for site in sites.all.values())
    assert denver.create(IMAGERY) is None
    sites.settle()
    assert orlando.look_up("uav/imagery") == IMAGERY == orlando.get("uav/imagery")
    assert orlando.origin_of("uav/imagery") == "denver"
    assert orlando.look_up("uav/video") is None
    version = orlando.version
    assert denver.delete("uav/imagery") is None
    sites.settle()
    assert orlando.look_up("uav/imagery") is None
    assert orlando.origin_of("uav/imagery") == ""
    assert orlando.version > version
    assert sites.agreed() == []
    assert sites.all["denver"].store.of("denver", "channel") == {}


def test_a_directory_finds_what_its_store_has_already() -> None:
    store = StateStore("denver", 1)
    ChannelDirectory(store).create(IMAGERY)
    assert ChannelDirectory(store).look_up("uav/imagery") == IMAGERY


@pytest.mark.parametrize(
    ("channel", "wanted"),
    [
        ("uav/imagery", "uav/imagery"),
        ("uav/imagery/raw", "uav/imagery/#"),
        ("uav/video", "uav/+"),
        ("uav", "uav/#"),
        ("uav/video/raw", "uav/#"),
        ("ship/video", "+/video"),
        ("ship", "#"),
        ("ship/video/raw", "+/video/#"),
        ("$accord/advice", None),
        ("$SYS/load", "$SYS/#"),
    ],
)
def test_the_most_specific_definition_counts(channel: str, wanted: str | None) -> None:
    registry = ChannelDirectory(StateStore("denver", 1))
    names = ["#", "uav/#", "+/video", "uav/+", "uav/imagery", "uav/imagery/#", "$SYS/#"]
    for name in [*names, "+/video/#"]:
        assert registry.create(ChannelDefinition(name)) is None
    for _ in range(2):
        found = registry.look_up(channel)
        assert (None if found is None else found.name) == wanted


def test_a_change_of_definitions_shows_at_once() -> None:
    registry = ChannelDirectory(StateStore("denver", 1))
    registry.create(ChannelDefinition("uav/#", paths=1))
    assert registry.look_up("uav/imagery") is not None
    registry.create(IMAGERY)
    assert registry.look_up("uav/imagery") == IMAGERY
    registry.delete("uav/imagery")
    found = registry.look_up("uav/imagery")
    assert found is not None
    assert found.name == "uav/#"


def test_what_exists_is_not_created_again_by_mistake() -> None:
    sites = Sites("denver", "orlando")
    denver, orlando = (site.registry for site in sites.all.values())
    denver.create(IMAGERY)
    sites.settle()
    other = msgspec.structs.replace(IMAGERY, paths=3, created_us=0)
    assert orlando.create(other) == (
        "'uav/imagery' is defined at node 'denver' already: "
        "delete it first, or replace it (--replace; replaces in a request)"
    )
    assert orlando.create(msgspec.structs.replace(IMAGERY, created_us=99)) is None, "the same"
    assert orlando.create(other, replace=True) is None
    sites.settle()
    (found,) = sites.agreed()
    assert found.paths == 3
    assert found.created_us == 11, "later than what it replaces, whatever the clock says"
    assert sites.all["denver"].lost == [("uav/imagery", found, "orlando")]
    assert sites.all["orlando"].lost == []
    assert "'uav/nothing' is not defined;" in (denver.delete("uav/nothing") or "")


def test_two_that_define_the_same_name_apart_agree_and_the_loser_is_told() -> None:
    sites = Sites("denver", "orlando", "seattle")
    sites.part()
    for paths, site in enumerate(sites.all.values(), start=1):
        assert site.registry.create(ChannelDefinition("uav/#", paths=paths, created_us=5)) is None
    sites.join()
    (found,) = sites.agreed()
    assert found.paths == 3, "of equal times the greater name"
    told = [[origin for _, _, origin in site.lost] for site in sites.all.values()]
    assert told in ([["orlando"], ["seattle"], []], [["seattle"], ["seattle"], []])
    assert [site.store.of(site.store.name, "channel") for site in sites.all.values()][:2] == [
        {}
    ] * 2


def test_the_same_definition_at_several_nodes_is_no_conflict() -> None:
    sites = Sites("denver", "orlando")
    sites.part()
    for site in sites.all.values():
        site.registry.create(IMAGERY)
    sites.join()
    assert sites.agreed() == [IMAGERY]
    assert not any(site.lost for site in sites.all.values())
    sites.all["denver"].store.expire("orlando")
    assert sites.all["denver"].registry.origin_of("uav/imagery") == "denver"


def test_anybody_may_delete_and_who_was_away_does_not_bring_it_back() -> None:
    sites = Sites("denver", "orlando")
    denver, orlando = sites.all["denver"], sites.all["orlando"]
    denver.registry.create(IMAGERY)
    sites.settle()
    sites.part()
    assert orlando.registry.delete("uav/imagery") is None
    assert orlando.registry.look_up("uav/imagery") is None
    assert denver.registry.look_up("uav/imagery") == IMAGERY
    orlando.store.expire("denver")
    assert orlando.registry.get("uav/imagery") is None
    sites.join()
    assert sites.agreed() == []
    assert denver.lost == [("uav/imagery", None, "orlando")]
    assert denver.store.of("denver", "channel") == {}

    assert denver.registry.create(msgspec.structs.replace(IMAGERY, created_us=0)) is None
    sites.settle()
    (found,) = sites.agreed()
    assert found.created_us == 12
    assert orlando.store.of("orlando", "channel") == {}, "its deletion is past"


def test_deletions_do_not_pile_up() -> None:
    sites = Sites("denver", "orlando")
    denver, orlando = sites.all["denver"], sites.all["orlando"]
    for number in range(400):
        denver.registry.create(ChannelDefinition(f"c{number}", created_us=number))
    sites.settle()
    for number in range(256):
        assert orlando.registry.delete(f"c{number}") is None
    assert orlando.registry.delete("c256") == (
        "256 deletions have not reached their nodes yet: try again later"
    )
    sites.settle()
    assert len(denver.lost) == 256
    for number in range(256, 400):
        assert orlando.registry.delete(f"c{number}") is None
    sites.settle()
    assert sites.agreed() == []
    assert len(orlando.store.of("orlando", "channel")) == 256
    assert len(denver.lost) == 400


@pytest.mark.parametrize(
    ("definition", "problem"),
    [
        (ChannelDefinition(""), "name: expected at least one character"),
        (ChannelDefinition("a/#/b"), "name: expected '#' as the last level only, got 'a/#/b'"),
        (ChannelDefinition("x" * 1_025), "name: 1025 characters, at most 1024 accepted"),
        (ChannelDefinition("/" * 64), "name: 65 levels, at most 64 accepted"),
        (ChannelDefinition("a", template=""), "template: expected 1 to 1024 characters, got 0"),
        (ChannelDefinition("a", max_delay_us=-1), "max_delay_us: expected 0 or more, got -1"),
        (ChannelDefinition("a", paths=0), f"paths: expected 1 to {MAX_PATHS}, got 0"),
        (ChannelDefinition("a", resiliency=1.5), "resiliency: expected 0 to 1, got 1.5"),
        (ChannelDefinition("a", resiliency=float("nan")), "resiliency: expected 0 to 1, got nan"),
        (ChannelDefinition("a", created_us=-1), "created_us: expected 0 or more, got -1"),
        (
            ChannelDefinition("a", options={str(key): "" for key in range(65)}),
            "options: 65, at most 64 accepted",
        ),
        (
            ChannelDefinition("a", options={"key": "x" * 1_025}),
            "options: expected at most 1024 characters each, got 'key'",
        ),
    ],
)
def test_what_cannot_be_accepted_is_said(definition: ChannelDefinition, problem: str) -> None:
    assert problem_with_definition(definition) == problem
    registry = ChannelDirectory(StateStore("denver", 1))
    assert registry.create(definition) == problem
    assert registry.all() == []


def test_nonsense_of_other_nodes_counts_as_nothing() -> None:
    sites = Sites("denver", "orlando")
    denver, orlando = sites.all["denver"], sites.all["orlando"]
    encode = msgspec.msgpack.encode
    denver.store.put("channel", "a", b"\xc1")
    denver.store.put("channel", "b", encode(IMAGERY))  # under another name
    denver.store.put("channel", "c", encode(ChannelDefinition("c", paths=-1)))
    denver.store.put("channel", "d", encode(("deleted", "d", -5)))
    denver.store.put("channel", "e", encode(("channel", "e", "routed", 2**64 - 1)))
    sites.settle()
    assert sites.agreed() == []
    assert orlando.registry.malformed == 5
    denver.store.put("channel", "a", encode(ChannelDefinition("a")))
    denver.store.put("channel", "b", b"")
    sites.settle()
    assert [each.name for each in sites.agreed()] == ["a"]
    denver.store.put("channel", "a", b"nonsense")
    sites.settle()
    assert sites.agreed() == []


def test_a_clock_beyond_all_bounds_is_told() -> None:
    registry = ChannelDirectory(StateStore("denver", 1))
    assert registry.create(msgspec.structs.replace(IMAGERY, created_us=2**53)) is None
    changed = msgspec.structs.replace(IMAGERY, paths=1)
    assert registry.create(changed, replace=True) == ("the clock of node 'denver' is out of range")


def test_there_may_be_no_room_for_another() -> None:
    site = Site("denver", StateOptions(records_limit=1))
    assert site.registry.create(IMAGERY) is None
    assert site.registry.create(ChannelDefinition("b")) == (
        "no space for another definition at node 'denver'"
    )


def test_looking_up_any_number_of_channels_takes_bounded_memory() -> None:
    registry = ChannelDirectory(StateStore("denver", 1))
    registry.create(ChannelDefinition("#"))
    for number in range(10_000):
        assert registry.look_up(f"c/{number}") is not None
    assert registry.look_up("x" * 60_000) is not None
    registry.check_invariants()
