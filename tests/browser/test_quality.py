"""Quality in the browser: what is asked for, offered and granted; the editor; a real agent."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.browser.browsing import DESK, PHONE, Locator, Page, Visitor, eventually, expect
from tests.browser.test_login import CONFIG, WORD, log_in
from tests.browser.test_looks import PICTURES, serious
from tests.browser.traffic import Peer, Site, Stream, start_site
from tests.scenarios.test_quality import agent

PROFILE: Final[dict[str, Any]] = {
    "rate": {"range": [1, 10], "current": 2, "cost": [[1, 0.1], [6, 0.7], [10, 3]]},
    "confidence": {"range": [50, 99], "current": 82},
    "freshness": {"range": [100, 1600], "current": 400},
    "trust": {"range": ["medium", "medium"], "current": "medium"},
}
OFTEN: Final[dict[str, Any]] = {
    "id": "often", "utility": 3,
    "rate": [1, 8], "confidence": [90, None], "freshness": [None, 500], "trust": "high",
}  # fmt: skip
CALM: Final[dict[str, Any]] = {"id": "calm", "utility": 1, "rate": [1, 2]}
XML: Final = """<quality>
  <!-- for the desk -->
  <expectation id="often" subscription="uav/#" channel="uav/#" utility="3" publishers="1">
    <requirement property="rate" lower="4" upper="8"/>
    <requirement property="trust" lower="medium"/>
  </expectation>
  <expectation id="calm" subscription="uav/#" channel="uav/#" utility="1" publishers="1">
    <requirement property="rate" lower="1"/>
  </expectation>
  <profile publisher="raven-7" channel="uav/imagery">
    <capability property="rate" lower="1" upper="10" current="2">
      <linear base="0" slope="0.1"/>
    </capability>
  </profile>
