from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

import argon2
import pytest

from accord.core.router.rights import EVERYTHING, Rights
from accord.runtime import users as users_module
from accord.runtime.password_queue import BusyError, VerificationLimits
from accord.runtime.users import User, Users, hash_password, problem_with_hash

QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
READER = Rights(subscribe=("#",))
ANN = User("ann", QUICK.hash("secret"), READER)
BOB = User("bob", QUICK.hash("hidden"), EVERYTHING)


class Verifications:
    """Counts argon2 verifications, and holds them back while `gate` is closed."""

    def __init__(self) -> None:
        self.passwords: list[bytes] = []
        self.gate = threading.Event()
        self.gate.set()

    @property
    def count(self) -> int:
        return len(self.passwords)


@pytest.fixture
def verifications(monkeypatch: pytest.MonkeyPatch) -> Verifications:
    seen = Verifications()
    matches: Callable[[str, bytes], bool] = users_module._matches

    def counted(stored: str, password: bytes) -> bool:
        seen.passwords.append(password)
        seen.gate.wait()
        return matches(stored, password)

    monkeypatch.setattr(users_module, "_matches", counted)
    return seen


def run(users: Users, work: Callable[[], Coroutine[None, None, None]]) -> None:
    async def main() -> None:
        try:
            await work()
        finally:
            await users.close()

    asyncio.run(main())


@contextmanager
def released(verifications: Verifications) -> Iterator[None]:
    try:
        yield
    finally:
        verifications.gate.set()


def test_the_right_password_gives_the_rights_of_its_user() -> None:
    users = Users([ANN, BOB])

    async def work() -> None:
        assert await users.verify("ann", b"secret") == READER
        assert await users.verify("bob", b"hidden") == EVERYTHING
        assert await users.verify("ann", b"hidden") is None
        assert await users.verify("ann", b"") is None
        assert await users.verify("ann", None) is None
        assert await users.verify("eve", b"secret") is None
        assert await users.verify(None, b"secret") is None

    run(users, work)


def test_users_belong_to_groups() -> None:
    users = Users([User("ann", ANN.password, groups=("analysts", "night")), BOB])

    async def work() -> None:
        assert users.groups_of("ann") == ("analysts", "night")
        assert users.groups_of("bob") == users.groups_of("eve") == ()

    run(users, work)


def test_anonymous_clients_come_without_a_name() -> None:
    users = Users([ANN], anonymous=READER)

    async def work() -> None:
        assert await users.verify(None, None) == READER
        assert await users.verify("ann", b"wrong") is None
        assert await users.verify("somebody", None) is None

    run(users, work)


def test_where_there_are_no_users_everybody_is_anonymous() -> None:
    users = Users(anonymous=READER)

    async def work() -> None:
        assert await users.verify(None, None) == READER
        assert await users.verify("somebody", b"x") == READER

    run(users, work)


def test_a_name_that_nobody_verified_gives_no_rights() -> None:
    users = Users(anonymous=Rights(publish=("home/%u", "home/%c"), subscribe=("%u/#",)))

    async def work() -> None:
        assert await users.verify("ann", None) == Rights(publish=("home/%c",))

    run(users, work)


def test_an_unknown_user_costs_a_verification_like_a_wrong_password(
    verifications: Verifications,
) -> None:
    users = Users([ANN])
    unknown, known = (argon2.extract_parameters(u.password) for u in (users._nobody, ANN))
    assert unknown == known

    async def work() -> None:
        assert await users.verify("eve", b"x") is None
        assert verifications.count == 1
        assert await users.verify("eve", b"x") is None
        assert verifications.count == 2

    run(users, work)


def test_success_is_remembered_for_a_while_and_failure_never(verifications: Verifications) -> None:
    now = [0.0]
    users = Users([ANN], limits=VerificationLimits(remembered_s=10.0), clock=lambda: now[0])

    async def work() -> None:
        for _ in range(3):
            assert await users.verify("ann", b"secret") == READER
        assert verifications.count == 1
        for _ in range(2):
            assert await users.verify("ann", b"wrong") is None
        assert verifications.count == 3
        now[0] = 10.0
        assert await users.verify("ann", b"secret") == READER
        assert verifications.count == 4

    run(users, work)


def test_only_so_many_successes_are_remembered(verifications: Verifications) -> None:
    users = Users([ANN, BOB], limits=VerificationLimits(remembered=1))

    async def work() -> None:
        await users.verify("ann", b"secret")
        await users.verify("bob", b"hidden")
        await users.verify("bob", b"hidden")
        assert verifications.count == 2
        await users.verify("ann", b"secret")
        assert verifications.count == 3

    run(users, work)


def test_clients_that_come_together_are_verified_once(verifications: Verifications) -> None:
    users = Users([ANN])

    async def work() -> None:
        verifications.gate.clear()
        with released(verifications):
            together = [asyncio.ensure_future(users.verify("ann", b"secret")) for _ in range(100)]
            await asyncio.sleep(0)
            together[0].cancel()  # one of them goes away meanwhile
        results = await asyncio.gather(*together, return_exceptions=True)
        assert isinstance(results[0], asyncio.CancelledError)
        assert results[1:] == [READER] * 99
        assert verifications.count == 1

    run(users, work)


