from __future__ import annotations

from pathlib import Path

import argon2
import pytest
from msgspec import structs

from accord.config import Config, ConfigError, load, parse
from accord.config.node import node_settings
from accord.config.settings import AnonymousSettings, KeepSettings, ListenSettings, PipelineSettings
from accord.core.queries.spark_settings import SparkSettings
from accord.core.router.rights import EVERYTHING, Allowed, Denied, Rights
from accord.journal.options import JournalOptions
from accord.runtime.addresses import SocketAddress
from accord.runtime.pipeline import archive_place
from accord.runtime.users import User

HASH = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1).hash("secret")
USER = f"[users.ann]\npassword = '{HASH}'\n"
LOOPBACK = "127.0.0.1"
_AB = KeepSettings(channels=("a", "b/+"), attributes={"altitude_m": "float", "platform": "string"})
SPARK = "[pipeline.spark]\nmaster = 'yarn'\n"
KEEP = "[[keep]]\nchannels = 'a'\nattributes"


def mistakes(text: str, **options: str) -> list[str]:
    with pytest.raises(ConfigError) as error:
        parse(text, file="a.toml", **options)
    return str(error.value).splitlines()


def test_an_empty_file_says_the_defaults() -> None:
    assert parse("") == Config() == Config.default()


def test_a_whole_file() -> None:
    config = parse(f"""
        [node]
        name = "alpha"
        [listen]
        mqtt = ["{LOOPBACK}:1883", "[::1]:1883"]
        websocket = false
        http = ""
        [limits]
        packet_bytes = "1 MiB"
        session_expiry_s = "24h"
        connections = 100
        [[keep]]
        channels = "report/#"
        [[keep]]
        channels = ["a", "b/+"]
        attributes = {{ altitude_m = "float", platform = "string" }}
        [pipeline]
        spark = "spark://head:7077"
        archive = "old"
        retain_s = "90d"
        [users.ann]
        password = '{HASH}'
        may = {{ publish = "uav/#", subscribe = ["#"], statistics = false }}
        [users."b.c"]
        password = '{HASH}'
        [log]
        level = "debug"
    """)
    assert config.node.actual_name == "alpha"
    assert config.listen == ListenSettings(
        mqtt=(SocketAddress(LOOPBACK, 1883), SocketAddress("::1", 1883)), websocket=(), http=()
    )
    assert config.limits.packet_bytes == 1_048_576
    assert config.limits.session_expiry_s == 86_400
    assert config.limits.connections == 100
    assert config.keep == (KeepSettings(channels=("report/#",)), _AB)
    assert config.declared == {"altitude_m": "float", "platform": "string"}
    assert config.pipeline == PipelineSettings(
        spark=SparkSettings(master="spark://head:7077"), archive="old", retain_s=7_776_000
    )
    assert config.kept_channels == ("report/#", "a", "b/+")
    assert config.users == (
        User("ann", HASH, Allowed(("uav/#",), ("#",), statistics=False)),
        User("b.c", HASH, EVERYTHING),
    )
    assert config.log.level == "debug"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (
            "[limits]\nconections = 1",
            "2: limits.conections: unknown key, did you mean connections?",
        ),
        ("[limts]", "1: limts: unknown key, did you mean limits?"),
        (
            "\n\nx = 1",
            "3: x: unknown key, expected one of node, listen, tls, limits, keep, journal",
        ),
        ("limits.connections = 0", "1: limits.connections: expected 1 to 100000000, got 0"),
        ('limits.connections = "many"', "1: limits.connections: expected an integer, got 'many'"),
        ("limits.connections = true", "1: limits.connections: expected an integer, got true"),
        ("limits.connections = 1.5", "1: limits.connections: expected an integer, got 1.5"),
        ("limits.connections = []", "1: limits.connections: expected an integer, got a list"),
        ("limits = 1", "1: limits: expected a table, got 1"),
        ('limits.packet_bytes = "16 mb"', "1: limits.packet_bytes: expected a size, such as 4096,"),
        ('limits.packet_bytes = "1 GB"', "expected 256 B to 268 MB, got '1 GB'"),
        ('limits.keep_alive_s = "1 week"', "limits.keep_alive_s: expected a duration, such as 90,"),
        ('limits.connects_per_s = "1s"', "1: limits.connects_per_s: expected an integer, got '1s'"),
        ('node.name = "a b"', "1: node.name: expected letters, digits and _.- only, got 'a b'"),
        ("node.name = 3", "1: node.name: expected a string, got 3"),
        (f'node.name = "{"x" * 65}"', "node.name: expected at most 64 characters, got 65"),
        ("node.location = 3", "1: node.location: expected latitude (-90 to 90) and longitude (-1"),
        ("node.location = [1.0]", "1: node.location: expected latitude (-90 to 90) and longitud"),
        ("node.location = [91, 0]", "1: node.location: expected latitude (-90 to 90) and longit"),
        ("node.location = [0, nan]", "1: node.location: expected latitude (-90 to 90) and longit"),
        ("node.location = [1, '2']", "1: node.location: expected latitude (-90 to 90) and longit"),
        ("node.data = 3", "1: node.data: expected the path of a file or folder, got 3"),
        ('listen.mqtt = "1883"', '1: listen.mqtt: expected HOST:PORT or "" for nowhere, got \'18'),
        ('listen.mqtt = [\n"a:1",\n3]', "3: listen.mqtt[2]: expected HOST:PORT"),
        ("listen.mqtt = true", "1: listen.mqtt: expected HOST:PORT"),
        ("listen.origins = 'ops.example.org'", '1: listen.origins: expected "https://HOST" or "h'),
        ("listen.origins = ['*',\n'https://a/b']", '2: listen.origins[2]: expected "https://HOST'),
        ("listen.origins = 3", "1: listen.origins: expected"),
        ("[keep]\nchannels = 'a'", "1: keep: expected tables with two brackets, [[keep]]"),
        ("[[keep]]\n[[keep]]\nchannels = 'a'", "1: keep[1].channels: expected, but missing"),
        ("[[keep]]\nchannels = 'a#'", "2: keep[1].channels: expected a wildcard to fill its"),
        ("[[keep]]\nchannels = ['a', 3]", "2: keep[1].channels[2]: expected a filter of channels"),
        (
            f"{KEEP} = 3",
            '3: keep[1].attributes: expected a table such as { speed = "float" }, got 3',
        ),
        (
            f"{KEEP} = {{ x = 'real' }}",
            '3: keep[1].attributes.x: expected one of "integer", "float"',
        ),
        (f"{KEEP} = {{ x = 3 }}", '3: keep[1].attributes.x: expected one of "integer", "float"'),
        (f"{KEEP}.Payload = 'string'", "3: keep[1].attributes.Payload: every event has a column"),
        (f"{KEEP}.'a b' = 'string'", "expected the name of an attribute: up to 100 letters"),
        (
            f"{KEEP}.x = 'float'\n{KEEP}.x = 'string'",
            '6: keep[2].attributes.x: expected "float", as it is declared before, got "string"',
        ),
        (
            f"{KEEP}.x = 'float'\nattributes.X = 'float'",
            "4: keep[1].attributes.X: expected it to be called x, as before",
        ),
        (
            "[pipeline]\nspark = 'head:7077'",
            "2: pipeline.spark: expected spark://HOST:PORT, sc://HOST:PORT, k8s://…, yarn",
        ),
        ("pipeline.spark = 3", "1: pipeline.spark: expected a table, or spark://HOST:PORT"),
        (
            "[pipeline.spark]\nmaster = 'head:7077'",
            "2: pipeline.spark.master: expected spark://HOST:PORT, sc://HOST:PORT, k8s://…, yarn",
        ),
        ("[pipeline.spark]\nmaster = 3", "2: pipeline.spark.master: expected spark://HOST:PORT"),
        (f"{SPARK}'executor.memory' = '4g'", "expected master, or a setting of Spark such as"),
        (f"{SPARK}'spark.a' = [1]", "3: pipeline.spark.'spark.a': expected a string, a number"),
        (
            f"{SPARK}'spark.driver.memory' = '4g'",
            "3: pipeline.spark.'spark.driver.memory': expected as `memory_mb` under [pipeline]",
        ),
        (
            f"{SPARK}spark.sql.session.timeZone = 'CET'",
            "3: pipeline.spark.spark.sql.session.timeZone: the pipeline sets it: days of",
        ),
        (f"{SPARK}spark.a.b = 1\n'spark.a.b' = 2", "4: pipeline.spark.'spark.a.b': expected only"),
        (
            "[pipeline.spark]\nmaster = 'sc://h'\n'spark.executor.memory' = '4g'",
            "3: pipeline.spark.'spark.executor.memory': expected settings of spark.sql only",
        ),
        ("pipeline.interval_ms = 1", "1: pipeline.interval_ms: expected 50 to 3600000, got 1"),
        ("pipeline.enabled = 1", "1: pipeline.enabled: expected true or false, got 1"),
        ("users = 3", "1: users: expected tables, such as [users.NAME], got 3"),
        ("users.ann = 3", "1: users.ann: expected a table, got 3"),
        ("[users.ann]", "1: users.ann.password: expected, but missing"),
        ("[users.ann]\npassword = 3", "2: users.ann.password: expected an argon2 hash"),
        (f"{USER}name = 'x'", "3: users.ann.name: unknown key, expected one of password, may"),
        (
            f"{USER}may = {{ publsh = [] }}",
            "3: users.ann.may.publsh: unknown key, did you mean pub",
        ),
        (f"{USER}groups = 3", "3: users.ann.groups: expected a name of up to 60 printable"),
        (f"{USER}groups = ['a', '']", "3: users.ann.groups[2]: expected a name of up to 60"),
        ("[anonymous]\nallowed = 1", "2: anonymous.allowed: expected true or false, got 1"),
        (
            'log.level = "all"',
            '1: log.level: expected one of "debug", "error", "info", "warning", g',
        ),
        ("log.files = 0", "1: log.files: expected 1 to 1000, got 0"),
        ("a = 1\na = 2", "2: not TOML: cannot overwrite a value"),
        ("[limits]\nconnections 5", "2: not TOML: expected '=' after a key in a key/value pair"),
        ("a = [1\n", "not TOML"),
        ("a = " + "[" * 5_000, "nested too deeply"),
    ],
)
def test_mistakes_say_where_and_what_was_expected(text: str, mistake: str) -> None:
    (line,) = mistakes(text)
    assert line.startswith("a.toml")
    assert mistake in line