</quality>
"""


def register(site: Site, client: str, channel: str, *forms: dict[str, Any]) -> None:
    body = {"client": client, "channel": channel, "expect": [*forms]}
    answer = site.http.post("/api/v1/expectations", json=body)
    assert answer.status_code == 200, answer.text


def declare(site: Site, client: str, channel: str, capabilities: dict[str, Any]) -> None:
    body = {"client": client, "capabilities": capabilities}
    answer = site.http.put(f"/api/v1/capabilities/{channel.replace('/', '%2F')}", json=body)
    assert answer.status_code == 200, answer.text


def states(site: Site) -> dict[str, str]:
    found = site.get("/api/v1/quality")["channels"]
    return {each["id"]: each["state"] for channel in found for each in channel["expectations"]}


@pytest.fixture
def desk(site: Site) -> Iterator[Peer]:
    """desk-2 expects what raven-7 gives in part."""
    with (
        Peer(site, "raven-7") as raven,
        Peer(site, "desk-2", "uav/#") as desk,
        Stream(raven, {"uav/imagery": b"picture"}, 2),
    ):
        declare(site, "raven-7", "uav/imagery", PROFILE)
        register(site, "desk-2", "uav/#", OFTEN, CALM)
        yield desk


@pytest.fixture
def page(desk: Peer, visitor: Visitor) -> Page:
    page = visitor.open("/quality")
    expect(page.get_by_role("heading", name="desk-2 / often")).to_be_visible()
    return page


def editor(page: Page) -> Locator:
    return page.get_by_role("region", name=re.compile("^(Editor|(New|Edit) )"))


def show(page: Page, form: str) -> Locator:
    """The text of the document in this form."""
    editor(page).get_by_role("radio", name=form, exact=True).click()
    text = page.get_by_role("textbox", name=f"Expectations and profiles as {form}")
    if form != "Fields":
        expect(text).not_to_have_value("")
    return text


def load(page: Page, file: Path) -> None:
    page.get_by_label("File of expectations and profiles").set_input_files(file)


def saved(page: Page, form: str, folder: Path) -> str:
    editor(page).get_by_role("button", name="Save as a file").click()
    with page.expect_download() as download:
        page.get_by_role("menuitemradio", name=f"as {form}").click()
    file = folder / f"saved.{form.lower()}"
    download.value.save_as(file)
    return file.read_text()


@pytest.mark.parametrize("name", ["match", "profile", "text", "define"])
def test_looks(desk: Peer, visitor: Visitor, name: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = visitor.open("/quality")
    expect(page.get_by_role("heading", name="desk-2 / often")).to_be_visible()
    if name == "profile":
        page.get_by_role("button", name="Edit the profile of raven-7").click()
        expect(editor(page).get_by_role("img", name=re.compile("^Cost by rate"))).to_be_visible()
    elif name == "text":
        text = show(page, "JSON")
        text.fill(text.input_value().replace('"rate"', '"rat"'))
        expect(editor(page).get_by_role("alert")).to_be_visible()
        visitor.forgive("400 (Bad Request)")
    elif name == "define":
        page.get_by_role("button", name="Define").click()
    found = []
    for size in ((PHONE[0], 3_400), (DESK[0], 1_700)):
        visitor.resize(size)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(200)
            page.screenshot(path=PICTURES / f"quality-{name}-{size[0]}-{theme}.png")
            assert visitor.overflow() <= 0, f"{size}, {theme}"
            found += serious(page)
    assert found == []
    visitor.forgive("400 (Bad Request)")


def test_the_match_says_what_would_have_to_change(site: Site, page: Page) -> None:
    expect(page.get_by_role("heading", level=1)).to_have_text(
        "1 of 2 expectations is satisfied. desk-2 asks for more trust than anybody can give."
    )
    match = page.get_by_role("list", name="Requested, offered and granted")
    drawn = match.get_by_role("img", name="trust: asked for high, offered medium to medium")
    expect(drawn).to_be_visible()
    expect(match).to_contain_text("medium now, medium at best")
    # What the page proposes becomes the draft, and counts once it is updated.
    page.get_by_role("button", name="Ask for medium").click()
    expect(editor(page)).to_contain_text("Not registered yet.")
    assert states(site)["often"] == "unsatisfied"
    editor(page).get_by_role("button", name="Update").click()
    eventually(lambda: states(site)["often"] == "satisfiable", what="a satisfiable one", page=page)
    expect(page.get_by_role("list", name="Expectations")).to_contain_text("adapting")
    advice = page.get_by_role("table", name="Advice")
    expect(advice).to_contain_text("advised: confidence")
    expect(advice).to_contain_text("waiting")
    # The publisher follows.
    current = {"client": "raven-7", "current": {"confidence": 92}}
    site.http.patch("/api/v1/capabilities/uav%2Fimagery", json=current)
    expect(page.get_by_role("heading", level=1)).to_have_text("All 2 expectations are satisfied.")
    expect(advice).to_contain_text("now 92")


def test_mismatches_alone_are_shown_on_demand(page: Page) -> None:
    listed = page.get_by_role("list", name="Expectations")
    expect(listed.get_by_role("button")).to_have_count(2)
    page.get_by_role("switch", name="Mismatches only").click()
    expect(listed.get_by_role("button")).to_have_count(1)
    expect(page).to_have_url(re.compile("mismatches=true"))


def test_an_expectation_is_suspended_resumed_and_revoked(site: Site, page: Page) -> None:
    page.get_by_role("list", name="Expectations").get_by_role("button", name="calm").click()
    expect(page.get_by_role("heading", name="desk-2 / calm")).to_be_visible()
    page.get_by_role("button", name="Suspend").click()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    assert states(site)["calm"] == "suspended"
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Suspend")).to_be_visible()
    assert states(site)["calm"] == "satisfied"
    page.get_by_role("button", name="Revoke", exact=True).click()
    expect(page.get_by_role("list", name="Expectations").get_by_role("button")).to_have_count(1)
    assert "calm" not in states(site)


def test_what_is_loaded_is_saved_as_it_was(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "desk.xml"
    file.write_text(XML)
    load(page, file)
    text = page.get_by_role("textbox", name="Expectations and profiles as XML")
    expect(text).to_have_value(XML)
    for form in ("Fields", "JSON", "XML"):
        show(page, form)
    expect(text).to_have_value(XML)
    assert saved(page, "XML", tmp_path) == XML
    as_json = saved(page, "JSON", tmp_path)
    assert [each["id"] for each in json.loads(as_json)["expectations"]] == ["often", "calm"]
    # JSON in, JSON out; and XML again, as the node writes it.
    compact = json.dumps(json.loads(as_json))
    file = tmp_path / "desk.json"
    file.write_text(compact)
    load(page, file)
    expect(page.get_by_role("textbox", name="Expectations and profiles as JSON")).to_have_value(
        compact
    )
    assert saved(page, "JSON", tmp_path) == compact
    assert without_comments(saved(page, "XML", tmp_path)) == without_comments(XML)


def without_comments(xml: str) -> str:
    return re.sub(r"\s*<!--.*?-->", "", xml)


def test_a_change_of_the_fields_is_in_the_text_and_the_other_way_round(page: Page) -> None:
    fields = editor(page)
    rate = fields.get_by_role("textbox", name="rate: worst sufficient value")
    expect(rate).to_have_value("1")
    rate.fill("4")
    rate.press("Enter")
    expect(show(page, "XML")).to_have_value(re.compile('property="rate" lower="4" upper="8"'))
    text = show(page, "JSON")
    text.fill(text.input_value().replace('"utility": 3.0', '"utility": 7'))
    show(page, "Fields")
    expect(fields.get_by_role("textbox", name="Utility")).to_have_value("7")
    expect(rate).to_have_value("4")
    # By keyboard, on the property's own scale: better is to the right.
    knob = fields.get_by_role("slider", name="trust: worst sufficient value")
    knob.press("ArrowLeft")
    expect(knob).to_have_attribute("aria-valuetext", "medium")
    knob = fields.get_by_role("slider", name="freshness: worst sufficient value")
    knob.press("Home")
    expect(knob).to_have_attribute("aria-valuetext", re.compile("^2000"))


MISTAKES: Final = [
    ("XML", 'property="rate"', 'property="rat"', "line 3: requirement: 'rat': no such", ""),
    ("XML", "<quality>", "<quality", "line 2, column", ""),
    ("XML", "<quality>", '<!DOCTYPE q [<!ENTITY a "b">]><quality>', "DTD", ""),
    (
        "JSON", '"rate"', '"rat"',
        "expectations[0].requirements[0], line 10: requirement: 'rat': no such", "{",
    ),
    ("JSON", '"utility": 3.0', '"utility": true', "expectations[0].utility, line 7: ", "true"),
    ("JSON", '"utility": 3.0', '"utility": 3.0 x', "line 7, column 22: not JSON", "x"),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_mistakes_are_pointed_at(
    visitor: Visitor, page: Page, mistake: tuple[str, str, str, str, str]
) -> None:
    form, old, new, problem, marked = mistake
    text = show(page, form)
    was = text.input_value()
    assert old in was
    text.fill(was.replace(old, new, 1))
    alert = editor(page).get_by_role("alert")
    expect(alert).to_contain_text(problem)
    expect(text).to_have_attribute("aria-invalid", "true")
    expect(editor(page).get_by_role("button", name="Update")).to_be_disabled()
    if marked:
        alert.get_by_role("button").click()
        chosen = text.evaluate("(at) => at.value.slice(at.selectionStart, at.selectionEnd)")
        assert chosen.startswith(marked)
    text.fill(was)
    expect(alert).to_have_count(0)
    expect(editor(page).get_by_role("button", name="Update")).to_be_enabled()
    visitor.forgive("400 (Bad Request)")


def test_a_property_is_defined_and_asked_for(visitor: Visitor, page: Page) -> None:
    page.get_by_role("button", name="Define").click()
    dialog = page.get_by_role("dialog", name="Define a property")
    dialog.get_by_role("textbox", name="Name").fill("colour")
    dialog.get_by_role("radio", name="Levels").click()
    dialog.get_by_role("textbox", name="Levels, the lowest first").fill("grey < few <")
    dialog.get_by_role("button", name="Define").click()
    expect(dialog.get_by_role("alert")).to_contain_text("line 2: levels: expected such as none <")
    text = dialog.get_by_role("textbox", name="Definitions")
    text.fill(text.input_value().replace("few <", "few < full"))
    dialog.get_by_role("button", name="Define").click()
    expect(dialog).to_be_hidden()
    visitor.forgive("400 (Bad Request)")
    expect(page.get_by_role("table", name="Properties")).to_contain_text("grey < few < full")
    fields = editor(page)
    fields.get_by_role("combobox", name="Ask for another property").select_option("colour")
    knob = fields.get_by_role("slider", name="colour: worst sufficient value")
    expect(knob).to_have_attribute("aria-valuetext", "few")
    knob.press("End")
    expect(knob).to_have_attribute("aria-valuetext", "full")
    expect(fields).to_contain_text("colour: raven-7 would have to offer it.")
    fields.get_by_role("button", name="Update").click()
    expect(page.get_by_role("list", name="Expectations")).to_contain_text("nobody offers all of it")
    match = page.get_by_role("list", name="Requested, offered and granted")
    expect(match).to_contain_text("not offered")


def test_the_page_offers_itself_and_follows_advice(site: Site, page: Page) -> None:
    page.get_by_role("button", name="New profile").click()
    fields = editor(page)
    channel = fields.get_by_role("textbox", name="Channel")
    channel.fill("bft/units")
    fields.get_by_role("combobox", name="rate: form of the cost").select_option("line")
    expect(fields.get_by_role("img", name=re.compile("^Cost by rate"))).to_be_visible()
    knob = fields.get_by_role("slider", name="rate: current value")
    knob.press("PageUp")
    fields.get_by_role("button", name="Register").click()
    expect(fields.get_by_role("status")).to_contain_text("The profile of this page")
    profiles = page.get_by_role("list", name="Profiles")
    expect(profiles).to_contain_text("bft/units")
    with Peer(site, "hq", "bft/#"):
        register(site, "hq", "bft/#", {"id": "fast", "rate": [5, 8], "utility": 9})
        advised = page.get_by_text("Advised for this page: rate of bft/units to 5")
        expect(advised).to_be_visible()
        page.get_by_role("button", name="Follow").click()
        expect(advised).to_be_hidden()
        eventually(lambda: states(site)["fast"] == "satisfied", what="satisfied", page=page)
        page.get_by_role("button", name="End now").click()
        eventually(lambda: states(site)["fast"] == "unsatisfied", what="the end", page=page)


def test_the_page_expects_and_a_real_agent_adapts(
    site: Site, visitor: Visitor, tmp_path: Path
) -> None:
    url = f"mqtt://127.0.0.1:{site.broker.port}"
    with (
        agent(tmp_path, url) as running,
        Peer(site, "lab-desk", "lab/temperature") as lab,
    ):
        assert running.stderr is not None
        assert "rate 2 on lab/temperature" in running.stderr.readline()
        page = visitor.open("/quality")
        expect(page.get_by_role("list", name="Profiles")).to_contain_text("lab/temperature")
        page.get_by_role("button", name="New expectation").click()
        fields = editor(page)
        fields.get_by_role("textbox", name="Channel or filter").fill("lab/#")
        fields.get_by_role("textbox", name="Name").fill("often")
        least = fields.get_by_role("textbox", name="rate: worst sufficient value")
        least.fill("10")
        least.press("Enter")
        # The offer is tinted below, and it is said what would happen.
        expect(fields).to_contain_text("offered 0.2 – 50")
        expect(fields).to_contain_text("would have to change to 10")
        expect(
            fields.get_by_role("img", name=re.compile("asked for 10.Hz costs 1"))
        ).to_be_visible()
        fields.get_by_role("button", name="Register").click()
        expect(fields.get_by_role("status")).to_contain_text("1 expectation registered for this")
        assert "advised: rate 10" in running.stderr.readline()
        expect(page.get_by_role("heading", level=1)).to_have_text(
            "The only expectation is satisfied."
        )
        advice = page.get_by_role("table", name="Advice")
        expect(advice).to_contain_text(re.compile(r"advised: rate.*2.Hz.*10.Hz.*now (9|1\d)", re.S))
        # The events that others get, and that the page gets itself.
        lab.received.clear()
        page.wait_for_timeout(3_000)
        assert 20 <= lab.received["lab/temperature"] <= 40
        expect(
            page.get_by_text(re.compile(r"it gets (9|1\d)(\.\d)? events a second"))
        ).to_be_visible()
        # Another bound, by the same page.
        least.fill("20")
        least.press("Enter")
        fields.get_by_role("button", name="Update").click()
        assert "advised: rate 20" in running.stderr.readline()
        expect(advice).to_contain_text(re.compile("now (19|2\\d)"))


def test_another_client_is_registered_for_and_a_draft_is_not_lost(
    site: Site, visitor: Visitor, page: Page
) -> None:
    fields = editor(page)
    page.get_by_role("button", name="New expectation").click()
    fields.get_by_role("textbox", name="Name").fill("third")
    fields.get_by_role("radio", name="another client").click()
    fields.get_by_role("textbox", name="Client").fill("desk-2")
    fields.get_by_role("textbox", name="Client").press("Enter")
    fields.get_by_role("button", name="Alternative").click()
    fields.get_by_role("textbox", name="Utility").fill("8")
    fields.get_by_role("textbox", name="Utility").press("Enter")
    page.get_by_role("button", name="New profile").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep the draft").click()
    fields.get_by_role("button", name="Register").click()
    expect(fields.get_by_role("status")).to_contain_text("2 expectations registered for desk-2.")
    assert {"third", "third-2"} <= states(site).keys()
    # What the node refuses is said, and the draft stays.
    fields.get_by_role("textbox", name="rate: worst sufficient value").fill("-3")
    expect(fields.get_by_role("textbox", name="Utility")).to_be_visible()
    fields.get_by_role("textbox", name="Utility").click()
    expect(fields.get_by_role("alert")).to_contain_text("expected a number within 0..inf, got -3")
    expect(fields.get_by_role("button", name="Update")).to_be_disabled()
    visitor.forgive("400 (Bad Request)")


def test_names_and_texts_of_others_are_harmless(
    site: Site, visitor: Visitor, tmp_path: Path
) -> None:
    name = "\u202e<img src=x onerror=alert(1)>" + "x" * 200
    with Peer(site, name, "evil/#"):
        register(site, name, "evil/#", {"id": "<script>alert(2)</script>", "rate": 1})
        register(site, name, "evil/#", {"id": "__proto__", "rate": 2, "trust": "low"})
        page = visitor.open("/quality")
        listed = page.get_by_role("list", name="Expectations").get_by_role("button")
        expect(listed).to_have_count(2)
        for each in (0, 1):
            listed.nth(each).click()
            expect(page.get_by_role("list", name="Requested, offered and granted")).to_be_visible()
            show(page, "XML")
            show(page, "Fields")
        file = tmp_path / "evil.json"
        file.write_text('{"expectations": [{"id": "</textarea><script>alert(3)</script>"}]}')
        load(page, file)
        expect(editor(page).get_by_role("alert")).to_contain_text("line 1")
        page.keyboard.press("Escape")
        assert visitor.overflow() <= 0
        assert "\u202e" not in page.inner_text("main")
    visitor.forgive("400 (Bad Request)")


def test_a_user_expects_what_the_rights_allow(visit: Callable[..., Visitor]) -> None:
    with (
        start_site(CONFIG, user=("ann", WORD)) as site,
        Peer(site, "house", "home/#", user=("ann", WORD)),
    ):
        register(site, "house", "home/#", {"id": "all", "rate": 1})
        visitor = visit(site.url)
        page = visitor.open("/quality")
        log_in(page, "bob")
        # What concerns channels of others is not shown, and may not be asked for.
        expect(page.get_by_role("heading", level=1)).to_have_text("Nobody expects anything yet.")
        expect(page.get_by_text("No expectations.")).to_be_visible()
        expect(page.get_by_text("house")).to_have_count(0)
        page.get_by_role("button", name="New expectation").click()
        fields = editor(page)
        channel = fields.get_by_role("textbox", name="Channel or filter")
        for filter_, said in (("home/#", "refused home/#"), ("home/bob/#", "1 expectation")):
            channel.fill(filter_)
            channel.press("Enter")
            fields.get_by_role("button", name="Register").click()
            expect(fields.get_by_text(re.compile(said))).to_be_visible()
        expect(page.get_by_role("list", name="Expectations")).to_contain_text("home/bob/#")
        fields.get_by_role("button", name="Discard").click()
        page.get_by_role("button", name="New expectation").click()
        fields.get_by_role("radio", name="another client").click()
        fields.get_by_role("textbox", name="Client").fill("house")
        expect(fields.get_by_role("button", name="Register")).to_be_disabled()
        page.get_by_role("button", name="Suspend").click()
        expect(page.get_by_role("button", name="Resume")).to_be_visible()
        assert states(site)["mine"] == "suspended"
        visitor.forgive("/api/v1/session", "403 (Forbidden)", "401")
        visitor.page.goto("about:blank")  # before the node ends
