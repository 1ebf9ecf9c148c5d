from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.policy_strategies import BOOKS

from accord.core.model.errors import PolicyError
from accord.core.policy import policy_set as book_module
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import (
    ClientLimit,
    PolicySet,
    document,
    parse_policy_set,
    policy_document,
    policy_from,
    policy_set_from,
    render_policy_set,
    with_policy,
    with_settings,
    with_version,
    without_policy,
    write_json,
)
from accord.core.policy.preferences import Preferences

TEXT = """
strategy = "strict"
shaping = false
bandwidth = "800 kbit/s"
client_bandwidth = 2_000_000
weights = [1, 1, 2, 3, 5, 8, 13, 21]

[[limits]]
client = "patrol-1"
bandwidth = "0.3 Mbit/s"

[[policies]]
name = "Patrol-1-Report"
operation = "subscribe"
channel = ["patrol/report", "patrol/+/report"]
client = "patrol-1"
who = "group IN ('a', 'b')"
where = "payload_bytes > 20000 AND platform = 'UAV'"
when = "link_kbps < 500"
precedence = 10
importance = 6
preferences = "FullImageNoDrop"

[[policies]]
name = "Images"
preferences = { shaping = "scaling", deadline = "5 s", max_bytes = "40 KB", replacement = true }
"""


def test_a_book_as_people_write_it() -> None:
    assert parse_policy_set(TEXT) == PolicySet(
        strategy="strict",
        shaping=False,
        bandwidth_bps=800_000,
        client_bandwidth_bps=2_000_000,
        weights=(1, 1, 2, 3, 5, 8, 13, 21),
        limits=(ClientLimit("patrol-1", 300_000),),
        policies=(
            Policy(
                name="Patrol-1-Report",
                operation=("subscribe",),
                channel=("patrol/report", "patrol/+/report"),
                client=("patrol-1",),
                who="group IN ('a', 'b')",
                where="payload_bytes > 20000 AND platform = 'UAV'",
                when="link_kbps < 500",
                precedence=10,
                importance=6,
                preferences="FullImageNoDrop",
            ),
            Policy(
                name="Images",
                preferences=Preferences(
                    shaping="scaling", deadline_ms=5_000, max_bytes=40_000, replacement=True
                ),
            ),
        ),
    )


def test_an_empty_book_has_defaults() -> None:
    book = parse_policy_set("")
    assert book == PolicySet() == parse_policy_set("{}", is_json=True)
    assert book.strategy == "weighted fair"
    assert book.weights == (1, 2, 4, 8, 16, 32, 64, 128)


@given(BOOKS)
def test_what_is_written_is_read(book: PolicySet) -> None:
    assert parse_policy_set(render_policy_set(book)) == book
    assert parse_policy_set(write_json(book), is_json=True) == book
    assert policy_set_from(document(book)) == book


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_survives(text: str) -> None:
    policy = Policy(name="x", description=text, client=("a", text or "b"), importance=1)
    book = PolicySet(policies=(policy,))
    assert parse_policy_set(render_policy_set(book)) == book
    assert parse_policy_set(write_json(book), is_json=True) == book


def test_toml_is_written_with_units() -> None:
    lines = render_policy_set(parse_policy_set(TEXT)).splitlines()
    assert 'bandwidth = "800 kbit/s"' in lines
    preferences = '{ shaping = "scaling", max_bytes = 40000, deadline = "5 s", replacement = true }'
    assert f"preferences = {preferences}" in lines
    never = Policy(name="x", preferences=Preferences(deadline_ms=0))
    assert 'preferences = { deadline = "none" }' in render_policy_set(PolicySet(policies=(never,)))


P = "policies[0]"