def test_all_mistakes_are_told_at_once() -> None:
    assert mistakes('[limits]\nx = 1\ninflight = 0\n[log]\nformat = "xml"') == [
        "a.toml:2: limits.x: unknown key, expected one of " + ", ".join(LIMITS),
        "a.toml:3: limits.inflight: expected 1 to 65535, got 0",
        'a.toml:5: log.format: expected one of "console", "json", got \'xml\'',
    ]


LIMITS = list(Config().limits.__struct_fields__)


def test_passwords_are_not_shown() -> None:
    (line,) = mistakes("[users.ann]\npassword = 'my secret'")
    assert "my secret" not in line


def test_files_may_come_from_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "accord.toml"
    file.write_bytes(b"\xef\xbb\xbf[limits]\r\n\r\nconnections = 7\r\n")
    assert load(file).limits.connections == 7
    file.write_bytes(b"[limits]\r\n\r\nconnections = 0\r\n")
    with pytest.raises(ConfigError, match=r"accord\.toml:3: "):
        load(file)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such file or directory"),
        (b"a = 1\nb = '\xff'", ":2: expected UTF-8 text"),
        (b"#" * 1_000_001, "expected at most 1000000 bytes"),
    ],
)
def test_files_that_can_not_be_read(tmp_path: Path, content: bytes | None, problem: str) -> None:
    file = tmp_path / "accord.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError) as error:
        load(file)
    assert str(error.value).startswith(str(file))
    assert problem in str(error.value)


