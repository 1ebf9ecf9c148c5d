"""With whom services speak across tiers, and when."""

from __future__ import annotations

from tests.core.tiers.test_pairs import MS, OPTIONS, World

from accord.core.overlay.tier_links import TierLink

S = 1_000_000


def roles(links: dict[str, TierLink]) -> dict[str, bool]:
    """Who is there, and whether it is the active one."""
    return {name: link.is_active for name, link in links.items()}


def ends(world: World) -> list[dict[str, bool]]:
    """As the child, `a` and `b` see it."""
    tiers = [world.child.tiers, *(each.tiers for each in world.parents.values())]
    return [roles(each.links) for each in tiers]


def linked() -> World:
    world = World()
    for name in "ab":
        world.link(name)
    world.run()
    return world


def test_both_ends_of_both_links_know_each_other() -> None:
    world = linked()
    assert ends(world) == [{"a": True, "b": False}, {"x": True}, {"x": False}]
    for tiers in (world.child.tiers, world.parents["a"].tiers):
        delays = [link.delay_us for link in tiers.links.values() if link.is_active]
        assert all(0 < delay <= 20 * MS for delay in delays)
    standby = world.parents["b"].tiers.links["x"]
    assert standby.delay_us >= OPTIONS.dead_us  # not before it takes over
    assert (standby.incarnation, standby.parent_epoch) == (1_000, world.child.selector.parent_epoch)


def test_roles_change_with_the_active_parent() -> None:
    world = linked()
    world.unlink("a")
    world.run()
    assert ends(world) == [{"b": True}, {}, {"x": True}]
    world.link("a")
    world.run(8 * S)
    assert ends(world) == [{"a": True, "b": False}, {"x": True}, {"x": False}]


def test_who_is_silent_does_not_count() -> None:
    world = linked()
    began = world.child.tiers.appeared["a"]
    world.cut["a"] = True
    world.run(OPTIONS.dead_us + S)
    assert "a" not in world.child.tiers.links
    world.run(OPTIONS.quiet_us)
    assert world.parents["a"].tiers.links == {}
    world.cut.clear()
    world.run(5 * S)
    assert roles(world.parents["a"].tiers.links).keys() == {"x"}
    assert world.child.tiers.appeared["a"] > began


def test_who_began_anew_is_another() -> None:
    world = linked()
    began = world.child.tiers.appeared["b"]
    world.restart("b")
    world.run(2 * S)
    assert world.child.tiers.appeared["b"] > began
    left: list[str] = []
    world.parents["b"].tiers.watch_left(left.append)
    world.child.leave()
    world.run()
    assert left == ["x"]
