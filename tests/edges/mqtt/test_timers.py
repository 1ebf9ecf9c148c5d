"""The timers here are those of sessions: only compiled code can add a kind of its own."""

from __future__ import annotations

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from accord.core.node.limits import Limits
from accord.edges.mqtt.broker import Broker, SessionTimer
from accord.edges.mqtt.session import Session
from accord.edges.mqtt.timers import Timer

NEVER: Final = 10**9


def new_broker() -> Broker:
    return Broker(Limits(), now_ms=1, new_client_id=str)


class Alarm:
    """A session that is there until its timer fires."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.broker = broker
        self.session = Session(name, broker.hub)
        self.session.timer = SessionTimer(broker, self.session)
        self.reset()

    @property
    def timer(self) -> Timer:
        assert self.session.timer is not None
        return self.session.timer

    def reset(self) -> None:
        self.broker.sessions[self.session.name] = self.session
        self.session.ends_ms = 0

    def set(self, due_ms: int) -> None:
        self.session.ends_ms = due_ms
        self.broker.timers.set(self.timer, due_ms)

    def cancel(self) -> None:
        self.session.ends_ms = 0
        self.broker.timers.cancel(self.timer)

    def has_rung(self) -> bool:
        return self.session.name not in self.broker.sessions


def test_a_timer_fires_when_it_is_due_and_once() -> None:
    broker = new_broker()
    alarm = Alarm(broker, "a")
    alarm.set(100)
    assert broker.timers.next_deadline_ms() == 100
    broker.advance(now_ms=99)
    assert not alarm.has_rung()
    broker.advance(now_ms=100)
    assert alarm.has_rung()
    alarm.reset()
    broker.advance(now_ms=1_000)
    assert not alarm.has_rung()
    assert broker.timers.next_deadline_ms() is None


def test_the_last_time_it_was_set_to_counts() -> None:
    broker = new_broker()
    later, sooner = Alarm(broker, "later"), Alarm(broker, "sooner")
    later.set(100)
    later.set(200)
    sooner.set(200)
    sooner.set(100)
    broker.advance(now_ms=100)
    assert (later.has_rung(), sooner.has_rung()) == (False, True)
    broker.advance(now_ms=199)
    assert not later.has_rung()
    broker.advance(now_ms=200)
    assert later.has_rung()


def test_a_cancelled_timer_can_be_set_again() -> None:
    broker = new_broker()
    alarm = Alarm(broker, "a")
    alarm.set(100)
    alarm.cancel()
    alarm.cancel()
    broker.advance(now_ms=100)
    assert not alarm.has_rung()
    alarm.set(150)
    alarm.cancel()
    alarm.set(150)
    broker.advance(now_ms=150)
    assert alarm.has_rung()


def test_what_was_cancelled_does_not_pile_up() -> None:
    broker = new_broker()
    alarms = [Alarm(broker, str(number)) for number in range(10)]
    alarms[0].set(NEVER)
    for number in range(20_000):
        alarms[1 + number % 9].set(NEVER - number)
        alarms[1 + number % 9].cancel()
    assert len(broker.timers._heap) < 3_000
    broker.advance(now_ms=NEVER)
    assert [alarm.has_rung() for alarm in alarms] == [True] + [False] * 9


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
    broker = new_broker()
    alarms = [Alarm(broker, str(number)) for number in range(5)]
    due: dict[int, int] = {}
    now_ms = 1
    for verb, number, ms in steps:
        if verb == "set":
            alarms[number].set(now_ms + ms)
            due[number] = now_ms + ms
        elif verb == "cancel":
            alarms[number].cancel()
            due.pop(number, None)
        else:
            now_ms += ms
            broker.advance(now_ms=now_ms)
            rung = {number for number, alarm in enumerate(alarms) if alarm.has_rung()}
            assert rung == {number for number, due_ms in due.items() if due_ms <= now_ms}
            for each in rung:
                del due[each]
                alarms[each].reset()
        deadline_ms = broker.timers.next_deadline_ms()
        if due:
            assert deadline_ms is not None
            assert deadline_ms <= min(due.values()), "a driver that waits for it is not late"