def test_without_a_file_there_are_defaults_or_the_one_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert load() == Config()
    Path("accord.toml").write_text("limits.connections = 3\nlog.file = 'x.log'")
    assert load().limits.connections == 3
    assert load().log.file == "x.log"


def test_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "accord.toml").write_text(
        "node.data = 'here'\ntls.certificate = '/etc/a.pem'\nlog.file = ''"
    )
    config = load(tmp_path / "accord.toml")
    assert config.node.directory == tmp_path / "here"
    assert config.tls.certificate == "/etc/a.pem"
    assert config.log.file == ""
    assert Config().node.directory == Path("accord-data")


def test_options_replace_what_the_file_says() -> None:
    config = parse(
        "node.data = 'x'", mqtt=f"{LOOPBACK}:0", websocket="", http=f"{LOOPBACK}:0", data=""
    )
    assert config.listen == ListenSettings(
        mqtt=(SocketAddress(LOOPBACK, 0),), websocket=(), http=(SocketAddress(LOOPBACK, 0),)
    )
    assert config.node.directory is None


@pytest.mark.parametrize(
    ("options", "mistake"),
    [
        ({"mqtt": "1883"}, "--mqtt: expected HOST:PORT, got '1883'"),
        ({"http": "0.0.0.0:80"}, "--http: other machines can reach 0.0.0.0:80, but no users"),
        ({"mqtt": "127.0.0.1:8083"}, "listen.websocket: 127.0.0.1:8083 is already where mqtt"),
    ],
)
def test_mistakes_in_options_name_them(
    options: dict[str, str], mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as error:
        load(**options)
    assert str(error.value).startswith(mistake)


@pytest.mark.parametrize("name", ["mqtt", "websocket", "http"])
def test_a_node_that_others_reach_needs_users(name: str) -> None:
    text = f'[listen]\n{name} = "0.0.0.0:1"\n'
    (line,) = mistakes(text)
    assert line == (
        f"a.toml:2: listen.{name}: other machines can reach 0.0.0.0:1, but no users are "
        "configured: add users ([users.NAME], with a password made by `accord user hash`), or "
        "let everybody in ([anonymous] allowed = true), or listen on 127.0.0.1:1"
    )
    assert parse(text + USER).anonymous_rights is None
    everybody = parse(text + "[anonymous]\nallowed = true").anonymous_rights
    assert everybody == structs.replace(EVERYTHING, policies=False)


def test_origins_are_as_browsers_write_them() -> None:
    text = "['https://Ops.Example.org:443', 'http://[::1]:80', 'http://a:8080', 'null', 'app://x']"
    config = parse(f"[listen]\norigins = {text}")
    assert config.listen.origins == (
        *("https://ops.example.org", "http://[::1]", "http://a:8080", "null", "app://x"),
    )
    assert config.listen.is_loopback
    assert parse("listen.origins = '*'").listen.origins == ("*",)


def test_client_certificates_protect_too() -> None:
    tls = '[tls]\ncertificate = "a.pem"\n'
    text = f'{tls}client_ca = "ca.pem"\n[listen]\nmqtts = "0.0.0.0:8883"'
    assert parse(text).listen.mqtts == (SocketAddress("0.0.0.0", 8883),)  # noqa: S104
    assert "no users" in mistakes(f'{tls}[listen]\nmqtts = "0.0.0.0:8883"')[0]
    assert "no users" in mistakes(f'{text}\nmqtt = "0.0.0.0:1883"')[0]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ('listen.mqtts = "localhost:1"', "1: listen.mqtts: expected a certificate and its key und"),
        ('tls.key = "k"', "1: tls.key: expected a certificate beside it"),
        ('listen.mqtt = ["a:1", "a:1"]\n[anonymous]\nallowed = true', "a:1 is already where mqtt"),
        ("node.data = ''\n[[keep]]\nchannels = 'a'", "keep: expected a data directory in"),
        ("anonymous.allowed = false", "1: anonymous.allowed: without users nobody could connect"),
        ("anonymous.may.publish = '%u/#'", "1: anonymous.may.publish: expected no %u"),
        (USER.replace("ann", '"a:b"'), "1: users.'a:b': expected a name of printable characters"),
        (USER.replace("ann", '""'), "1: users.'': expected a name of printable characters"),
        ("limits.queue_bytes = 1000", "limits.queue_bytes: expected at least limits.packet_bytes"),
        ('journal.backlog_bytes = "1 MB"', "journal.backlog_bytes: expected at least limits.pack"),
        ("journal.retain_bytes = 5", "journal.retain_bytes: expected 0 or at least segment_bytes"),
        ('journal.limit_bytes = "1 GB"', "journal.limit_bytes: expected 0 or at least retain_byt"),
    ],
)
def test_settings_that_do_not_go_together(text: str, mistake: str) -> None:
    (line,) = mistakes(text)
    assert mistake in line


