"""One-time tokens of pages: for one connection, one user, a minute, and clients of pages only."""

from __future__ import annotations

import pytest

from accord.runtime.connect_tokens import MAX_TOKENS, MAX_TOKENS_PER_USER, ConnectTokens


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def tokens(clock: Clock) -> ConnectTokens:
    return ConnectTokens(clock)


def test_a_token_is_good_once(tokens: ConnectTokens) -> None:
    token = tokens.issue("ann").encode()
    assert tokens.redeem("ann", token, "console-1")
    assert not tokens.redeem("ann", token, "console-1")
    assert len(tokens) == 0


def test_it_is_for_this_user_and_for_pages(tokens: ConnectTokens) -> None:
    token = tokens.issue("ann").encode()
    assert not tokens.redeem("bob", token, "console-1")
    assert not tokens.redeem("ann", token, "patrol-1")
    assert not tokens.redeem("ann", None, "console-1")
    assert not tokens.redeem("ann", token[:-1] + b"!", "console-1")
    assert not tokens.redeem("ann", token * 1_000, "console-1")
    assert tokens.redeem("ann", token, "console-1")


def test_it_is_good_for_a_minute(tokens: ConnectTokens, clock: Clock) -> None:
    early, late = tokens.issue("ann").encode(), tokens.issue("ann").encode()
    clock.now_s = 59.9
    assert tokens.redeem("ann", early, "console-1")
    clock.now_s = 60
    assert not tokens.redeem("ann", late, "console-1")


def test_a_user_displaces_only_its_own(tokens: ConnectTokens) -> None:
    theirs = tokens.issue("bob").encode()
    own = [tokens.issue("ann").encode() for _ in range(MAX_TOKENS_PER_USER + 1)]
    assert len(tokens) == MAX_TOKENS_PER_USER + 1
    assert not tokens.redeem("ann", own[0], "console-1")
    assert tokens.redeem("ann", own[1], "console-1")
    assert tokens.redeem("bob", theirs, "console-1")


def test_all_together_are_bounded_and_expire(tokens: ConnectTokens, clock: Clock) -> None:
    for number in range(MAX_TOKENS + 10):
        tokens.issue(f"user-{number}")
    assert len(tokens) == MAX_TOKENS
    clock.now_s = 61
    tokens.issue("ann")
    assert len(tokens) == 1
