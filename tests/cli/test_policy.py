"""`accord policy …`: against a node's HTTP API, and against files."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import argon2
import pytest
import typer
from typer.testing import CliRunner, Result

from accord.cli.main import Commands
from accord.cli.policy import app as policy_app
from accord.core.policy.dry_run import OpenOperation
from accord.core.policy.policies import Entity
from accord.core.policy.policy import Policy
from accord.core.policy.policy_set import ClientLimit, PolicySet, parse_policy_set
from accord.core.policy.preferences import PRESETS, Preferences
from accord.core.router.rights import Rights
from accord.http.app import create_app
from accord.http.server import serve
from accord.operations.ports import NodePorts
from accord.runtime.addresses import SocketAddress
from accord.runtime.policy_admin import PolicyAdmin, PolicyHost
from accord.runtime.policy_store import PolicyStore
from accord.runtime.users import User, Users
from tests.fake_node import FakeNode

EXAMPLE = Path(__file__).parents[2] / "examples" / "policies.toml"
DOCUMENT = EXAMPLE.parents[1] / "docs" / "POLICIES.md"
QUICK = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)
REPORT = Policy(name="Report", channel=("patrol/#",), importance=6, preferences="NoDrop")

app = typer.Typer(cls=Commands)
app.add_typer(policy_app, name="policy")


class Site:
    """A node's HTTP API about policies, in a thread."""

    def __init__(self, users: Users | None = None) -> None:
        desk = Entity("desk-1", "ann", ("analysts",), "alpha")
        around = PolicyHost(
            open_=lambda: [OpenOperation("subscribe", "patrol/report", desk)],
            find_entity=lambda client: desk if client == "desk-1" else None,
        )
        self.administration = PolicyAdmin(PolicySet(policies=(REPORT,)), PolicyStore(), around)
        self.url = ""
        self._users = users
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run)

    @property
    def book(self) -> PolicySet:
        return self.administration.policy_set

    def __enter__(self) -> Site:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    async def _serve(self) -> None:
        node = NodePorts(view=FakeNode(), policies=self.administration)
        app = create_app(node, users=self._users)
        server = await serve(app, SocketAddress("127.0.0.1", 0))
        self.url = f"http://{server.address}"
        self._started.set()
        await self._stop.wait()
        await server.stop()
        await self.administration.close()


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


Run = Callable[..., Result]


@pytest.fixture
def run(site: Site) -> Run:
    return lambda *arguments, **options: run_at(site.url, *arguments, **options)


def run_at(url: str, *arguments: str, stdin: str | None = None, **environment: str) -> Result:
    environment = {"COLUMNS": "160", "ACCORD_HTTP_URL": url, **environment}
    return CliRunner().invoke(app, ["policy", *arguments], input=stdin, env=environment)


def offline(*arguments: str, stdin: str | None = None) -> Result:
    return run_at("http://127.0.0.1:1", *arguments, stdin=stdin)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.stdout.splitlines() if line.strip()]


class TestSeeing:
    def test_a_table(self, run: Run) -> None:
        heard = lines(run("list"))
        assert "strategy weighted fair" in heard
        assert "shaping on" in heard
        assert "limits none" in heard
        assert heard[-1] == "Report 0 on patrol/# importance 6, NoDrop"

    def test_json(self, run: Run, site: Site) -> None:
        assert parse_policy_set(run("list", "--json").stdout, is_json=True) == site.book
        assert json.loads(run("show", "Report", "--json").stdout)["importance"] == 6

    def test_as_in_a_file(self, run: Run, site: Site) -> None:
        assert parse_policy_set(run("show").stdout) == site.book
        assert run("show", "Report").stdout.startswith('[[policies]]\nname = "Report"\n')
        assert parse_policy_set(run("show", "Report").stdout).policies == (REPORT,)

    def test_what_is_not_there(self, run: Run) -> None:
        heard = run("show", "x")
        assert heard.exit_code == 2
        assert "there is no policy 'x'" in heard.stderr

    def test_a_node_without_policies(self, run: Run) -> None:
        run("remove", "Report")
        assert lines(run("list"))[-1] == "no policies: everything is equally important"

    def test_explanations(self, run: Run) -> None:
        heard = run("explain", "--client", "desk-1", "--channel", "patrol/report")
        assert heard.stdout.startswith(
            "desk-1 (user ann, group analysts) receives patrol/report with importance 6, because "
            "Report says so: the only policy that applies and says it.\n"
        )
        event = ("--attribute", "a=1", "--payload-bytes", "5", "--by-user", "bob", "--group", "g")
        as_json = run("explain", "--channel", "uav/x", *event, "--json")
        fields = json.loads(as_json.stdout)
        assert (fields["user"], fields["groups"]) == ("bob", ["g"])
        assert fields["unmet"][0]["policy"] == "Report"

    def test_questions_that_are_none(self, run: Run) -> None:
        heard = run("explain", "--channel", "a/#")
        assert heard.exit_code == 2
        assert heard.stderr.startswith("error: channel: ")
        assert run("explain", "--channel", "a", "--attribute", "b").exit_code == 2
        assert "give --file" in run("explain", "--channel", "a", "--resource", "b=1").stderr


