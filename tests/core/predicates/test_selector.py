from __future__ import annotations

import pytest

from accord.core.model.errors import PredicateError
from accord.core.model.values import Value
from accord.core.predicates.predicate import parse

PATROL: dict[str, Value] = {
    "platform": "UAV",
    "altitude_m": 420,
    "speed": 12.5,
    "armed": False,
    "position.unit": "m",
}


def nested(form: str, times: int) -> str:
    text = "a"
    for _ in range(times):
        text = form.format(text)
    return text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  \n",
        "platform = 'UAV' AND altitude_m > 300",
        "PLATFORM IS NULL and platform is not null",
        "NOT armed",
        "not armed or false",
        "altitude_m BETWEEN 400 AND 500",
        "altitude_m NOT BETWEEN 0 AND 100",
        "platform IN ('UAV', 'UGV')",
        "platform NOT IN ('tank')",
        "platform LIKE 'U%'",
        "platform LIKE '_A_'",
        "platform NOT LIKE '%x%'",
        "speed * 2 = 25",
        "altitude_m / 8 = 52.5",
        "-altitude_m < 0",
        "altitude_m = 420.0",
        "altitude_m = 0x1A4",
        "altitude_m = 0644",
        "altitude_m = 42e1 AND altitude_m = 420L AND altitude_m = 420d",
        "\"position.unit\" = 'm' AND position.unit = 'm'",
        "platform != 'tank'",
        "platform > 'U' AND platform < 'V'",
        "(altitude_m > 500) IS NOT NULL",
        "(missing > 500) IS NULL",
        "missing IS NULL",
    ],
)
def test_selectors_that_match(text: str) -> None:
    assert parse(text).evaluate(PATROL) is True


@pytest.mark.parametrize(
    "text",
    [
        "missing = 1",
        "NOT missing = 1",
        "missing <> 1",
        "missing NOT IN (1, 2)",
        "platform = 5",
        "NOT platform = 5",
        "platform > 5",
        "altitude_m LIKE '4%'",
        "armed = 'FALSE'",
        "altitude_m",
        "NOT altitude_m",
        "+altitude_m",
        "altitude_m / 0 = 0",
        "altitude_m / 0 IS NOT NULL",
        "speed * 1e308 * 100 > 0",
        "missing AND NOT armed",
        "XPATH '/report'",
        "NOT XPATH '/report'",
    ],
)
def test_selectors_that_are_unknown_or_false(text: str) -> None:
    assert parse(text).evaluate(PATROL) is not True


@pytest.mark.parametrize(
    "text",
    [
        "(" * 128 + "a = 1" + ")" * 128,
        " OR ".join(["(a = 1)"] * 500),
        f"a = '{'(' * 200}'",
        f'"{"(" * 200}" = 1',
        f"a = 'it''s {'-' * 200}' OR b = ')'",
        "NOT " * 61 + "a",
        " + ".join("-a" for _ in range(60)) + " > 1",
        " OR ".join(["NOT a"] * 200),
        " OR ".join(["notify"] * 200),
    ],
    ids=lambda text: text[:20],
)
def test_what_is_long_need_not_be_deep(text: str) -> None:
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("altitude_m >", "the predicate ends too early at character 13, expected"),
        ("altitude_m >> 3", "unexpected '>' at character 13, expected"),
        ("altitude_m > 3 AN platform = 'UAV'", "unexpected 'AN' at character 16, expected"),
        ("a = 'open", "a quote ' that is never closed at character 5"),
        ("a ^ 2", "unexpected '^' at character 3"),
        ("3", "a constant is no condition at character 1, expected"),
        ("a = 1 AND 3 + 4", "a constant is no condition at character 11"),
        ("'text'", "a constant is no condition at character 1"),
        ("a = 9223372036854775808", "an integer beyond 64 bits at character 5"),
        ("a = 1e999", "a number beyond the range of floats at character 5"),
        ("TRUE > 0", "TRUE and FALSE have no order at character 1, expected = or <>"),
        ("TRUE = 1", "a boolean never equals a number at character 1"),
        ("a LIKE 'x' ESCAPE 'ab'", "a longer escape at character 19"),
        ("a LIKE 'x!' ESCAPE '!'", "the pattern ends in its escape character at character 8"),
        ("a = 1 + 'b'", "no arithmetic on 'b' at character 9, expected a number"),
        ("a = -'b'", "no sign on 'b' at character 6"),
        ("t > TIMESTAMP 'noon'", "not a timestamp at character 15, expected ISO 8601"),
        ("a IN ()", "unexpected ')' at character 7"),
        ("a = NULL", "unexpected 'NULL' at character 5"),
        ("a = 1 AND XPATH '/b['", "unexpected end of source at character 21"),
        ("a = '\ud800'", "a lone surrogate at character 6, expected Unicode text"),
        ('"a\0b" = 1', "expected no null character at character 1"),
        (f'"{"n" * 257}" = 1', "expected at most 256 characters at character 1"),
        ("x = " + "1" * 5_000, "a long number at character 5, expected at most 1024 digits"),
        ("x LIKE '" + "%a" * 600 + "'", "a long pattern at character 8"),
        ("x = -(-9223372036854775808)", "an integer beyond 64 bits at character 7"),
        (nested("({}) BETWEEN b AND c", 20), "too large when written out at character"),
        (nested("({}) IN (b, c, d, e)", 12), "too large when written out at character"),
        ("-" * 100 + "a = 1", "nested deeper than 64 levels at character 65, expected at most 64"),
        ("not +" * 100 + "a", "nested deeper than 64 levels at character 161, expected at most"),
        ("(" * 8_000, "nested deeper than 128 levels at character 129, expected at most 128 brac"),
        ("a - ( " * 2_000, "nested deeper than 128 levels at character 773, expected at most"),
        ("a" + "+a" * 100 + "> 1", "nested deeper than 64 levels at character"),
        ("a" * 20_000, "20000 characters, at most 16384 accepted"),
    ],
)
def test_mistakes_are_named_where_they_stand(text: str, summary: str) -> None:
    with pytest.raises(PredicateError) as mistake:
        parse(text)
    assert mistake.value.summary.startswith(summary)


def test_the_caret_points_at_the_character_in_its_line() -> None:
    with pytest.raises(PredicateError) as mistake:
        parse("altitude_m > 300\nAND\tplatform == 'UAV'")
    assert mistake.value.pointed().splitlines()[1:] == [
        "  AND platform == 'UAV'",
        "                ^",
    ]


def test_int64_ends_are_numbers() -> None:
    assert parse("a = -9223372036854775808").evaluate({"a": -(2**63)}) is True
    assert parse("a = 9223372036854775807").evaluate({"a": 2**63 - 1}) is True


def test_words_that_only_accord_knows_stay_free_for_attributes() -> None:
    values: dict[str, Value] = {"xpath": 1, "timestamp": 2, "using": 3, "unknown": 4}
    assert parse("xpath = 1 AND timestamp = 2 AND using = 3 AND unknown = 4").evaluate(values)
