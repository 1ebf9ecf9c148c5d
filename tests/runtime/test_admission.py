"""Admission at nodes in this process, over real sockets, with real clients."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import HOST

import accord
from accord.client.errors import AdvertisementError, RefusedError
from accord.client.session import Session
from accord.core.admission.demand import Basis
from accord.core.admission.options import AdmissionOptions, Guarantee, Mode
from accord.core.admission.resources import MEMORY, client, link
from accord.core.overlay.options import OverlayOptions
from accord.core.policy.policy_set import parse_policy_set
from accord.core.router.rights import EVERYTHING, Rights
from accord.runtime.addresses import SocketAddress
from accord.runtime.admission import AdmissionService, NodeAdmissionOptions
from accord.runtime.node import ListenerSettings, Node, Settings
from accord.runtime.overlay_service import NetOptions, OverlayService
from accord.runtime.users import Users

ANYWHERE = SocketAddress(HOST, 0)
ALONE = NetOptions()
# 10 events per second are 80 kbit/s.
ENFORCE = NodeAdmissionOptions(options=AdmissionOptions(mode=Mode.ENFORCE, event_bytes=1_000))
REPORT = NodeAdmissionOptions(options=AdmissionOptions(mode=Mode.REPORT, event_bytes=1_000))
ESTIMATE = NodeAdmissionOptions(
    options=AdmissionOptions(mode=Mode.ENFORCE, guarantee=Guarantee(basis=Basis.ESTIMATE))
)
LIMIT = 'client_bandwidth = "100 kbit/s"'


def node(
    admission: NodeAdmissionOptions = ENFORCE, *, name: str = "gate", data: Path | None = None,
    net: NetOptions = ALONE, users: Users | None = None,
) -> Node:  # fmt: skip
    settings = Settings(
        name=name,
        listeners=(ListenerSettings(ANYWHERE),),
        statistics_s=0,
        admission=admission,
        data=data,
        net=net,
    )
    return Node(settings, users or Users(anonymous=EVERYTHING))


def service(one: Node) -> AdmissionService:
    assert one.admission is not None
    return one.admission


def connect(one: Node, client_id: str = "", **options: Any) -> Any:
    return accord.connect(f"mqtt://{one.addresses[0]}", client_id=client_id, **options)


def has(one: Node, client_id: str, key: str) -> bool:
    """Whether something is promised to that subscription."""
    subscriptions = service(one).admission.subscriptions
    return subscriptions.get(client_id, key) is not None


async def limited(one: Node, book: str = LIMIT) -> None:
    assert one.policy_runtime is not None
    await one.policy_runtime.admin.replace(parse_policy_set(book))


async def until(is_so: Callable[[], object]) -> None:
    """The test's time-out is the limit."""
    while not is_so():
        await asyncio.sleep(0.01)


def at_a_node(
    scene: Callable[[Node, Session, Session], Awaitable[None]],
    admission: NodeAdmissionOptions = ENFORCE,
    book: str = LIMIT,
) -> None:
    """With a client that publishes and one that subscribes."""

    async def main() -> None:
        async with node(admission) as one:
            await limited(one, book)
            async with connect(one, "source") as source, connect(one, "reader") as reader:
                await scene(one, source, reader)

    asyncio.run(main())


def test_a_refusal_is_an_exception_with_the_facts() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a/#", rate_hz=20)
        with pytest.raises(accord.AdmissionRefusedError, match="160 kbit/s asked") as caught:
            async with reader.subscribe("a/+"):
                pass
        refused = caught.value
        assert (refused.node, refused.resource, refused.of) == (
            "gate",
            "bandwidth",
            "client reader",
        )
        assert (refused.asked, refused.free) == (160_000, 100_000)
        async with reader.subscribe("a/+", where="level > 3 and level < 3") as events:
            assert events.admitted == 1

    at_a_node(scene)


def test_only_what_intersects_counts() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", where="level > 5", rate_hz=10, name="high")
        await source.advertise("a", where="level < 5", rate_hz=10, name="low")
        with pytest.raises(accord.AdmissionRefusedError):
            async with reader.subscribe("a"):
                pass
        async with reader.subscribe("a", where="level > 7"):
            promised = service(one).admission.reservations.state()[client("reader")]
            assert promised.reserved == 80_000

    at_a_node(scene)


