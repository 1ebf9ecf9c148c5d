from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from accord.core.model.errors import PolicyError
from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.policies import Entity, Policies
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import PolicySet, parse_policy_set
from accord.journal.faults import FaultDisk
from accord.operations.policies import (
    ConflictError,
    Explain,
    TooManyChangesError,
    UnknownPolicyError,
    Version,
)
from accord.runtime import policy_admin as administration_module
from accord.runtime.initial_policies import load_initial_policies
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore, PolicyStoreError, UnknownVersionError

REPORT = Policy(name="Report", channel=("patrol/#",), importance=6)
IMAGES = Policy(name="Images", channel=("uav/#",), client=("raven-*",), importance=1)


class Node:
    """What an administration works on, and what it did there."""

    def __init__(self, book: PolicySet | None = None, *, disk: FaultDisk | None = None) -> None:
        self.applied: list[tuple[int, Policies]] = []
        self.open: list[OpenOperation] = []
        self.entities: dict[str, Entity] = {}
        self.store = PolicyStore(disk)
        around = PolicyHost(
            apply=lambda book, policies: self.applied.append((book.version, policies)),
            open_=lambda: self.open,
            find_entity=self.entities.get,
            resources=lambda _: {"link_kbps": 300},
            node="alpha",
        )
        now = iter(range(1_000, 1_000_000, 1_000))
        book = load_initial_policies(self.store) if book is None else book
        self.administration = PolicyAdmin(book, self.store, around, now_ms=lambda: next(now))


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


def test_every_change_is_a_version_that_counts_at_once() -> None:
    node = Node()
    admin = node.administration

    async def work() -> None:
        await admin.put_policy(REPORT, who="ann")
        await admin.put_policy(IMAGES, who="ann")
        await admin.patch({"strategy": "strict", "bandwidth": "800 kbit/s"}, who="bob")
        await admin.remove_policy("Report")
        assert (admin.policy_set.version, admin.policy_set.policies) == (4, (IMAGES,))
        assert (admin.policy_set.strategy, admin.policy_set.bandwidth_bps) == ("strict", 800_000)
        assert [version for version, _ in node.applied] == [1, 2, 3, 4]
        assert node.applied[-1][1] is admin.policies
        assert [(each.version, each.who, each.what) for each in admin.history()] == [
            (4, "", "removed policy Report"),
            (3, "bob", "strategy = strict, bandwidth = 800 kbit/s"),
            (2, "ann", "put policy Images"),
            (1, "ann", "put policy Report"),
        ]

    run(work)


def test_a_policy_is_replaced_in_its_place() -> None:
    node = Node(PolicySet(version=3, policies=(REPORT, IMAGES)))
    again = Policy(name="Report", importance=7)

    async def work() -> None:
        await node.administration.put_policy(again)
        assert node.administration.policy_set == PolicySet(version=4, policies=(again, IMAGES))

    run(work)


def test_changes_survive_a_crash() -> None:
    disk = FaultDisk()
    node = Node(disk=disk)

    async def work() -> None:
        await node.administration.put_policy(REPORT)
        await node.administration.patch({"client_bandwidth": 64_000})

    run(work)
    found = load_initial_policies(PolicyStore(disk.crash()))
    assert found == node.administration.policy_set
    assert found.version == 2


def test_what_changes_nothing_makes_no_version() -> None:
    node = Node()
    admin = node.administration

    async def work() -> None:
        await admin.put_policy(REPORT)
        assert (await admin.put_policy(REPORT)).version == 1
        assert (await admin.replace(PolicySet(version=99, policies=(REPORT,)))).version == 1
        assert len(node.applied) == len(admin.history()) == 1

    run(work)


def test_two_administrators_do_not_overwrite_each_other() -> None:
    node = Node()
    admin = node.administration

    async def work() -> None:
        results = await asyncio.gather(
            admin.put_policy(REPORT, if_version=0),
            admin.put_policy(IMAGES, if_version=0),
            return_exceptions=True,
        )
        assert isinstance(results[0], PolicySet)
        assert isinstance(results[1], ConflictError)
        assert (results[1].requested, results[1].current) == (0, 1)
        assert "version 1 is current" in str(results[1])
        assert admin.policy_set.policies == (REPORT,)
        await admin.put_policy(IMAGES, if_version=1)

    run(work)