class TestChanging:
    def test_a_whole_file(self, run: Run, site: Site) -> None:
        affected = lines(run("apply", str(EXAMPLE), "--dry-run"))
        assert affected[0] == "1 of 1 open publisher, subscription or query would be affected"
        assert affected[-1].startswith("desk-1 subscribe patrol/report importance 6 → 5")
        assert site.book.version == 0
        applied = "8 policies; strategy weighted fair (policies version 1)\n"
        assert run("apply", str(EXAMPLE)).stdout == applied
        assert site.book.policies == parse_policy_set(EXAMPLE.read_text()).policies
        heard = run("apply", "-", "--if-version", "0", stdin="strategy = 'strict'")
        assert heard.exit_code == 1
        assert "version 1 is current" in heard.stderr

    def test_a_dry_run_as_json(self, run: Run) -> None:
        fields = json.loads(run("apply", str(EXAMPLE), "--dry-run", "--json").stdout)
        assert fields["affected"][0]["client"] == "desk-1"

    def test_some_policies(self, run: Run, site: Site, tmp_path: Path) -> None:
        two = "[[policies]]\nname = 'A'\nimportance = 1\n[[policies]]\nname = 'B'\nimportance = 2"
        assert run("put", "-", stdin=two).exit_code == 0
        assert [policy.name for policy in site.book.policies] == ["Report", "A", "B"]
        assert site.book.version == 1
        file = tmp_path / "a.json"
        file.write_text('{"name": "A", "importance": 7}')
        assert run("put", str(file)).stdout == "1 policy put (policies version 2)\n"
        assert site.book.policies[1].importance == 7

    def test_parts_of_a_policy(self, run: Run, site: Site) -> None:
        assert run("set", "Report", "--importance", "4").exit_code == 0
        assert (
            run("set", "Report", "--client", "a", "--client", "b*", "--channel", "").exit_code == 0
        )
        assert site.book.policies == (
            Policy(name="Report", client=("a", "b*"), importance=4, preferences="NoDrop"),
        )
        heard = run("set", "Report", "--deadline", "5 s")
        assert "error: --deadline: expected --preferences '' beside it" in heard.stderr
        assert run("set", "Report", "--preferences", "", "--deadline", "5 s").exit_code == 0
        assert run("set", "Report", "--shaping", "scaling", "--precedence", "-3").exit_code == 0
        (policy,) = site.book.policies
        assert policy.preferences == Preferences(shaping="scaling", deadline_ms=5_000)
        assert policy.precedence == -3
        assert run("set", "Report", "--shaping", "", "--deadline", "").exit_code == 0
        assert site.book.policies[0].preferences is None

    def test_a_new_policy(self, run: Run, site: Site) -> None:
        options = ("--operation", "publish", "--where", "a > 1", "--importance", "0")
        assert run("set", "día/1", *options, "--by-user", "ann", "--group", "g").exit_code == 0
        assert site.book.policies[1] == Policy(
            name="día/1",
            operation=("publish",),
            user=("ann",),
            group=("g",),
            where="a > 1",
            importance=0,
        )
        assert run("remove", "día/1", "--json").stdout == '{"version":2}\n'
        assert site.book.policies == (REPORT,)

    def test_guarantees(self, run: Run, site: Site) -> None:
        for given, guarantee in (("0.75", 0.75), ("1", 1.0), ("full", "full")):
            assert run("set", "Report", "--guarantee", given).exit_code == 0
            policy = site.book.policy("Report")
            assert policy is not None
            assert policy.guarantee == guarantee
        assert "guarantee full" in " ".join(run("list").stdout.split())
        assert run("set", "Report", "--guarantee", "").exit_code == 0
        assert site.book.policies == (REPORT,)

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("set", "x", "--importance", "9"), "policy.importance: expected 0 to 7, got 9"),
            (("set", "x", "--importance", "much"), "--importance: expected an integer"),
            (("set", "x", "--importance", "1", "--where", "a > >"), "where"),
            (("set", "x", "--preferences", "Nice"), "policy.preferences: expected one of"),
            (("set", "x", "--guarantee", "half"), 'policy.guarantee: expected "none", "full"'),
            (("set", "x"), "policy: expected importance, preferences or a guarantee"),
            (("strategy", "random"), 'strategy: expected one of "strict"'),
            (("shaping", "maybe"), "expected on or off, got 'maybe'"),
            (("limit", "--node", "fast"), "bandwidth: expected a bandwidth such as"),
            (("limit", "--client", "a", "fast"), "limits[0].bandwidth: expected a bandwidth"),
            (("limit", "--client", "a", "none"), "--client: 'a' has no limit of its own"),
            (("rollback", "0"), "VERSION"),
        ],
    )
    def test_mistakes(self, run: Run, site: Site, arguments: tuple[str, ...], problem: str) -> None:
        heard = run(*arguments)
        assert heard.exit_code == 2
        assert problem in heard.stderr
        assert site.book.version == 0

    @pytest.mark.parametrize(
        ("arguments", "problem"),
        [
            (("remove", "x"), "there is no policy 'x'"),
            (("rollback", "77"), "there is no version 77 of the policies; kept are none"),
        ],
    )
    def test_what_the_node_refuses(
        self, run: Run, site: Site, arguments: tuple[str, ...], problem: str
    ) -> None:
        heard = run(*arguments)
        assert heard.exit_code == 1
        assert problem in heard.stderr
        assert site.book.version == 0

    def test_strategy_and_shaping(self, run: Run, site: Site) -> None:
        assert run("strategy").stdout == "weighted fair\n"
        assert run("strategy", "strict").stdout == "strategy: strict (policies version 1)\n"
        assert run("strategy").stdout == "strict\n"
        assert run("shaping", "off").stdout == "shaping: off (policies version 2)\n"
        assert (run("shaping").stdout, site.book.shaping) == ("off\n", False)

    def test_limits(self, run: Run, site: Site) -> None:
        assert run("limit").stdout == "none\n"
        run("limit", "--node", "800kbit/s", "--each", "2000000", "--client", "a", "64 kbit/s")
        said = run("limit", "--client", "b", "1 Mbit/s").stdout
        assert said.endswith("; a 64 kbit/s; b 1 Mbit/s (policies version 2)\n")
        both = (ClientLimit("a", 64_000), ClientLimit("b", 1_000_000))
        assert site.book == PolicySet(
            version=2,
            bandwidth_bps=800_000,
            client_bandwidth_bps=2_000_000,
            limits=both,
            policies=(REPORT,),
        )
        assert run("limit").stdout == (
            "the node 800 kbit/s; each client 2 Mbit/s; a 64 kbit/s; b 1 Mbit/s\n"
        )
        run("limit", "--client", "a", "none", "--node", "none")
        assert site.book.limits == both[1:]
        assert site.book.bandwidth_bps is None
        run("limit", "--none", "--node", "1 Mbit/s")
        assert site.book == PolicySet(version=4, bandwidth_bps=1_000_000, policies=(REPORT,))

    def test_history(self, run: Run, site: Site) -> None:
        assert run("history").stdout == "no changes yet\n"
        run("strategy", "strict")
        run("strategy", "laxity")
        heard = lines(run("history"))
        assert heard[-2].endswith("accord command from 127.0.0.1 strategy = laxity")
        assert json.loads(run("history", "--json").stdout.splitlines()[0])["version"] == 2
        assert run("rollback", "1").stdout == "back to version 1 (policies version 3)\n"
        assert site.book.strategy == "strict"
        assert run("rollback").stdout == "back to version 2 (policies version 4)\n"
        assert site.book.strategy == "laxity"

    def test_nothing_to_roll_back_to(self, run: Run) -> None:
        run("strategy", "strict")
        heard = run("rollback")
        assert heard.exit_code == 2
        assert "VERSION: there is no version before the last change" in heard.stderr

    def test_limits_in_the_history(self, run: Run) -> None:
        run("limit", "--client", "a", "64 kbit/s")
        assert lines(run("history"))[-1].endswith("limits = a 64 kbit/s")