def test_what_was_given_back_can_be_promised_again() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        advertised = await source.advertise("a", rate_hz=10)
        await source.advertise("b", rate_hz=10)
        async with reader.subscribe("a"):
            with pytest.raises(accord.AdmissionRefusedError):
                async with reader.subscribe("b"):
                    pass
        async with reader.subscribe("b"):
            pass
        await advertised.withdraw()
        async with reader.subscribe("a"), reader.subscribe("b"):
            pass
        await until(lambda: not has(one, "reader", "b"))
        assert not has(one, "reader", "a")
        assert client("reader") not in service(one).admission.reservations.state()

    at_a_node(scene)


def test_a_client_that_fails_gives_all_back() -> None:
    async def main() -> None:
        async with node() as one:
            admission = service(one).admission
            async with connect(one, "source") as source:
                await source.advertise("a", rate_hz=10)
                lost = connect(one, "lost", session_expiry_s=0)
                async with lost as session, session.subscribe("a"):
                    assert has(one, "lost", "a")
                await until(lambda: not has(one, "lost", "a"))
                assert admission.poset.advertisements == 1
            await until(lambda: not admission.poset.advertisements)
            admission.check_invariants()

    asyncio.run(main())


def test_groups_are_promised_once() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=10)
        books = service(one).admission.reservations
        async with reader.subscribe("$share/team/a"):
            promised = books.state()[MEMORY].reserved
            async with source.subscribe("$share/team/a"):
                assert books.state()[MEMORY].reserved == promised
            await until(lambda: one.broker.router.size == 2)  # and that for answers
            assert books.state()[MEMORY].reserved == promised
        await until(lambda: books.state()[MEMORY].reserved < promised)

    at_a_node(scene)


def test_channels_of_the_system_need_nothing() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        async with reader.subscribe("$SYS/#"), reader.subscribe("$accord/advice"):
            assert not len(service(one).admission.subscriptions)

    at_a_node(scene)


def test_who_only_reports_takes_what_it_would_refuse() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        advertised = await source.advertise("a", rate_hz=20)
        assert advertised.mode == "report"
        async with reader.subscribe("a") as events:
            for number in range(60):
                await source.publish("a", b"%d" % number)
            got = [(await anext(events)).payload for _ in range(60)]
            assert got[-1] == b"59"
        (lately,) = service(one).status().lately
        assert (lately.client, lately.filter, lately.is_binding) == ("reader", "a", False)

    at_a_node(scene, REPORT)


def test_a_publisher_is_held_to_what_it_advertised() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        async with reader.subscribe("a") as events, source.subscribe("$accord/advice") as advice:
            await source.publish("a", b"free")
            await source.advertise("a", rate_hz=0.001, where="level > 3")
            await source.publish("a", b"1", level=4)
            await source.publish("a", b"2", level=4)
            with pytest.raises(RefusedError, match="beyond advertised rate"):
                await source.publish("a", b"3", level=4)
            await source.publish("a", b"other", level=1)  # not advertised, and so not limited
            got = [(await anext(events)).payload for _ in range(4)]
            assert got == [b"free", b"1", b"2", b"other"]
            told = json.loads((await anext(advice)).payload)
            assert (told["standing"], told["events"]) == ("over", 1)
            told = json.loads((await anext(advice)).payload)
            assert told["standing"] == "unadvertised"
        assert one.broker.context.counters.shed_causes.counts["beyond advertised rate"] == 1
        (line,) = service(one).status().publishers
        assert (line.passed, line.limited) == (2, 1)

    at_a_node(scene, book="")


def test_unacknowledged_events_beyond_the_rate_are_dropped() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        async with reader.subscribe("a", qos=0) as events:
            await source.publish("a", b"free", qos=0)  # so that its way is known
            advertised = await source.advertise("a", rate_hz=0.001)
            for number in range(10):
                await source.publish("a", b"%d" % number, qos=0)
            await source.publish("b")
            await advertised.withdraw()
            await source.publish("a", b"last", qos=0)
            got = [(await anext(events)).payload for _ in range(4)]
            assert got == [b"free", b"0", b"1", b"last"]

    at_a_node(scene, book="")