def test_only_so_many_wait(verifications: Verifications) -> None:
    users = Users([ANN], limits=VerificationLimits(threads=1, waiting=3))

    async def work() -> None:
        assert await users.verify("ann", b"secret") == READER
        verifications.gate.clear()
        with released(verifications):
            waiting = [
                asyncio.ensure_future(users.verify("ann", b"%d" % number)) for number in range(3)
            ]
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="3 passwords are waiting"):
                await users.verify("ann", b"one more")
            assert await users.verify("ann", b"secret") == READER  # known, so it need not wait
        assert await asyncio.gather(*waiting) == [None] * 3
        assert await users.verify("ann", b"one more") is None

    run(users, work)


def test_addresses_are_verified_in_turn(verifications: Verifications) -> None:
    """Whoever sends one password waits for one of each address, however many others send."""
    users = Users([ANN], limits=VerificationLimits(threads=1, waiting=30))

    async def work() -> None:
        verifications.gate.clear()
        with released(verifications):
            flood = [
                asyncio.ensure_future(users.verify("ann", b"%d" % number, "10.0.0.1"))
                for number in range(30)
            ]
            await asyncio.sleep(0)
            with pytest.raises(BusyError, match="30 passwords are waiting"):
                await users.verify("ann", b"one more", "10.0.0.1")
            own = asyncio.ensure_future(users.verify("ann", b"secret", "10.0.0.2"))
            await asyncio.sleep(0)
        assert await own == READER
        assert await asyncio.gather(*flood) == [None] * 30
        assert verifications.passwords.index(b"secret") == 2  # one ran, one was next

    run(users, work)


def test_a_full_queue_loses_the_newest_of_the_longest_share(verifications: Verifications) -> None:
    limits = VerificationLimits(threads=1, waiting=4, waiting_in_all=6)
    users = Users([ANN], limits=limits)

    async def work() -> None:
        verifications.gate.clear()
        with released(verifications):
            flood = [
                asyncio.ensure_future(users.verify("eve", b"%d" % number, f"10.0.0.{number // 4}"))
                for number in range(6)
            ]
            await asyncio.sleep(0)
            own = asyncio.ensure_future(users.verify("ann", b"secret", "10.0.0.9"))
            await asyncio.sleep(0)
            assert len(users._queue) == 6
        assert await own == READER
        results = await asyncio.gather(*flood, return_exceptions=True)
        assert [isinstance(each, BusyError) for each in results] == [False] * 3 + [True] + [
            False
        ] * 2
        assert len(users._queue) == 0
        assert not users._queue._held

    run(users, work)


def test_networks_of_ipv6_have_one_share(verifications: Verifications) -> None:
    users = Users([ANN], limits=VerificationLimits(threads=1, waiting=1))

    async def work() -> None:
        verifications.gate.clear()
        with released(verifications):
            first = asyncio.ensure_future(users.verify("ann", b"1", "2001:db8::1"))
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await users.verify("ann", b"2", "2001:db8::2")
        assert await first is None

    run(users, work)


def test_closing_gives_up_on_what_waits(verifications: Verifications) -> None:
    users = Users([ANN], limits=VerificationLimits(threads=1))

    async def main() -> None:
        verifications.gate.clear()
        with released(verifications):
            waiting = [asyncio.ensure_future(users.verify("ann", b"%d" % n)) for n in range(3)]
            await asyncio.sleep(0)
            await users.close()
            results = await asyncio.gather(*waiting, return_exceptions=True)
            assert all(isinstance(result, asyncio.CancelledError) for result in results)

    asyncio.run(main())


def test_hashes_are_salted_argon2() -> None:
    one, two = hash_password("día"), hash_password("día")
    assert one != two
    assert one.startswith("$argon2id$")
    assert problem_with_hash(one) is None
    assert users_module._matches(one, "día".encode())


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("secret", "expected an argon2 hash"),
        ("", "expected an argon2 hash"),
        ("$argon2id$", "expected an argon2 hash"),
        ("$argon2id$v=19$m=9999999,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g", "KiB of memory"),
    ],
)
def test_texts_that_are_no_hashes(text: str, problem: str) -> None:
    assert problem in (problem_with_hash(text) or "")


def test_a_user_may_be_held_to_certain_clients() -> None:
    password = hash_password("x")
    users = Users(
        [User("ann", password, clients=("patrol-*", "desk[1]")), User("bob", password)],
        anonymous=None,
    )
    assert users.may_connect_as("ann", "patrol-1")
    assert users.may_connect_as("ann", "desk[1]")
    assert not users.may_connect_as("ann", "desk1")
    assert not users.may_connect_as("ann", "uav-1")
    assert users.may_connect_as("bob", "uav-1")
