"""Where users are configured: login, rights, logout."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import argon2
import httpx
import pytest

from tests.browser.browsing import Page, Visitor, eventually, expect
from tests.browser.traffic import Peer, Site, Stream, start_site

WORD = "a long password"
HASH = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash(WORD)
CONFIG = f"""
[users.ann]
password = "{HASH}"

[users.bob]
password = "{HASH}"
may = {{ publish = ["home/bob/#"], subscribe = ["home/%u/#"], policies = false }}

[users.eve]
password = "{HASH}"
may = {{ subscribe = ["home/%u/#"] }}
may_not = {{ statistics = true }}
"""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with (
        start_site(CONFIG, user=("ann", WORD)) as running,
        Peer(running, "house", user=("ann", WORD)) as house,
        Peer(running, "listener", "home/#", user=("ann", WORD)),
        Stream(house, {"home/bob/door": b"open", "home/ann/door": b"shut"}, 5),
    ):
        yield running


def log_in(page: Page, user: str, password: str = WORD) -> None:
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()


def test_a_wrong_password_is_refused_and_a_right_one_leads_on(visitor: Visitor) -> None:
    page = visitor.open("/channels?search=door")
    expect(page).to_have_url(re.compile("/login"))
    expect(page.get_by_text("home/")).to_have_count(0)
    log_in(page, "ann", "a wrong password")
    expect(page.get_by_text("User or password is wrong.")).to_be_visible()
    expect(page.get_by_label("Password")).to_have_value("")
    log_in(page, "ann")
    expect(page).to_have_url(re.compile(r"/channels\?search=door$"))
    expect(page.get_by_role("link", name="home/bob/door")).to_be_visible()
    expect(page.get_by_role("link", name="home/ann/door")).to_be_visible()
    # The cookie can't be read by scripts.
    assert page.evaluate("document.cookie") == ""
    (cookie,) = visitor.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    visitor.forgive("/api/v1/session")


def test_a_user_sees_and_does_what_the_rights_allow(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/channels")
    log_in(page, "bob")
    expect(page.get_by_role("link", name="home/bob/door")).to_be_visible()
    expect(page.get_by_role("link", name="home/ann/door")).to_have_count(0)
    page.goto("/channels/home/bob/door")
    rows = page.locator('table[aria-label="Events"] tbody tr[data-index]')
    eventually(lambda: rows.count() > 2, what="events of bob's own door", page=page)
    page.goto("/channels/home/ann/door")
    expect(
        page.get_by_text(re.compile("may not|not allowed|not authori", re.I)).first
    ).to_be_visible()
    assert rows.count() == 0
    # No action that the node would refuse is offered; whoever tries is refused.
    page.goto("/clients")
    page.get_by_role("button", name="Actions for listener").click()
    expect(page.get_by_role("menuitemradio")).to_have_text(["Open"])
    status = page.evaluate(
        """fetch('/api/v1/limits', {method: 'PUT', headers: {'Content-Type': 'application/json'},
             body: JSON.stringify({clients: ['listener'], bandwidth: 1000})})
             .then((answer) => answer.status)"""
    )
    assert status == 403
    assert site.get("/api/v1/policies")["limits"] == []
    visitor.forgive("403")


def test_without_the_right_to_statistics_pages_say_so(visitor: Visitor) -> None:
    page = visitor.open("/")
    log_in(page, "eve")
    expect(page.locator("h1")).to_have_text("You may not see what this node does.")
    page.goto("/channels")
    expect(page.get_by_text("statistics").first).to_be_visible()
    expect(page.get_by_role("link", name="home/bob/door")).to_have_count(0)
    visitor.forgive("403")


def test_after_logout_nothing_is_shown(site: Site, visitor: Visitor) -> None:
    page = visitor.open("/")
    log_in(page, "ann")
    expect(page.locator("h1")).to_contain_text("delivered")
    (cookie,) = visitor.context.cookies()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Password")).to_be_visible()
    page.goto("/channels/home/bob/door")
    expect(page.get_by_label("Password")).to_be_visible()
    assert visitor.context.cookies() == []
    stolen = {"Cookie": f"{cookie['name']}={cookie['value']}"}
    assert httpx.get(f"{site.url}/api/v1/status", headers=stolen).status_code == 401
    visitor.forgive("401")


def test_after_too_many_attempts_the_page_says_how_long_to_wait(
    site: Site, visit: Callable[..., Visitor]
) -> None:
    visitor = visit(site.url)
    page = visitor.open("/login")
    for _ in range(20):
        with httpx.Client(base_url=site.url) as http:
            body = {"user": "mallory", "password": "guess"}
            if http.post("/api/v1/session", json=body).status_code == 429:
                break
    log_in(page, "mallory", "guess")
    expect(page.get_by_text("Too many attempts.")).to_be_visible()
    expect(page.get_by_role("button", name="Log in")).to_be_disabled()
    visitor.forgive("429")