def test_refusals_leave_everything_as_it_was() -> None:
    disk = FaultDisk()
    node = Node(disk=disk)
    admin = node.administration

    async def work() -> None:
        await admin.put_policy(REPORT)
        before = (admin.policy_set, admin.policies)
        with pytest.raises(PolicyError, match='strategy: expected one of "strict"'):
            await admin.patch({"strategy": "random"})
        with pytest.raises(UnknownPolicyError, match="no policy 'Images'"):
            await admin.remove_policy("Images")
        with pytest.raises(UnknownVersionError):
            await admin.rollback(7)
        disk.fail("sync", errno.ENOSPC)
        with pytest.raises(PolicyStoreError, match="no space left"):
            await admin.put_policy(IMAGES)
        assert (admin.policy_set, admin.policies) == before
        assert len(node.applied) == 1
        await admin.put_policy(IMAGES)
        assert admin.policy_set.version == 2

    run(work)


def test_an_earlier_version_counts_again_as_a_new_one() -> None:
    node = Node()
    admin = node.administration

    async def work() -> None:
        await admin.put_policy(REPORT)
        await admin.replace(PolicySet(policies=(IMAGES,), strategy="strict"))
        await admin.rollback(1, who="ann")
        assert admin.policy_set == PolicySet(version=3, policies=(REPORT,))
        assert admin.history()[0].what == "back to version 1"

    run(work)


def test_only_so_many_changes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration_module, "MAX_WAITING", 3)
    admin = Node().administration

    async def work() -> None:
        weights = [[weight] * 8 for weight in range(1, 6)]
        changes = [admin.patch({"weights": each}) for each in weights]
        results = await asyncio.gather(*changes, return_exceptions=True)
        assert [isinstance(each, TooManyChangesError) for each in results] == [
            *[False] * 3,
            *[True] * 2,
        ]
        assert (await admin.patch({"strategy": "laxity"})).version == 4

    run(work)


def test_a_change_is_not_stopped_half_way_when_who_asked_goes() -> None:
    node = Node()
    admin = node.administration

    async def work() -> None:
        asking = asyncio.create_task(admin.put_policy(REPORT))
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await admin.close()
        assert admin.policy_set.version == 1
        assert len(node.applied) == 1

    run(work)


def test_a_dry_run_changes_nothing_and_says_whom_a_change_would_affect() -> None:
    node = Node()
    admin = node.administration
    raven, patrol = Entity("raven-7", "", (), "alpha"), Entity("patrol-1", "", (), "alpha")
    node.open = [
        *[OpenOperation("publish", "uav/imagery", raven)] * 150,
        OpenOperation("subscribe", "uav/imagery", patrol),
        OpenOperation("subscribe", "patrol/report", patrol),
    ]

    async def work() -> None:
        await admin.put_policy(REPORT)
        result = await admin.dry_run(PolicySet(policies=(REPORT, IMAGES)))
        assert (result.version, result.checked, result.total) == (1, 152, 150)
        assert len(result.affected) == 150
        assert admin.policy_set.policies == (REPORT,)
        nothing = await admin.dry_run(PolicySet(policies=(REPORT,), strategy="strict"))
        assert (nothing.checked, nothing.total) == (152, 0)

    run(work)


def test_a_dry_run_shows_only_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(administration_module, "MAX_AFFECTED", 110)
    node = Node()
    node.open = [
        OpenOperation("publish", "patrol/x", Entity(f"c{number}")) for number in range(250)
    ]

    async def work() -> None:
        result = await node.administration.dry_run(PolicySet(policies=(REPORT,)))
        assert (result.total, len(result.affected)) == (250, 110)

    run(work)