def test_who_may_connect_without_a_name() -> None:
    assert Config().anonymous_rights == EVERYTHING
    some = Rights(subscribe=("#",))
    both = parse(f"{USER}[anonymous]\nallowed = true\nmay = {{ subscribe = ['#'] }}")
    assert both.anonymous == AnonymousSettings(allowed=True, may=Allowed(subscribe=("#",)))
    assert both.anonymous_rights == some
    denied = parse("[anonymous]\nmay_not = { publish = 'alarm/#', policies = true }")
    assert denied.anonymous_rights == structs.replace(
        EVERYTHING, policies=False, denied=Denied(publish=("alarm/#",), policies=True)
    )


def test_what_a_user_may_not_is_written_as_what_it_may() -> None:
    (user,) = parse(f"{USER}may_not = {{ subscribe = ['secret/#', 'home/%u'] }}").users
    assert user.may_not == Denied(subscribe=("secret/#", "home/%u"))
    assert user.rights == structs.replace(EVERYTHING, denied=user.may_not)
    wrong = {
        "may_not = { subscribe = 'a/#/b' }": "may_not.subscribe: expected '#' as the last level",
        "may_not = { subscibe = 'a' }": "may_not.subscibe: unknown key, did you mean subscribe?",
        "may_not = { subscribe = '$share/g/a' }": "expected a filter without $share/GROUP/, got",
        "may_not = { policies = 1 }": "may_not.policies: expected true or false, got 1",
        "may_not = ['a']": "may_not: expected a table, got a list",
    }
    for text, mistake in wrong.items():
        (line,) = mistakes(USER + text)
        assert mistake in line
    (line,) = mistakes("[anonymous]\nmay_not = { publish = 'home/%u' }")
    assert "anonymous.may_not.publish: expected no %u" in line