def test_bad_advertisements_are_explained() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        for bad, place in (
            ({"channel": "a/#/b"}, "channel"),
            ({"channel": "$SYS/x"}, "channel"),
            ({"where": "level >"}, "where"),
            ({"rate_hz": -1.0}, "rate_hz"),
            ({"where": "a = 1 and a = 2"}, "predicate"),
        ):
            asked: dict[str, Any] = {"channel": "a", "rate_hz": 1.0, **bad}
            with pytest.raises(AdvertisementError) as caught:
                await source.advertise(**asked)
            assert caught.value.place == place, caught.value
        for body in (b"{}", b"[", b'{"do":"dance"}', b'{"do":"advertise","channel":7}'):
            answer = await source.request("$accord/advertisements", body)
            assert json.loads(answer.payload)["ok"] is False

    at_a_node(scene)


def test_a_long_predicate_gets_a_short_name() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        for where in (f"level = '{'x' * 300}'", "level > 3\n AND level < 5"):
            one_, other = [await source.advertise("a", where=where, rate_hz=1) for _ in range(2)]
            assert one_.name == other.name
            assert one_.name.startswith("a WHERE level")
            assert len(one_.name) <= 256
        assert len((await source.advertise("a", where="level > 3", rate_hz=1)).name) == 17

    at_a_node(scene)


def test_nobody_advertises_what_it_may_not_publish() -> None:
    async def main() -> None:
        users = Users(anonymous=Rights(publish=("a/#",), subscribe=("#",)))
        async with node(users=users) as one, connect(one) as source:
            await source.advertise("a/b/#", rate_hz=1)
            with pytest.raises(AdvertisementError, match="may not publish"):
                await source.advertise("#", rate_hz=1)

    asyncio.run(main())


def test_where_it_is_off_all_is_as_before() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        advertised = await source.advertise("a", rate_hz=1)
        assert advertised.mode == "off"
        assert one.broker.admission is None
        async with reader.subscribe("a"):
            for _ in range(5):
                await source.publish("a")

    off = AdmissionOptions(mode=Mode.OFF, event_bytes=1_000)
    at_a_node(scene, NodeAdmissionOptions(options=off))


def test_advertisements_are_made_again_after_a_break() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=1)
        admission = service(one).admission
        for protocol in list(one.server.connections.values()):
            protocol.abort()
        one.broker.end_session(one.broker.sessions["source"])
        assert not admission.poset.advertisements
        await until(lambda: admission.poset.advertisements)

    at_a_node(scene)


def test_sessions_from_before_are_booked_without_asking(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            node(data=tmp_path) as one,
            connect(one, "reader") as reader,
            reader.subscribe("a", keep=True),
            reader.subscribe("b", keep=True),
        ):
            pass
        async with node(data=tmp_path) as one:
            admission = service(one).admission
            assert len(admission.subscriptions) == 2
            async with connect(one, "source") as source:
                await source.advertise("a", rate_hz=10)
                await until(
                    lambda: admission.reservations.state()[client("reader")].reserved == 80_000
                )

    asyncio.run(main())


def test_it_can_be_asked_without_subscribing() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=10)
        await source.advertise("b", rate_hz=10)
        async with reader.subscribe("a"):
            books = service(one).admission.reservations
            before = books.state()[MEMORY].reservations
            need = await service(one).check("b", "", "reader")
            assert (need.state, need.asked_hz) == ("refused", 10)
            assert need.problems[0].endswith("80 kbit/s asked, 20 kbit/s free")
            need = await service(one).check("b", "level > 3")
            assert (need.state, need.rate_hz.low, need.rate_hz.high) == ("admitted", 0, 10)
            assert books.state()[MEMORY].reservations == before

    at_a_node(scene)