class TestFirstBook:
    def test_without_anything(self) -> None:
        store = PolicyStore()
        assert load_initial_policies(store) == PolicySet()
        assert store.history() == []

    def test_from_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "policies.toml"
        file.write_text("strategy = 'strict'")
        store = PolicyStore()
        assert load_initial_policies(store, file, changed_ms=5) == PolicySet(
            version=1, strategy="strict"
        )
        (version,) = store.history()
        assert (version.what, version.changed_ms) == ("taken from policies.toml", 5)

    def test_changes_at_run_time_count_until_the_file_is_edited(self, tmp_path: Path) -> None:
        disk = FaultDisk()
        file = tmp_path / "policies.toml"
        file.write_text("strategy = 'strict'")

        def start() -> Node:
            disk.kill()
            return Node(load_initial_policies(PolicyStore(disk), file), disk=_again(disk))

        node = start()
        run(lambda: _ignored(node.administration.put_policy(REPORT)))
        node = start()
        assert node.administration.policy_set == PolicySet(
            version=2, strategy="strict", policies=(REPORT,)
        )
        file.write_text("strategy = 'laxity'")
        node = start()
        assert node.administration.policy_set == PolicySet(version=3, strategy="laxity")
        run(lambda: _ignored(node.administration.rollback(2)))
        assert start().administration.policy_set.policies == (REPORT,)

    def test_a_version_that_nobody_understands_is_passed_over(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = FaultDisk()
        node = Node(disk=disk)
        run(lambda: _ignored(node.administration.put_policy(REPORT)))
        node.store.write(Version(version=2), "strategy = 'of a later version'\n")
        assert load_initial_policies(PolicyStore(disk.crash())).policies == (REPORT,)
        assert "policy version: skipped" in caplog.text

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (None, "no such file or directory"),
            (b"strategy = 3", 'strategy: expected one of "strict"'),
            (b"a = 1\nb = '\xff'", "line 2: expected UTF-8 text"),
            (b"#" * 5_000_001, "expected at most 5000000 bytes"),
            (b"\nstrategy 3", "line 2"),
        ],
    )
    def test_files_that_can_not_be_used(
        self, tmp_path: Path, content: bytes | None, problem: str
    ) -> None:
        file = tmp_path / "policies.toml"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(PolicyError) as caught:
            load_initial_policies(PolicyStore(), file)
        assert str(caught.value).startswith(str(file))
        assert problem in str(caught.value)


def _again(disk: FaultDisk) -> FaultDisk:
    disk.kill()
    return disk


async def _ignored(work: Coroutine[Any, Any, object]) -> None:
    await work


class TestExplain:
    BOOK = parse_policy_set("""
        [[policies]]
        name = "Imagery"
        channel = "uav/#"
        importance = 2
        [[policies]]
        name = "Analysts"
        group = "analysts"
        operation = "subscribe"
        importance = 5
        [[policies]]
        name = "Thin"
        when = "link_kbps < 500"
        preferences = "GeneralSurv"
        [[policies]]
        name = "Large"
        where = "payload_bytes > 1000 AND taken = 7"
        precedence = 9
        importance = 0
    """)

    def importance(self, node: Node, **question: Any) -> str:
        explanation = node.administration.explain(
            Explain(**{"operation": "subscribe", "channel": "uav/imagery", **question})
        )
        return explanation.granted.policy

    def test_who_is_connected_is_known(self) -> None:
        node = Node(self.BOOK)
        node.entities["desk-1"] = Entity("desk-1", "ann", ("analysts",), "alpha")
        assert self.importance(node, client="desk-1") == "Analysts"
        assert self.importance(node, client="desk-2") == "Imagery"
        assert self.importance(node, client="desk-2", groups=("analysts",)) == "Analysts"
        assert self.importance(node, client="desk-1", groups=()) == "Imagery"
        assert self.importance(node, client="desk-1", user="bob") == "Analysts"

    @pytest.mark.parametrize(
        ("question", "problem"),
        [
            ({"operation": "dance"}, 'operation: expected one of "publish"'),
            ({"channel": "uav/#"}, "channel: "),
            ({"channel": ""}, "channel: "),
        ],
    )
    def test_questions_that_are_none(self, question: dict[str, str], problem: str) -> None:
        with pytest.raises(PolicyError, match=problem):
            self.importance(Node(self.BOOK), **question)

    def test_an_event_that_is_given(self) -> None:
        node = Node(self.BOOK)
        event = {"attributes": {"taken": "7"}, "payload_bytes": 2_000}
        assert self.importance(node, **event) == "Large"
        assert self.importance(node, payload_bytes=2_000) == "Imagery"
