"""Sessions over streams in memory, with a server that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import pytest

import accord
from accord.client.address import Address
from accord.client.errors import (
    AlreadySubscribedError,
    ConnectionFailedError,
    ExpiredError,
    RefusedError,
    SessionClosedError,
)
from accord.client.transport import Stream
from accord.core.model.errors import EventError
from accord.core.mqtt.codec import decode, encode
from accord.core.mqtt.codes import V5, PacketType, Reason
from accord.core.mqtt.packets import (
    Connack,
    Connect,
    Disconnect,
    Packet,
    Puback,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from accord.core.mqtt.properties import Properties
from accord.core.mqtt.wire import Framer

T = TypeVar("T")
P = TypeVar("P", bound=Packet)


class Line:
    """The server's end of one connection."""

    def __init__(self) -> None:
        self._to_client: asyncio.Queue[bytes] = asyncio.Queue()
        self._packets: asyncio.Queue[Packet] = asyncio.Queue()
        self._framer = Framer(1_000_000)
        self.reads = 0
        self._is_cut = False
        self.is_closed = asyncio.Event()

    # the client's end

    async def read(self) -> bytes:
        self.reads += 1
        if not self._is_cut:
            data = await self._to_client.get()
            self._is_cut = not data
        return b"" if self._is_cut else data

    async def write(self, data: bytes) -> None:
        for first, body in self._framer.feed(data):
            self._packets.put_nowait(decode(first, body, V5))
            if first >> 4 == PacketType.DISCONNECT:
                self.cut()

    async def close(self) -> None:
        self.is_closed.set()

    # the server's end

    def say(self, *packets: Packet) -> None:
        self._to_client.put_nowait(b"".join(encode(packet, V5) for packet in packets))

    def cut(self) -> None:
        self._to_client.put_nowait(b"")

    async def hear(self, kind: type[P]) -> P:
        packet = await self._packets.get()
        assert isinstance(packet, kind), packet
        return packet

    async def grant(self) -> None:
        """A subscription that is asked for."""
        self.say(Suback((await self.hear(Subscribe)).packet_id, (1,)))