@pytest.mark.parametrize(
    ("policy", "place", "problem"),
    [
        ({"importance": 8}, f"{P}.importance", "expected 0 to 7, got 8"),
        ({"importance": -1}, f"{P}.importance", "expected 0 to 7, got -1"),
        ({"importance": True}, f"{P}.importance", "expected an integer, got true"),
        ({"importance": "high"}, f"{P}.importance", "expected an integer, got 'high'"),
        ({"importanse": 3}, f"{P}.importanse", "unknown; did you mean importance?"),
        ({"importance": 3, "": 3}, f"{P}.''", "unknown; expected some of name"),
        ({}, P, "it decides nothing"),
        ({"preferences": {}}, P, "it decides nothing"),
        ({"precedence": 1.5}, f"{P}.precedence", "expected an integer, got 1.5"),
        ({"precedence": 10**9}, f"{P}.precedence", "expected -1000000 to 1000000"),
        ({"operation": "read"}, f"{P}.operation", 'expected one of "publish"'),
        ({"operation": ["query", 3]}, f"{P}.operation[1]", "got 3"),
        ({"operation": []}, f"{P}.operation", "expected at least one name"),
        ({"channel": "a/#/b"}, f"{P}.channel", "expected '#' as the last level only"),
        ({"channel": ["a", "b+"]}, f"{P}.channel[1]", "fill its whole level"),
        ({"channel": ""}, f"{P}.channel", "at least one character"),
        ({"client": ""}, f"{P}.client", "expected a name or a pattern"),
        ({"client": "a" * 257}, f"{P}.client", "257 characters, at most 256 accepted"),
        ({"client": ["a"] * 1_001}, f"{P}.client", "1001, at most 1000 accepted"),
        ({"user": 7}, f"{P}.user", "expected a text, got 7"),
        ({"who": ["a"]}, f"{P}.who", "expected a text, got a list"),
        ({"where": "x" * 20_000}, f"{P}.where", "20000 characters, at most 16384"),
        ({"where": "a = "}, 'policy "x", where', "the predicate ends too early"),
        ({"when": "speed > 3"}, 'policy "x", when', "expected some of backlog"),
        ({"who": "team = 'a'"}, 'policy "x", who', "expected some of client, user"),
        ({"preferences": "Fast"}, f"{P}.preferences", 'expected one of "Default", "NoDrop"'),
        ({"preferences": 3}, f"{P}.preferences", "expected a table or one of Default"),
        ({"preferences": {"dedline": 3}}, f"{P}.preferences.dedline", "did you mean deadline?"),
        ({"preferences": {"deadline": "5 m"}}, f"{P}.preferences.deadline", "expected a duration"),
        ({"preferences": {"deadline": -1}}, f"{P}.preferences.deadline", "expected 0 ms to 30 d"),
        ({"preferences": {"shaping": "2x"}}, f"{P}.preferences.shaping", 'expected "none"'),
        ({"preferences": {"shaping": ""}}, f"{P}.preferences.shaping", "printable"),
        ({"preferences": {"max_bytes": 9}}, f"{P}.preferences.shaping", "beside max_bytes"),
        (
            {"preferences": {"shaping": "none", "max_pixels": 9}},
            f"{P}.preferences.shaping",
            "beside max_bytes",
        ),
        (
            {"preferences": {"shaping": "scaling", "max_bytes": 0}},
            f"{P}.preferences.max_bytes",
            "expected 1 B to 256 MiB",
        ),
        ({"preferences": {"replacement": 1}}, f"{P}.preferences.replacement", "true or false"),
        ({"name": " ", "importance": 1}, f"{P}.name", "expected printable characters"),
        ({"name": "a\nb", "importance": 1}, f"{P}.name", "expected printable characters"),
        ({"name": None, "importance": 1}, f"{P}.name", "expected, but missing"),
    ],
)
def test_mistakes_in_a_policy(policy: dict[str, object], place: str, problem: str) -> None:
    decides = {} if "importanc" in str(policy) or "decides" in problem else {"importance": 3}
    text = msgspec.json.encode({"policies": [{"name": "x", **decides, **policy}]}).decode()
    with pytest.raises(PolicyError) as caught:
        parse_policy_set(text, is_json=True)
    assert caught.value.place == place
    assert problem in caught.value.problem


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ('strategy = "first come"', "strategy", 'renamed to "fifo"'),
        ('strategy = "fair"', "strategy", 'expected one of "strict", "weighted fair"'),
        ("strategi = 1", "strategi", "unknown; did you mean strategy?"),
        ("shaping = 1", "shaping", "expected true or false, got 1"),
        ('bandwidth = "2 Mbps"', "bandwidth", "expected a bandwidth such as"),
        ("bandwidth = 0", "bandwidth", "expected 1 kbit/s to 1000 Gbit/s, got 0"),
        ("client_bandwidth = true", "client_bandwidth", "expected a bandwidth"),
        ("weights = [1, 2]", "weights", "expected 8, by importance, got 2"),
        ("weights = [1, 2, 3, 4, 5, 6, 7, 0]", "weights[7]", "expected 1 to 1000000, got 0"),
        ("version = -1", "version", "expected 0 to"),
        ("limits = 3", "limits", "expected a list, got 3"),
        ("limits = [3]", "limits[0]", "expected a table, got 3"),
        ('[[limits]]\nclient = "a"', "limits[0].bandwidth", "expected, but missing"),
        ('limits = [{client = "a*", bandwidth = 9000}]', "limits[0].client", "one client, got"),
        ('[[limits]]\nclient = "a"\nbandwidth = "none"', "limits[0].bandwidth", "no limit at all"),
        ("policies = {}", "policies", "expected a list, got a table"),
        ("policies = [[]]", "policies[0]", "expected a table, got a list"),
        ("shaping = true\nbandwidth", "end of document", "not TOML: Expected '='"),
        ("a = 1\na = 2\n", "line 2, column 6", "not TOML: Cannot overwrite"),
        ("a = " + "[" * 5_000, "policies", "not TOML: maximum recursion depth"),
    ],
)
def test_mistakes_in_a_book(text: str, place: str, problem: str) -> None:
    with pytest.raises(PolicyError) as caught:
        parse_policy_set(text)
    assert caught.value.place == place
    assert problem in caught.value.problem


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '"\\ud800"', "{}{}", "\ud800"])
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(PolicyError, match=r"^policies: not JSON: "):
        parse_policy_set(text, is_json=True)