def test_who_has_no_name_may_change_policies_only_where_nobody_else_could_be_meant() -> None:
    allowed = "[anonymous]\nallowed = true\n"
    said = f"{allowed}may = {{ publish = '#', subscribe = '#', system = true, policies = true }}"
    for others in (USER, f"listen.mqtt = '0.0.0.0:1'\n{USER}", "listen.http = '0.0.0.0:1'\n"):
        assert parse(others + allowed).anonymous_rights == structs.replace(
            EVERYTHING, policies=False
        )
        assert parse(others + said).anonymous_rights == EVERYTHING
    assert parse(allowed).anonymous_rights == EVERYTHING


def test_the_file_of_policies_stands_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "accord.toml").write_text("policies.file = 'p.toml'")
    assert load(tmp_path / "accord.toml").policies.file == str(tmp_path / "p.toml")
    assert Config().policies.file == ""


def test_users_have_groups() -> None:
    (user,) = parse(f"{USER}groups = ['analysts', 'día 2']").users
    assert user.groups == ("analysts", "día 2")
    assert parse(f"{USER}groups = 'analysts'").users[0].groups == ("analysts",)


def test_the_journal_gets_its_options() -> None:
    options = parse("journal.retain_s = '1h'\njournal.limit_bytes = 0").journal.options()
    assert options.segment_bytes == JournalOptions().segment_bytes
    assert options.retention.max_age_ms == 3_600_000
    assert options.retention.max_bytes == 10_000_000_000
    assert options.retention.hard_bytes is None


@pytest.mark.parametrize(
    "url", ["", "local", "local[4]", "local[*]", "yarn", "spark://h:7077", "sc://h:15002/;x=1"]
)
def test_where_spark_may_run(url: str) -> None:
    assert parse("[pipeline]\nspark = 'yarn'", spark=url).pipeline.spark.master == url


def test_settings_of_spark_with_and_without_quotes() -> None:
    text = f"{SPARK}'spark.executor.memory' = '4g'\nspark.speculation = true\nspark.task.cpus = 2"
    settings = {
        "spark.executor.memory": "4g",
        "spark.speculation": "true",
        "spark.task.cpus": "2",
    }
    assert parse(text).pipeline.spark == SparkSettings(master="yarn", settings=settings)
    url = "spark://h:7077"  # the option replaces only the master
    assert parse(text, spark=url).pipeline.spark == SparkSettings(master=url, settings=settings)


def test_values_of_spark_settings_are_never_shown() -> None:
    (mistake,) = mistakes(f"{SPARK}'spark.authenticate.secret' = ['hidden']")
    assert "hidden" not in mistake


def test_where_spark_can_not_run_is_told_with_the_option() -> None:
    (mistake,) = mistakes("", spark="cluster")
    assert mistake.startswith("--spark: expected spark://HOST:PORT")


def test_the_same_attribute_may_be_declared_again() -> None:
    config = parse(f"{KEEP} = {{ x = 'float' }}\n{KEEP} = {{ x = 'float', y = 'boolean' }}")
    assert config.declared == {"x": "float", "y": "boolean"}


@pytest.mark.parametrize(
    ("archive", "place"), [("s3://bucket/a", "s3://bucket/a"), ("/x/../y", "/y")]
)
def test_an_archive_is_a_folder_or_a_place_on_an_object_store(
    tmp_path: Path, archive: str, place: str
) -> None:
    (tmp_path / "accord.toml").write_text(f'pipeline.archive = "{archive}"\n')
    options = node_settings(load(tmp_path / "accord.toml")).pipeline
    assert options is not None
    assert archive_place(options.archive) == place
