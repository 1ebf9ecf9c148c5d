from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from accord.core.scheduling.timers import Timer, Timers

NEVER: Final = 10**9


class Alarm(Timer):
    def __init__(self) -> None:
        super().__init__()
        self.rung: list[int] = []

    def fire(self, now: int) -> None:
        self.rung.append(now)


def test_a_timer_fires_when_it_is_due_and_once() -> None:
    timers, alarm = Timers(), Alarm()
    timers.set(alarm, 100)
    assert timers.next_due() == 100
    timers.advance(99)
    assert alarm.rung == []
    timers.advance(100)
    timers.advance(1_000)
    assert alarm.rung == [100]
    assert timers.next_due() is None


def test_the_last_time_it_was_set_to_counts() -> None:
    timers, later, sooner = Timers(), Alarm(), Alarm()
    timers.set(later, 100)
    timers.set(later, 200)
    timers.set(sooner, 200)
    timers.set(sooner, 100)
    for now in (100, 199, 200):
        timers.advance(now)
    assert (later.rung, sooner.rung) == ([200], [100])


def test_a_cancelled_timer_can_be_set_again() -> None:
    timers, alarm = Timers(), Alarm()
    timers.set(alarm, 100)
    timers.cancel(alarm)
    timers.cancel(alarm)
    timers.advance(100)
    assert alarm.rung == []
    timers.set(alarm, 150)
    timers.cancel(alarm)
    timers.set(alarm, 150)
    timers.advance(150)
    assert alarm.rung == [150]


def test_what_was_cancelled_does_not_pile_up() -> None:
    timers, alarms = Timers(), [Alarm() for _ in range(10)]
    timers.set(alarms[0], NEVER)
    for number in range(20_000):
        timers.set(alarms[1 + number % 9], NEVER - number)
        timers.cancel(alarms[1 + number % 9])
    assert len(timers._heap) < 3_000
    timers.advance(NEVER)
    assert [len(alarm.rung) for alarm in alarms] == [1] + [0] * 9


def test_so_many_fire_at_a_time_and_the_rest_stays_due() -> None:
    timers, alarms = Timers(), [Alarm() for _ in range(5)]
    for number, alarm in enumerate(alarms):
        timers.set(alarm, 10 + number)
    timers.advance(100, most=2)
    assert [alarm.rung for alarm in alarms] == [[100], [100], [], [], []]
    assert timers.next_due() == 12
    timers.advance(101, most=2)
    timers.advance(102, most=2)
    assert [alarm.rung for alarm in alarms] == [[100], [100], [101], [101], [102]]
    assert timers.next_due() is None


STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.integers(0, 4), st.integers(1, 30)),
        st.tuples(st.just("cancel"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 12)),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_fires_in_its_time(steps: list[tuple[str, int, int]]) -> None:
    timers, alarms = Timers(), [Alarm() for _ in range(5)]
    due: dict[int, int] = {}
    now = 1
    for verb, number, after in steps:
        if verb == "set":
            timers.set(alarms[number], now + after)
            due[number] = now + after
        elif verb == "cancel":
            timers.cancel(alarms[number])
            due.pop(number, None)
        else:
            now += after
            timers.advance(now)
            rung = {number for number, alarm in enumerate(alarms) if alarm.rung}
            assert rung == {number for number, due_at in due.items() if due_at <= now}
            for each in rung:
                del due[each]
                alarms[each].rung.clear()
        next_due = timers.next_due()
        if due:
            assert next_due is not None
            assert next_due <= min(due.values()), "a driver that waits for it is not late"