class TestFiles:
    def test_the_example_is_good(self) -> None:
        assert offline("check", str(EXAMPLE)).stdout == f"{EXAMPLE}: good, 8 policies\n"
        assert offline("check", "-", stdin="[[policies]]\nname='a'\nimportance=1").stdout == (
            "-: good, 1 policy\n"
        )

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("\n\nstrategy = 'x'", ":3: strategy: expected one of"),
            ("strategy 3", ":1: not TOML: "),
            ("a = 1\nstrategy =", ":2: not TOML: "),
            ("stratgy = 3", ":1: stratgy: unknown; did you mean strategy?"),
            (
                "[[policies]]\nname='a'\nimportance=1\n[[policies]]\nname='b'\nimportance=8",
                ":6: policies[1].importance: expected 0 to 7, got 8",
            ),
            ("[[policies]]\nname='a'\nimportance=1\nwhere='a > >'", ":4: "),
            ("[[policies]]\nname='a'\nimportance=1\nwho='x = 1'", ":4: "),
            ("weights = [1,\n2]", ":1: weights: expected 8"),
            ("[[limits]]\nclient='a'", ":1: limits[0].bandwidth: expected, but missing"),
        ],
    )
    def test_mistakes_by_line(self, text: str, problem: str, tmp_path: Path) -> None:
        file = tmp_path / "p.toml"
        file.write_text(text)
        heard = offline("check", str(file))
        assert heard.exit_code == 2
        assert heard.stderr.startswith(f"error: {file}{problem}")

    @pytest.mark.parametrize(
        ("name", "content", "problem"),
        [
            ("p.toml", b"a = 1\nb = '\xff'", ":2: expected UTF-8 text"),
            ("p.toml", b"#" * 5_000_001, ": expected at most 5000000 bytes"),
            ("p.json", b"[", ": policies: not JSON: "),
            ("p.json", b'{"shaping": 3}', ": shaping: expected true or false"),
            ("p.toml", None, ": no such file or directory"),
        ],
    )
    def test_files_that_can_not_be_used(
        self, name: str, content: bytes | None, problem: str, tmp_path: Path
    ) -> None:
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        assert offline("check", str(file)).stderr.startswith(f"error: {file}{problem}")

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            (
                "strategy='strict'\n[[policies]]\nname='a'\nimportance=1",
                ":1: strategy: expected policies only",
            ),
            ("name='a'\nimportance=9", ":2: policy.importance: expected 0 to 7"),
            ("importance=1", ":1: policy.name: expected, but missing"),
            ("name 3", ":1: not TOML"),
        ],
    )
    def test_policies_to_put(self, text: str, problem: str) -> None:
        assert offline("put", "-", stdin=text).stderr.startswith(f"error: -{problem}")

    def test_explanations_without_a_node(self) -> None:
        ask = ("explain", "--file", str(EXAMPLE), "--channel", "uav/imagery", "--client", "desk-1")
        heard = offline(*ask, "--publisher", "raven-7")
        assert heard.stdout.startswith("desk-1 receives uav/imagery from raven-7 with importance 2")
        shown = lines(heard)
        assert "Large-Imagery payload_bytes > 50000 importance 1" in shown
        assert "Thin-Link when link_kbps < 500 link_kbps = unknown" in shown
        thin = lines(offline(*ask, "--resource", "link_kbps=300"))
        assert thin[1].startswith("What can't arrive within 5 s is dropped; payloads are made smal")
        assert offline(*ask, "--resource", "link_kbps=slow").exit_code == 2

    def test_presets(self) -> None:
        heard = lines(offline("presets"))
        assert "GeneralSurv shaping by scaling, within 5 s" in heard
        assert "NoDrop no deadline" in heard


