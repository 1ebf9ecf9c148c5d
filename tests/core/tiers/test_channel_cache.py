from __future__ import annotations

from accord.core.overlay.channel_directory import ChannelDefinition, ChannelTraits
from accord.core.tiers.channel_cache import ChannelCache
from accord.core.tiers.messages import (
    ChannelLookup,
    ChannelLookupReply,
    TemplateTraits,
    TierOptions,
)

TRAITS = {
    "routed": TemplateTraits(),
    "local": TemplateTraits(),
    "reliable": TemplateTraits(can_be_full=True),
    "total_order": TemplateTraits(is_ordered=True, can_be_full=True),
}
OPTIONS = TierOptions(refresh_us=1_000_000)


def defined(*names: tuple[str, str]) -> tuple[tuple[ChannelDefinition, str], ...]:
    return tuple((ChannelDefinition(name, template=template), "a") for name, template in names)


def complete(*names: tuple[str, str]) -> ChannelCache:
    lookups = ChannelCache(OPTIONS)
    lookups.on_directory_version("a", 1, 7, now_us=0)
    assert lookups.ask(now_us=0) == ChannelLookup((), "")
    lookups.on_reply(
        ChannelLookupReply(7, TRAITS, page=defined(*names), after="", is_last=True), now_us=1
    )
    lookups.check_invariants()
    return lookups


def test_nothing_is_known_before_a_parent_has_told() -> None:
    lookups = ChannelCache(OPTIONS)
    assert lookups.bound("room") is None
    assert not lookups.keeps_all("room")


def test_all_definitions_are_fetched_page_by_page() -> None:
    lookups = ChannelCache(OPTIONS)
    lookups.on_directory_version("a", 1, 7, now_us=0)
    assert lookups.ask(now_us=0) == ChannelLookup((), "")
    first = ChannelLookupReply(
        7, TRAITS, page=defined(("a", "local"), ("b/#", "reliable")), after=""
    )
    lookups.on_reply(first, now_us=1)
    assert lookups.bound("b/x") is None
    assert lookups.ask(now_us=1) == ChannelLookup((), "b/#")
    lookups.on_reply(
        ChannelLookupReply(
            7,
            TRAITS,
            page=defined(
                ("b/x", "total_order"),
            ),
            after="b/#",
            is_last=True,
        ),
        now_us=2,
    )
    assert lookups.is_complete
    assert lookups.has_changed
    assert lookups.bound("b/x") == ChannelTraits(is_ordered=True, can_be_full=True, goes_up=True)
    assert lookups.bound("b/y") == ChannelTraits(can_be_full=True, goes_up=True)
    assert lookups.keeps_all("b/y")
    assert lookups.is_local("a")
    assert lookups.bound("elsewhere") == ChannelTraits(can_be_full=True, goes_up=True)
    assert not lookups.keeps_all("elsewhere")
    assert lookups.next_due_us() > 1 << 60


def test_what_is_asked_for_and_not_answered_is_asked_for_again() -> None:
    lookups = ChannelCache(OPTIONS)
    lookups.on_directory_version("a", 1, 7, now_us=0)
    assert lookups.ask(now_us=0) is not None
    assert lookups.ask(now_us=1) is None
    assert lookups.ask(now_us=lookups.next_due_us()) == ChannelLookup((), "")


def test_a_template_that_the_parent_has_not_is_a_problem() -> None:
    lookups = complete(("room", "telepathy"))
    bound = lookups.bound("room")
    assert bound is not None
    assert "telepathy of room is not installed at a" in bound.problem


def test_what_was_known_counts_until_the_answer_to_a_change_is_there() -> None:
    lookups = complete(("room", "reliable"))
    lookups.on_directory_version("a", 1, 8, now_us=10)
    assert lookups.keeps_all("room")
    lookups.on_reply(
        ChannelLookupReply(7, TRAITS, page=(), after="", is_last=True), now_us=11
    )  # of before
    assert lookups.keeps_all("room")
    lookups.on_reply(ChannelLookupReply(8, TRAITS, page=(), after="", is_last=True), now_us=12)
    assert not lookups.keeps_all("room")


def test_another_parent_is_asked_anew_and_the_same_one_from_time_to_time() -> None:
    lookups = complete()
    lookups.on_directory_version("b", 1, 7, now_us=10)
    assert lookups.ask(now_us=10) == ChannelLookup((), "")
    lookups.on_reply(ChannelLookupReply(7, TRAITS, after="", is_last=True), now_us=11)
    lookups.on_directory_version("b", 1, 7, now_us=12)
    assert lookups.ask(now_us=12) is None
    lookups.on_directory_version("b", 1, 7, now_us=12 + OPTIONS.refresh_us)
    assert lookups.ask(now_us=12 + OPTIONS.refresh_us) == ChannelLookup((), "")


def test_where_there_are_too_many_single_channels_are_asked_for() -> None:
    lookups = ChannelCache(OPTIONS)
    lookups.on_directory_version("a", 1, 7, now_us=0)
    after = ""
    for page in range(64):
        names = [(f"{page:02}/{number:02}", "reliable") for number in range(64)]
        lookups.on_reply(ChannelLookupReply(7, TRAITS, page=defined(*names), after=after), now_us=1)
        after = names[-1][0]
        lookups.check_invariants()
    assert not lookups.is_complete
    assert len(lookups.definitions) == 4_096
    assert lookups.bound("00/00") is None
    lookups.request("00/00", now_us=2)
    assert lookups.ask(now_us=2) == ChannelLookup(("00/00",), None)
    definition = ChannelDefinition("00/00", template="reliable")
    lookups.on_reply(ChannelLookupReply(7, TRAITS, (("00/00", definition), ("zz", None))), now_us=3)
    assert lookups.keeps_all("00/00")
    assert lookups.bound("zz") == ChannelTraits(can_be_full=True, goes_up=True)
    lookups.check_invariants()


def test_nonsense_is_not_taken_for_a_definition() -> None:
    lookups = ChannelCache(OPTIONS)
    lookups.on_directory_version("a", 1, 7, now_us=0)
    wrong = ChannelDefinition("room", template="reliable", paths=99)
    lookups.on_reply(
        ChannelLookupReply(7, TRAITS, (("room", wrong),), ((wrong, "a"),), "", is_last=True),
        now_us=1,
    )
    assert not lookups.is_complete
    assert lookups.bound("room") is None


def test_what_is_kept_comes_back_from_the_parent_and_its_publishers_wait() -> None:
    lookups = ChannelCache(OPTIONS)
    lookups.remembered = ("old/#",)
    assert lookups.is_remembered("old/one")
    assert not lookups.is_remembered("chat/one")
    page = tuple(
        (ChannelDefinition(name, template=template, options={"persistent": "true"}), "a")
        for name, template in (("chat/#", "routed"), ("here/#", "local"))
    )
    lookups.on_directory_version("a", 1, 7, now_us=0)
    lookups.on_reply(ChannelLookupReply(7, TRAITS, page=page, after="", is_last=True), now_us=1)
    bound = lookups.bound("chat/one")
    assert bound is not None
    assert (bound.is_persistent, bound.is_ordered, bound.keeps_order) == (True, True, True)
    assert lookups.keeps_all("chat/one")
    local = lookups.bound("here/one")  # no parent gets that
    assert local is not None
    assert (local.is_persistent, local.is_ordered, local.goes_up) == (False, False, False)
    assert lookups.persistent_filters() == ["chat/#", "old/#"]
