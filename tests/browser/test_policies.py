"""Policies are changed in the browser, and what clients receive changes with them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from tests.browser.browsing import Page, Visitor, eventually, expect
from tests.browser.traffic import Peer, Site, Stream

LIMIT_BPS: Final = 200_000
PAYLOAD: Final = bytes(500)
RATE_HZ: Final = 100  # each channel asks for twice what the limit carries
SET: Final[dict[str, Any]] = {
    "strategy": "strict",
    "limits": [{"client": "patrol-1", "bandwidth": LIMIT_BPS}],
    "policies": [
        {
            "name": "Alarms",
            "channel": "alarm/#",
            "importance": 2,
            "preferences": {"deadline": "1 s"},
        },
        {
            "name": "Imagery",
            "channel": "uav/#",
            "importance": 5,
            "preferences": {"deadline": "1 s"},
        },
    ],
}


@pytest.fixture(scope="module")
def patrol(site: Site) -> Iterator[Peer]:
    """It gets a quarter of what is published for it."""
    with (
        Peer(site, "control") as control,
        Peer(site, "patrol-1", "alarm/#", "uav/#") as patrol,
        Stream(control, {"alarm/gate": PAYLOAD, "uav/imagery": PAYLOAD}, RATE_HZ),
    ):
        yield patrol


@pytest.fixture(autouse=True)
def known(site: Site, patrol: Peer) -> None:
    answer = site.http.put("/api/v1/policies", json=SET)
    assert answer.status_code == 200, answer.text


@pytest.fixture
def page(visitor: Visitor) -> Page:
    return visitor.open("/policies")


def version(site: Site) -> int:
    found: int = site.get("/api/v1/policies")["version"]
    return found


def importance(site: Site, name: str) -> int:
    found: int = site.get(f"/api/v1/policies/{name}")["importance"]
    return found


def choose(page: Page, policy: str, value: int) -> None:
    page.get_by_role("button", name=re.compile(f"^Importance of {policy}")).click()
    page.get_by_role("menuitemradio", name=re.compile(f"^{value}\\b")).click()


def apply(page: Page) -> None:
    page.get_by_role("button", name="Apply", exact=True).click()
    expect(page.get_by_text(re.compile(r"Version \d+ is in effect\.")).first).to_be_visible()


def gets_mostly(patrol: Peer, channel: str) -> Callable[[], bool]:
    """Whether nine of ten events that came since the last call are of the channel."""
    before = dict(patrol.received)

    def look() -> bool:
        new = {each: count - before.get(each, 0) for each, count in patrol.received.items()}
        if sum(new.values()) < 20:
            return False
        before.update(patrol.received)
        return new.get(channel, 0) >= 0.9 * sum(new.values())

    return look


def test_nothing_counts_until_it_is_said_and_then_it_does_on_the_link(
    site: Site, patrol: Peer, page: Page
) -> None:
    eventually(gets_mostly(patrol, "uav/imagery"), what="mostly imagery", page=page)
    before = version(site)
    choose(page, "Alarms", 7)
    affected = page.get_by_role("list", name="Who would be affected")
    expect(affected).to_contain_text("patrol-1")
    expect(affected).to_contain_text("alarm/")
    expect(page.get_by_text("Nothing below is in effect until you apply it.")).to_be_visible()
    assert version(site) == before
    assert importance(site, "Alarms") == 2

    apply(page)
    assert version(site) == before + 1
    assert importance(site, "Alarms") == 7
    assert importance(site, "Imagery") == 5
    eventually(gets_mostly(patrol, "alarm/gate"), what="mostly alarms", page=page)
    # The page of the client tells the same.
    page.goto("/clients/patrol-1")
    expect(page.get_by_text("alarm/gate").first).to_be_visible()
    expect(page.get_by_label("importance 7").first).to_be_visible()


def test_a_draft_survives_a_reload_and_can_be_discarded(site: Site, page: Page) -> None:
    before = version(site)
    choose(page, "Imagery", 0)
    expect(page.get_by_role("list", name="Who would be affected")).to_contain_text("patrol-1")
    page.reload()
    expect(page.get_by_text("Your draft of before is still here.")).to_be_visible()
    page.get_by_role("button", name="Discard").click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("^Discard")).click()
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
    assert version(site) == before


def test_a_conflict_is_shown_and_both_changes_count(site: Site, page: Page) -> None:
    choose(page, "Alarms", 6)
    theirs = {"name": "Imagery", "channel": "uav/#", "importance": 1}
    assert site.http.put("/api/v1/policies/Imagery", json=theirs).status_code == 200
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("is no longer current")
    expect(page.get_by_role("button", name="Apply", exact=True)).to_be_disabled()
    alert.get_by_role("button", name="Compare").click()
    expect(alert).to_contain_text("Imagery")
    alert.get_by_role("button", name="Put mine on top").click()
    expect(alert).to_have_count(0)
    apply(page)
    assert importance(site, "Alarms") == 6
    assert importance(site, "Imagery") == 1


def test_roll_back_restores_what_counted(site: Site, patrol: Peer, page: Page) -> None:
    good = version(site)
    assert site.http.delete("/api/v1/policies/Imagery").status_code == 200
    expect(page.get_by_role("link", name="Imagery")).to_have_count(0)
    page.get_by_role("button", name="History").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(str(good))
    dialog.get_by_text(re.compile(f"^{good}$")).first.click()
    dialog.get_by_role("button", name=f"Make a draft of version {good}").click()
    apply(page)
    assert version(site) == good + 2
    assert importance(site, "Imagery") == 5
    expect(page.get_by_role("link", name="Imagery")).to_be_visible()
    eventually(gets_mostly(patrol, "uav/imagery"), what="mostly imagery", page=page)


def test_a_mistake_is_refused_before_it_counts(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/policies/Alarms")
    before = version(site)
    field = page.get_by_role("textbox", name="Attributes of the event")
    field.fill("priority > > 3")
    field.press("Enter")
    expect(page.get_by_text(re.compile("character 12", re.I)).first).to_be_visible()
    expect(page.get_by_role("button", name="Apply", exact=True)).to_have_count(0)
    assert version(site) == before
    visitor.forgive("/api/v1/predicates/check")


def test_what_is_typed_is_previewed_and_no_click_is_lost(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/policies/Alarms")
    name = page.get_by_role("textbox", name="Name")
    name.fill("Gate alarms")
    # The first click elsewhere counts, although leaving the field renames the policy.
    page.get_by_role("button", name=re.compile("^Importance of")).click()
    page.get_by_role("menuitemradio", name=re.compile(r"^7\b")).click()
    expect(page).to_have_url(re.compile("/policies/Gate%20alarms$"))
    expect(
        page.get_by_role("button", name="Importance of Gate alarms", exact=False)
    ).to_be_visible()
    apply_button = page.get_by_role("button", name="Apply", exact=True)
    expect(apply_button).to_be_enabled()
    channel = page.get_by_role("combobox", name="Channel")
    channel.press_sequentially("nothing/here")
    expect(apply_button).to_be_disabled()
    expect(page.get_by_text("nothing/here").first).to_be_visible()  # in the draft, still typed
    expect(apply_button).to_be_enabled()
    apply_button.click()
    expect(page.get_by_text(re.compile(r"Version \d+ is in effect\.")).first).to_be_visible()
    found = site.get("/api/v1/policies/Gate%20alarms")
    assert (found["importance"], found["channel"]) == (7, ["alarm/#", "nothing/here"])