class TestDocument:
    TEXT = DOCUMENT.read_text("utf-8")

    def test_the_files_it_shows_are_accepted(self) -> None:
        blocks = re.findall(r"```toml\n(.*?)```", self.TEXT, re.DOTALL)
        assert blocks
        for block in blocks:
            assert parse_policy_set(block).policies

    def test_the_explanations_it_shows_are_given(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(DOCUMENT.parents[1])
        shown = re.findall(r"\$ accord policy (explain --file .*)\n((?s:.*?))```", self.TEXT)
        assert len(shown) == 1
        for command, output in shown:
            heard = run_at("", *shlex.split(command), COLUMNS="120")
            assert [line.rstrip() for line in heard.stdout.splitlines()] == output.splitlines()

    def test_the_presets_it_shows_are_those_that_there_are(self) -> None:
        assert set(re.findall(r"^\| `([A-Z]\w+)` \|", self.TEXT, re.MULTILINE)) == set(PRESETS)

    def test_the_dry_run_it_shows(self, run: Run) -> None:
        heard = run("apply", str(EXAMPLE), "--dry-run")
        text = "\n".join(line.rstrip() for line in heard.stdout.splitlines())
        assert text in self.TEXT, text


class TestNoNode:
    def test_nobody_there(self) -> None:
        heard = offline("list")
        assert heard.exit_code == 2
        assert "no node answers at http://127.0.0.1:1 (connection refused)" in heard.stderr

    def test_rights(self) -> None:
        users = [
            User("ann", QUICK.hash("right")),
            User("bob", QUICK.hash("right"), Rights(("#",), ("#",))),
        ]
        with Site(Users(users)) as site:
            nobody = run_at(site.url, "list")
            assert "expected the name and password of a user" in nobody.stderr
            assert "give --user and ACCORD_PASSWORD" in nobody.stderr
            bob = run_at(site.url, "strategy", "strict", "--user", "bob", ACCORD_PASSWORD="right")  # noqa: S106
            assert "bob may not use policies.patch; it takes the right may.policies" in bob.stderr
            ann = run_at(site.url, "strategy", "strict", "--user", "ann", ACCORD_PASSWORD="right")  # noqa: S106
            assert ann.exit_code == 0, ann.stderr
            assert site.administration.history()[0].who == "ann"