class Server:
    """Accepts connections as the test tells it."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[Line] = asyncio.Queue()
        self.attempts = 0
        self.is_down = False

    async def open(self, address: Address) -> Stream:
        self.attempts += 1
        if self.is_down:
            raise ConnectionFailedError(f"can't connect to {address.url}: down")
        line = Line()
        self._lines.put_nowait(line)
        return line

    async def line(self) -> Line:
        return await self._lines.get()

    async def accept(
        self, *, is_resumed: bool = False, properties: Properties | None = None
    ) -> Line:
        line = await self.line()
        await line.hear(Connect)
        line.say(Connack(is_resumed, 0, properties or Properties(assigned_client_id="auto")))
        return line


def play(test: Callable[[Server], Coroutine[None, None, None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await test(Server())

    asyncio.run(limited())


async def both(one: Awaitable[T], other: Awaitable[object]) -> T:
    result, _ = await asyncio.gather(one, other)
    return result


def in_turn(server: Server) -> asyncio.Task[Line]:
    return asyncio.create_task(server.accept())


def test_a_publication_waits_for_its_answer() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            assert session.client_id == "auto"

            async def answer() -> None:
                packet = await line.hear(Publish)
                assert packet.properties.user == (("platform", "UAV"), ("channel", "c"))
                why = Properties(reason_string="nobody", user=(("node", "denver"),))
                line.say(Puback(packet.packet_id, Reason.NO_MATCHING_SUBSCRIBERS, why))

            outcome = await both(
                session.publish("uav/imagery", b"jpeg", platform="UAV", channel="c"), answer()
            )
            assert outcome.reason == Reason.NO_MATCHING_SUBSCRIBERS
            assert (outcome.explanation, outcome.facts) == ("nobody", (("node", "denver"),))
        assert await line.hear(Disconnect) == Disconnect(0, Properties(session_expiry_s=0))
        assert line.is_closed.is_set()

    play(test)


def test_a_refused_publication_raises_with_the_servers_words() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted

            async def answer() -> None:
                packet = await line.hear(Publish)
                why = Properties(reason_string="not yours")
                line.say(Puback(packet.packet_id, Reason.NOT_AUTHORIZED, why))

            with pytest.raises(RefusedError, match="'a': not authorized: not yours") as caught:
                await both(session.publish("a"), answer())
            assert caught.value.reason == Reason.NOT_AUTHORIZED

    play(test)


def test_an_attribute_given_twice_is_a_mistake() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            await accepted
            with pytest.raises(EventError, match="given twice"):
                await session.publish("a", attributes={"n": 1}, n=2)
            with pytest.raises(EventError, match="message"):
                await session.publish("a", content_type="x" * 70_000)

    play(test)


def test_a_session_comes_back_and_sends_again_what_was_not_answered() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 0.0) as session:
            line = await accepted
            publishing = asyncio.create_task(session.publish("a", b"x"))
            first = await line.hear(Publish)
            line.cut()
            line = await server.accept(is_resumed=True)
            again = await line.hear(Publish)
            assert (again.packet_id, again.dup) == (first.packet_id, True)
            line.say(Puback(again.packet_id))
            await publishing

    play(test)


def test_attempts_continue_until_the_server_is_back() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 0.0) as session:
            line = await accepted
            server.is_down = True
            line.cut()
            while server.attempts < 3:
                await asyncio.sleep(0.01)
            server.is_down = False
            publishing = asyncio.create_task(session.publish("a", qos=0))
            line = await server.accept()
            await line.hear(Publish)
            await publishing

    play(test)


def test_a_server_that_is_not_there_is_an_error_at_once() -> None:
    async def test(server: Server) -> None:
        server.is_down = True
        with pytest.raises(ConnectionFailedError, match="mqtt://somewhere:1883: down"):
            async with accord.connect("mqtt://somewhere", transport=server.open):
                pass
        assert server.attempts == 1

    play(test)


def test_unless_one_is_ready_to_wait() -> None:
    async def test(server: Server) -> None:
        server.is_down = True

        async def come_up() -> None:
            while server.attempts < 2:
                await asyncio.sleep(0.01)
            server.is_down = False
            await server.accept()

        coming = asyncio.create_task(come_up())
        async with accord.connect(transport=server.open, wait_s=50, random=lambda: 0.0):
            await coming

    play(test)


def test_a_refused_connection_raises_with_the_servers_words() -> None:
    async def test(server: Server) -> None:
        async def refuse() -> None:
            line = await server.line()
            connect = await line.hear(Connect)
            assert (connect.username, connect.password) == ("me", b"p w")
            why = Properties(reason_string="who are you?")
            line.say(Connack(False, Reason.BAD_USER_NAME_OR_PASSWORD, why))
            await line.is_closed.wait()

        refusing = asyncio.create_task(refuse())
        with pytest.raises(RefusedError, match="who are you"):
            async with accord.connect("mqtt://me:p%20w@host", transport=server.open):
                pass
        await refusing

    play(test)


def test_a_final_goodbye_of_the_server_ends_everything() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            publishing = asyncio.create_task(session.publish("a"))
            await line.hear(Publish)
            subscription = session.subscribe("b")
            entering = asyncio.create_task(subscription.__aenter__())
            asked = await line.hear(Subscribe)
            line.say(Suback(asked.packet_id, (1,)))
            await entering
            line.say(Disconnect(Reason.SESSION_TAKEN_OVER))
            for waiting in (publishing, anext(subscription), session.publish("a")):
                with pytest.raises(RefusedError, match="session taken over"):
                    await waiting
            assert server.attempts == 1

    play(test)


def test_a_subscription_gives_events_and_acknowledges_what_was_worked_on() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        clock = 1_000_000
        async with accord.connect(transport=server.open, clock=lambda: clock) as session:
            line = await accepted

            async def grant() -> None:
                asked = await line.hear(Subscribe)
                assert asked.properties.user == (("where", "n > 1"), ("since", "-24h"))
                line.say(Suback(asked.packet_id, (1,)))

            subscription = session.subscribe("a/+", where="n > 1", user={"since": "-24h"})
            await both(subscription.__aenter__(), grant())
            for number in (1, 2):
                properties = Properties(subscription_identifiers=(1,), user=(("n", str(number)),))
                line.say(Publish("a/b", b"x", 1, packet_id=number, properties=properties))
            event = await anext(subscription)
            assert event.attributes == {"n": 1}
            assert abs(event.received_ms - clock) < 60_000
            event = await anext(subscription)
            assert (await line.hear(Puback)).packet_id == 1
            await subscription.__aexit__(None, None, None)
            assert (await line.hear(Puback)).packet_id == 2
            assert (await line.hear(Unsubscribe)).patterns == ("a/+",)
            with pytest.raises(StopAsyncIteration):
                await anext(subscription)

    play(test)


def test_two_subscriptions_with_one_filter_are_refused_here() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            await both(session.subscribe("a", where="x > 1").__aenter__(), line.grant())
            with pytest.raises(AlreadySubscribedError, match="open another session"):
                async with session.subscribe("a", where="x > 2"):
                    pass

    play(test)


def test_a_subscription_that_is_not_granted_later_raises_in_its_loop() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 0.0) as session:
            line = await accepted
            subscription = session.subscribe("a")
            await both(subscription.__aenter__(), line.grant())
            line.cut()
            line = await server.accept(is_resumed=False)
            asked = await line.hear(Subscribe)
            line.say(Suback(asked.packet_id, (Reason.QUOTA_EXCEEDED,)))
            with pytest.raises(RefusedError, match="quota exceeded"):
                await anext(subscription)
            await subscription.__aexit__(None, None, None)

    play(test)


def test_a_slow_consumer_stops_the_reading() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            subscription = session.subscribe("a", queue=5)
            await both(subscription.__aenter__(), line.grant())
            properties = Properties(subscription_identifiers=(1,))
            reads = line.reads
            for number in range(100):
                line.say(Publish("a", b"%d" % number, properties=properties))
            for _ in range(1_000):  # all that the loop could do meanwhile
                await asyncio.sleep(0)
            assert line.reads - reads <= 7
            for number in range(100):
                assert (await anext(subscription)).payload == b"%d" % number
            assert subscription.shed == 0

    play(test)


def test_a_consumer_that_publishes_in_its_loop_is_not_stuck() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            subscription = session.subscribe("a", queue=2)
            await both(subscription.__aenter__(), line.grant())
            properties = Properties(subscription_identifiers=(1,))
            line.say(*(Publish("a", properties=properties) for _ in range(20)))

            async def echo() -> None:
                for _ in range(3):
                    packet = await line.hear(Publish)
                    line.say(Publish("a", properties=properties), Puback(packet.packet_id))

            answering = asyncio.create_task(echo())
            for _ in range(3):
                await anext(subscription)
                await session.publish("b")
            await answering
            assert subscription.shed > 0

    play(test)


def test_publishing_waits_when_the_server_takes_no_more() -> None:
    async def test(server: Server) -> None:
        accepted = asyncio.create_task(server.accept(properties=Properties(receive_maximum=1)))
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            tasks = [asyncio.create_task(session.publish("a", b"%d" % n)) for n in range(3)]
            for number in range(3):
                packet = await line.hear(Publish)
                assert packet.payload == b"%d" % number
                assert not tasks[number].done()
                line.say(Puback(packet.packet_id))
                await tasks[number]

    play(test)


def test_what_is_not_sent_in_time_expires() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 0.0) as session:
            line = await accepted
            server.is_down = True
            line.cut()
            await line.is_closed.wait()
            with pytest.raises(ExpiredError, match="not sent within 20 ms"):
                await session.publish("a", deadline_ms=20)

    play(test)


def test_a_cancelled_publication_is_not_sent_later() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 0.0) as session:
            line = await accepted
            server.is_down = True
            line.cut()
            await line.is_closed.wait()
            task = asyncio.create_task(session.publish("a", b"cancelled"))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            server.is_down = False
            publishing = asyncio.create_task(session.publish("a", b"sent", qos=0))
            line = await server.accept()
            assert (await line.hear(Publish)).payload == b"sent"
            await publishing

    play(test)


def test_closing_ends_what_still_waits() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            subscription = session.subscribe("a")
            await both(subscription.__aenter__(), line.grant())
            publishing = asyncio.create_task(session.publish("a"))
            consuming = asyncio.create_task(subscription.__anext__())
            await line.hear(Publish)
        with pytest.raises(SessionClosedError):
            await publishing
        with pytest.raises(StopAsyncIteration):
            await consuming
        with pytest.raises(SessionClosedError):
            await session.publish("a")

    play(test)


def test_closing_does_not_wait_for_a_server_that_is_away() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open, random=lambda: 1.0):
            line = await accepted
            server.is_down = True
            line.cut()
            await line.is_closed.wait()

    play(test)


@pytest.mark.parametrize("has_goodbye", [False, True])
def test_closing_at_the_moment_of_a_break_leaves_nothing_open(has_goodbye: bool) -> None:
    for pause in range(12):  # at each step of the way back

        async def test(server: Server, pause: int = pause) -> None:
            accepted = in_turn(server)
            async with accord.connect(transport=server.open, random=lambda: 0.0):
                line = await accepted
                if has_goodbye:
                    line.say(Disconnect(Reason.ADMINISTRATIVE_ACTION))
                else:
                    line.cut()
                for _ in range(pause):
                    await asyncio.sleep(0)
            assert line.is_closed.is_set()
            assert server.attempts == 1

        play(test)


def test_a_broken_transport_ends_the_session() -> None:
    async def broken(address: Address) -> Stream:
        raise OSError("no network")

    async def mad(address: Address) -> Stream:
        raise KeyError("transport")

    async def test(_: Server) -> None:
        with pytest.raises(ConnectionFailedError, match="no network"):
            async with accord.connect(transport=broken):
                pass
        with pytest.raises(SessionClosedError):
            async with accord.connect(transport=mad):
                pass

    play(test)


def test_requests_are_told_apart() -> None:
    async def test(server: Server) -> None:
        accepted = asyncio.create_task(
            server.accept(properties=Properties(response_information="answers/me/"))
        )
        async with accord.connect(transport=server.open) as session:
            line = await accepted

            async def answer() -> None:
                asked = await line.hear(Subscribe)
                line.say(Suback(asked.packet_id, (1,)))
                requests = [await line.hear(Publish), await line.hear(Publish)]
                line.say(*(Puback(each.packet_id) for each in requests))
                for each in reversed(requests):
                    topic = each.properties.response_topic
                    assert topic is not None
                    assert topic.startswith("answers/me/")
                    properties = Properties(
                        correlation_data=each.properties.correlation_data,
                        subscription_identifiers=asked.properties.subscription_identifiers,
                    )
                    line.say(Publish(topic, each.payload * 2, properties=properties))

            answering = asyncio.create_task(answer())
            one, other = await asyncio.gather(
                session.request("svc", b"1", n=1), session.request("svc", b"2")
            )
            await answering
            assert (one.payload, other.payload) == (b"11", b"22")

    play(test)


def test_a_request_without_answer_ends_in_time() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            line = await accepted
            granting = asyncio.create_task(line.grant())
            with pytest.raises(TimeoutError):
                await session.request("svc", timeout_s=0.05)
            await granting

    play(test)


def test_arguments_are_checked_before_anything_is_sent() -> None:
    async def test(server: Server) -> None:
        accepted = in_turn(server)
        async with accord.connect(transport=server.open) as session:
            await accepted
            with pytest.raises(ValueError, match="pattern: expected '#' as the last level"):
                session.subscribe("a/#/b")
            with pytest.raises(ValueError, match="qos: expected 0 to 2, got 3"):
                session.subscribe("a", qos=3)
            with pytest.raises(ValueError, match="queue: expected at least 1"):
                session.subscribe("a", queue=0)

    play(test)