def test_a_subscription_that_a_client_has_does_not_count_against_it() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=10)
        async with reader.subscribe("a"):
            need = await service(one).check("a", "", "reader")
            assert (need.state, need.promised_hz, need.share) == ("admitted", 10, 1)
            assert need.answer == "Yes: 10 events/s of it are promised to reader already."
            narrow = await service(one).check("a", "level > 3", "reader")
            assert narrow.state == "refused", "as it would be if it subscribed to that, too"
            other = await service(one).check("a", "", "source")
            assert (other.state, other.promised_hz) == ("admitted", None)

    at_a_node(scene)


def test_whether_a_client_can_get_a_rate() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=50)
        books = service(one).admission.reservations
        before = len(books)
        need = await service(one).check("a", "", "reader", 10)
        assert (need.state, need.asked_hz, need.most_hz) == ("admitted", 10, None)
        assert need.answer == (
            "Yes at 10 events/s: it takes 80 kbit/s of the 100 kbit/s of bandwidth of client "
            "reader that are free."
        )
        need = await service(one).check("a", "", "reader", 25)
        assert (need.state, need.most_hz) == ("refused", 12.5)
        assert need.answer == (
            "No at 25 events/s: node gate lacks bandwidth of client reader: 200 kbit/s asked, "
            "100 kbit/s free; at most 12.5 events/s fit."
        )
        need = await service(one).check("a", "", "reader", 60)
        assert need.answer == "No at 60 events/s: publishers advertise at most 50 events/s of it."
        need = await service(one).check("b", "", "reader", 10)
        assert need.answer.endswith("nobody advertises it, so no publisher promises that rate.")
        assert len(books) == before

    at_a_node(scene)


def test_a_rate_counts_only_what_exceeds_the_promise() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=10)
        async with reader.subscribe("#"):
            await source.advertise("a/b", rate_hz=2)
            need = await service(one).check("a", "", "reader", 10)
            assert need.answer.startswith("Yes at 10 events/s: 10 events/s of it are promised")

    at_a_node(scene)


def test_a_rate_where_admission_is_off() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        yes = await service(one).check("a", "", "reader", 10)
        assert yes.answer.startswith("Yes at 10 events/s: it takes 80 kbit/s of the 100 kbit/s")
        assert "admission is off" in yes.answer
        no = await service(one).check("a", "", "reader", 20)
        assert (no.state, no.most_hz) == ("refused", 12.5)

    off = AdmissionOptions(mode=Mode.OFF, event_bytes=1_000)
    at_a_node(scene, NodeAdmissionOptions(options=off))


def test_books_follow_what_is_measured() -> None:
    async def scene(one: Node, source: Session, reader: Session) -> None:
        await source.advertise("a", rate_hz=100_000)
        admission = service(one).admission
        one.registry.put("channel", "a", "rate_hz", 1.0, at_ms=one.broker.context.now_ms)
        async with reader.subscribe("a") as events:
            known = admission.subscriptions.get("reader", "a")
            assert known is not None
            booked = admission.subscriptions.id_of(known)
            promised = admission.reservations.amounts(booked)[client("reader")]
            assert promised == 10_240  # a kilobyte per second and a quarter more
            while admission.reservations.amounts(booked)[client("reader")] <= promised:
                for _ in range(50):
                    await source.publish("a", b"x" * 1_000)
                    await anext(events)

    at_a_node(scene, ESTIMATE, book="")


# Several nodes.


def linked(*neighbours: SocketAddress) -> NetOptions:
    return NetOptions(
        listen=(ANYWHERE,),
        neighbours=neighbours,
        key=b"a secret of all nodes",
        overlay=OverlayOptions(ping_us=50_000),
    )


def net_of(one: Node) -> OverlayService:
    assert isinstance(one.net, OverlayService)
    return one.net


def link_of(one: Node) -> SocketAddress:
    return net_of(one).addresses[0]


async def at_two_nodes(
    scene: Callable[[Node, Node], Awaitable[None]],
    thin: NodeAdmissionOptions,
    other: NodeAdmissionOptions,
) -> None:
    """Events come from `a`, whose link is thin."""
    async with (
        node(thin, name="a", net=linked()) as a,
        node(other, name="b", net=linked(link_of(a))) as b,
    ):
        await until(net_of(a).overlay.used_neighbours)
        await until(net_of(b).overlay.used_neighbours)
        await scene(a, b)