@pytest.mark.parametrize("text", ["3", "[]", "null"])
def test_json_that_is_no_book(text: str) -> None:
    with pytest.raises(PolicyError, match=r"^policies: expected a table, got "):
        parse_policy_set(text, is_json=True)


def test_names_are_given_once() -> None:
    policy = {"name": "x", "importance": 1}
    with pytest.raises(PolicyError, match=r"policies\[2\].name: 'x' is the name of policies\[0\]"):
        policy_set_from({"policies": [policy, {**policy, "name": "y"}, policy]})
    limit = {"client": "a", "bandwidth": 9_600}
    with pytest.raises(PolicyError, match=r"limits\[1\].client"):
        policy_set_from({"limits": [limit, limit]})


def test_too_many_policies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "MAX_POLICIES", 2)
    policies = [{"name": f"p{number}", "importance": 1} for number in range(3)]
    with pytest.raises(PolicyError, match="policies: 3, at most 2 accepted"):
        policy_set_from({"policies": policies})
    full = policy_set_from({"policies": policies[:2]})
    with pytest.raises(PolicyError, match="policies: at most 2 accepted"):
        with_policy(full, policy_from(policies[2]))
    assert with_policy(full, policy_from({**policies[1], "importance": 7})).version == 1


def test_null_is_left_out() -> None:
    policy = policy_from({"name": "x", "importance": 1, "client": None, "preferences": None})
    assert policy == Policy(name="x", importance=1)
    assert policy_set_from({"bandwidth": None, "policies": None}) == PolicySet()


def test_a_policy_beside_its_name() -> None:
    assert policy_from({"importance": 1}, name="x") == Policy(name="x", importance=1)
    with pytest.raises(PolicyError, match=r"policy\.name: expected 'x', or nothing"):
        policy_from({"name": "y", "importance": 1}, name="x")
    assert policy_document(Policy(name="x", importance=0)) == {"name": "x", "importance": 0}


def test_policies_change_one_by_one() -> None:
    first, second = Policy(name="a", importance=1), Policy(name="b", importance=2)
    book = with_policy(with_policy(PolicySet(version=5), first), second)
    assert (book.version, book.policies) == (7, (first, second))
    changed = with_policy(book, Policy(name="a", importance=6))
    assert [policy.importance for policy in changed.policies] == [6, 2]
    assert without_policy(changed, "a").policies == (second,)
    assert book.policy("b") is second
    with pytest.raises(PolicyError, match='policy "c": there is none of this name'):
        without_policy(book, "c")
    assert with_version(book, 3).version == 3


def test_settings_change_one_by_one() -> None:
    book = parse_policy_set(TEXT)
    changed = with_settings(book, {"strategy": "laxity", "bandwidth": "2 Mbit/s"})
    assert (changed.strategy, changed.bandwidth_bps, changed.version) == ("laxity", 2_000_000, 1)
    assert (changed.policies, changed.limits) == (book.policies, book.limits)
    assert with_settings(changed, {"bandwidth": None}).bandwidth_bps is None
    unlimited = with_settings(changed, {"client_bandwidth": "none", "limits": []})
    assert (unlimited.client_bandwidth_bps, unlimited.limits) == (None, ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": []}, "policies: unknown"),
        ({"strategy": None}, "strategy: expected one of"),
        ([], "settings: expected a table, got a list"),
    ],
)
def test_mistakes_in_settings(settings: object, message: str) -> None:
    with pytest.raises(PolicyError, match=f"^{message}"):
        with_settings(PolicySet(), settings)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "policies", "limits", "client", "bandwidth", "importance", "preferences"]
            ),
            inner,
            max_size=4,
        )
    ),
)


@given(JSON)
def test_whatever_comes_is_a_book_or_a_policy_error(document_: object) -> None:
    try:
        book = policy_set_from(document_)
    except PolicyError:
        return
    assert policy_set_from(document(book)) == book