THIN = NodeAdmissionOptions(options=ENFORCE.options, links={"b": 100_000})


def test_a_node_on_the_way_refuses() -> None:
    async def scene(a: Node, b: Node) -> None:
        async with connect(a, "source") as source, connect(b, "reader") as reader:
            await source.advertise("x", rate_hz=10)
            await source.advertise("y", rate_hz=10)
            await until(lambda: service(b).admission.poset.advertisements == 2)
            async with reader.subscribe("x"):
                with pytest.raises(accord.AdmissionRefusedError) as caught:
                    async with reader.subscribe("y"):
                        pass
                refused = caught.value
                assert (refused.node, refused.of) == ("a", "link b")
                assert (refused.asked, refused.free) == (80_000, 20_000)
                need = await service(b).check("y", "")
                assert (need.state, need.share) == ("refused", 0.5)
                assert (await service(b).check("y", "", wanted_hz=2)).state == "admitted"
                need = await service(b).check("y", "", wanted_hz=5)
                assert (need.state, need.most_hz) == ("refused", 2.5)
                need = await service(b).check("x", "", "reader", 10)
                assert (need.state, need.promised_hz) == ("admitted", 10)
            books = service(a).admission.reservations
            await until(lambda: books.state()[link("b")].reserved == 0)
            async with reader.subscribe("y") as events:
                await until(lambda: net_of(a).bridge.remote_interests.nodes)
                await source.publish("y", b"it comes")
                assert (await anext(events)).payload == b"it comes"

    asyncio.run(at_two_nodes(scene, THIN, ENFORCE))


def test_half_of_the_nodes_are_enough_where_that_is_asked_for() -> None:
    half = 'client_bandwidth = "1 Mbit/s"\n[[policies]]\nname = "x"\nguarantee = 0.5\n'

    async def scene(a: Node, b: Node) -> None:
        await limited(b, half)
        async with connect(a, "source") as source, connect(b, "reader") as reader:
            await source.advertise("x", rate_hz=20)
            await until(lambda: service(b).admission.poset.advertisements)
            async with reader.subscribe("x") as events:
                assert events.admitted == 0.5

    asyncio.run(at_two_nodes(scene, THIN, ENFORCE))


def test_what_a_client_gives_up_before_it_is_decided_is_released() -> None:
    async def scene(a: Node, b: Node) -> None:
        async with connect(a, "source") as source, connect(b, "reader") as reader:
            await source.advertise("x", rate_hz=10)
            await until(lambda: service(b).admission.poset.advertisements)
            asked = asyncio.ensure_future(reader.subscribe("x").__aenter__())
            await asyncio.sleep(0)
            asked.cancel()
            async with reader.subscribe("z"):
                pass
            await until(lambda: not has(b, "reader", "x"))
            books = service(a).admission.reservations
            await until(lambda: not books.state()[link("b")].reserved)

    asyncio.run(at_two_nodes(scene, THIN, ENFORCE))


def test_nodes_know_what_others_have_left() -> None:
    async def scene(a: Node, b: Node) -> None:
        await until(lambda: {each.node for each in service(b).status().pools} == {"a", "b"})
        found = {(each.node, each.of): each.capacity for each in service(b).status().pools}
        assert found["a", "link b"] == 100_000

    asyncio.run(at_two_nodes(scene, THIN, ENFORCE))


def test_a_promise_that_does_not_hold_is_taken_back_and_told() -> None:
    async def scene(a: Node, b: Node) -> None:
        async with (
            connect(a, "source") as source,
            connect(b, "reader") as reader,
            reader.subscribe("$accord/advice") as advice,
        ):
            await source.advertise("x", rate_hz=10)
            await until(lambda: service(b).admission.poset.advertisements)
            async with reader.subscribe("x") as events:
                await source.advertise("x", rate_hz=20)  # more than the link can carry
                told = json.loads((await anext(advice)).payload)
                assert (told["filter"], told["state"]) == ("x", "withdrawn")
                assert told["node"] == "a"
                await source.publish("x", b"as well as can be")
                assert (await anext(events)).payload == b"as well as can be"

    asyncio.run(at_two_nodes(scene, THIN, ENFORCE))
