"""Mistakes that users make: each is answered by one sentence that says what to do."""

# ruff: noqa: E501 (a table)

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest
from benchmarks.ports import free_port

from accord.journal.record import LOG, encode_segment_header
from tests.acceptance.machine import ENVIRONMENT
from tests.brokers import HOST, start_accord
from tests.cli.conftest import wait_for

HASHED: Final = (  # the password is "secret"
    "$argon2id$v=19$m=19456,t=2,p=1$zb6r012G98bnBN56hzXVAg$"
    "uwNjH8Rqethrel3iaTLI+KZeywW4YVbXVXiqbTfM/hU"
)
CONFIG: Final = f"""
limits.packet_bytes = "1 MB"
net.listen = "{HOST}:{{link}}"
net.key_file = "{{key}}"
users.root.password = "{HASHED}"
users.ann.password = "{HASHED}"
users.ann.may = {{{{ publish = ["uav/#"], subscribe = ["uav/#"] }}}}
"""
UP: Final = "up --websocket= --no-pipeline --no-demo"

# What it is, the command ({mqtt} and {http} are ports of a node, {free} one where nobody
# listens, {data} its data), and words that the output must have.
MISTAKES: Final = [
    ("no such command", "pubs", "No such command 'pubs'. Did you mean 'pub'"),
    ("no such option", "pub a b --retian", "No such option: --retian"),
    ("an option out of range", "pub a b --qos 3", "'--qos'"),
    ("a missing argument", "pub", "Missing argument 'CHANNEL'"),
    ("options that exclude each other", "sub a --where x=1 --xpath //a", "give one of"),
    ("a bad predicate", "sub a --where altitude_m>", "character 12, expected"),
    ("a bad XPath", "sub a --xpath //[", "unexpected '[' operator at character 3"),
    ("a bad filter", "sub a/#/b", "FILTER: expected '#' as the last level only, got 'a/#/b'"),
    ("a wildcard in a channel", "pub a/+ x", "expected a channel without wildcards, got 'a/+'"),
    ("a bad attribute", "pub a b -a colour", "--attribute: expected NAME=VALUE, got 'colour'"),
    ("a bad duration", "sub a --for soon", "--for: expected a duration such as 500ms"),
    ("a bad moment", "sub a --since yesterday", "--since: expected a time such as -24h"),
    ("bad JSON", "sub a --expect {{", '--expect: expected JSON such as {"rate": [5, 10]}'),
    ("an unknown property", 'sub a --expect {{"rte":1}}', "no such property; expected one of rate,"),
    ("a missing file", "pub a -f none.bin", "none.bin: no such file or directory; check the path"),
    ("a file that is a directory", "pub a -f folder", "folder: is a directory; expected a file"),
    ("metadata that is no XML", "pub a b --metadata bad.toml", "not well-formed XML at line 1"),
    ("too large a payload", "pub a -f big.bin", "at most 1000000 (its limits.packet_bytes)"),
    ("a URL without scheme", "pub a b --url localhost:1883", "--url: expected mqtt://, mqtts://"),
    ("a URL of HTTP", "pub a b --url http://localhost", "--url: expected mqtt://, mqtts://"),
    ("a URL of MQTT", "status --url mqtt://localhost", "--url: expected http:// or https://"),
    ("no node", f"pub a b --url mqtt://{HOST}:{{free}}", "start a node with `accord up`, or name"),
    ("no node with HTTP", f"status --url http://{HOST}:{{free}}", "start a node with `accord up`"),
    ("an unknown host", "pub a b --url mqtt://no.invalid", "the host is unknown; check its name"),
    ("no TLS there", f"pub a b --url mqtts://{HOST}:{{mqtt}}", "does not speak TLS; use mqtt://"),
    ("HTTP there", f"pub a b --url mqtt://{HOST}:{{http}}", "speaks HTTP, not MQTT; use the node's"),
    ("MQTT there", f"status --url http://{HOST}:{{mqtt}}", "does not speak HTTP; use https:// if"),
    ("no certificates", "pub a b --ca bad.toml", "bad.toml: expected certificates in PEM form"),
    ("a bad password", "pub a b --user eve", "bad user name or password; check --user and ACCORD_"),
    ("no right to publish", "pub a b --user ann", "no right to publish to a; ask for it (may.pub"),
    ("no right to subscribe", "sub # --user ann", "no right to subscribe to #; ask for it (may.sub"),
    ("no right to policies", "policy list --user ann", "it takes the right may.policies"),
    ("nobody in particular", f"top --once --url http://{HOST}:{{http}}", "give --user and ACCORD_"),
    ("no pipeline", "query a", "no data pipeline: it is switched off (--no-pipeline, or enabled"),
    ("an ending of no format", "query a -o x.txt", "--output: expected --format, or a name that"),
    ("no events to match", "broker none key.toml", "none: no such file or directory; check the path"),
    ("a file of other than predicates", "broker bad.json key.toml", "key.toml:1: expected an object such as"),
    ("no event id", "why none!", "EVENT_ID: expected"),
    ("an unknown event", "why 1HT7YZD2HWGN2", "event 1HT7YZD2HWGN2 is unknown"),
    ("an unknown outcome", "why --outcome lost", "outcome: expected delivered, late, shaped"),
    ("an unknown channel", "channel show none", "'none' is not defined; `accord channel ls`"),
    ("an unknown template", "channel create a --template x", "unknown template 'x'; expected one of local, rel"),
    ("an unknown policy", "policy remove none", "there is no policy 'none'; `accord policy list`"),
    ("an unknown strategy", "policy strategy best", 'strategy: expected one of "strict"'),
    ("a bad bandwidth", "policy limit --node fast", "expected a bandwidth such as 300000, "),
    ("an unknown key of a policy", "policy check policy.toml", "policy.toml:3: policies[0].importa"),
    ("a policy that is no JSON", "policy check bad.json", "bad.json: policies: not JSON"),
    ("a scenario that is none", "sim run key.toml", "key.toml:1: node: unknown key, expected one"),
    ("bad TOML", f"{UP} --config bad.toml", "bad.toml:1: not TOML: expected ']' at the end"),
    ("an unknown key", f"{UP} --config key.toml", "key.toml:2: node.nmae: unknown key, did you mea"),
    ("a bad size", f"{UP} --config size.toml", 'size.toml:1: limits.packet_bytes: expected a size,'),
    ("no configuration", f"{UP} --config none.toml", "none.toml: no such file or directory; check"),
    ("no address", f"{UP} --mqtt here", "--mqtt: expected HOST:PORT, got 'here'"),
    ("open to all", f"{UP} --mqtt 0.0.0.0:{{free}}", "no users are configured: add users"),
    ("a port in use", f"{UP} --mqtt {HOST}:{{mqtt}} --data d", "listens there; stop it or choose"),
    ("data in use", f"{UP} --mqtt {HOST}:{{free}} --data {{data}}", "stop it, or use another folder"),
    ("data of a newer version", f"{UP} --data newer", "another version of accord (format version 2"),
    ("data that can't be kept", f"{UP} --data /proc/x", "/proc/x: can't keep data there (no such"),
    ("data in a file", f"{UP} --data bad.toml", "bad.toml: can't keep data there (is a file); name"),
    ("a read-only disk", f"{UP} --data locked", "locked: can't keep data there (permission denied)"),
]  # fmt: skip


def accord_command() -> list[str]:
    return [str(ENVIRONMENT / "bin" / "accord")]


class Mistakes:
    """Runs commands in a directory with files that are of no use."""

    def __init__(self, folder: Path, **ports: object) -> None:
        self._folder = folder
        self._ports = ports

    def make(self, command: str) -> str:
        """What the command says to it."""
        words = [
            word.format(free=free_port(), data=self._folder / "data", **self._ports)
            for word in command.split()
        ]
        environment = {
            **os.environ,
            "ACCORD_PASSWORD": "secret",
            "ACCORD_URL": f"mqtt://root@{HOST}:{self._ports['mqtt']}",
            "ACCORD_HTTP_URL": f"http://root@{HOST}:{self._ports['http']}",
            "COLUMNS": "200",
        }
        done = subprocess.run(
            [*accord_command(), *words],
            cwd=self._folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (1, 2), done
        assert "Traceback" not in done.stdout + done.stderr
        assert len(re.findall(r"^error: |^╭─ Error ", done.stderr, re.MULTILINE)) == 1, done.stderr
        return done.stderr


@pytest.fixture(scope="module")
def mistakes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mistakes]:
    folder = tmp_path_factory.mktemp("mistakes")
    (folder / "folder").mkdir()
    (folder / "locked").mkdir(mode=0o500)
    (folder / "big.bin").write_bytes(bytes(2_000_000))
    (folder / "bad.toml").write_text("[node")
    (folder / "bad.json").write_text("{")
    (folder / "key.toml").write_text('[node]\nnmae = "here"\n')
    (folder / "size.toml").write_text('limits.packet_bytes = "many"\n')
    (folder / "policy.toml").write_text('[[policies]]\nname = "x"\nimportanc = 3\n')
    header = encode_segment_header(LOG, 0, 0)[:8] + b"\x02\0" + bytes(18)
    (folder / "newer" / "journal").mkdir(parents=True)
    segment = folder / "newer" / "journal" / "0000000000000000.seg"
    segment.write_bytes(header + crc32(header).to_bytes(4, "little"))
    key = folder / "net.key"
    key.write_text(32 * "5a")
    key.chmod(0o600)
    http, config = free_port(), CONFIG.format(link=free_port(), key=key)
    extra = ["--http", f"{HOST}:{http}"]
    with start_accord(folder / "data", config, extra) as node:
        wait_for(http)
        yield Mistakes(folder, mqtt=node.port, http=http)


@pytest.mark.parametrize(
    ("command", "words"), [row[1:] for row in MISTAKES], ids=[row[0] for row in MISTAKES]
)
def test_a_mistake(mistakes: Mistakes, command: str, words: str) -> None:
    if "locked" in command and os.geteuid() == 0:
        pytest.skip("nothing is locked for root")
    assert words in mistakes.make(command)


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    http = free_port()
    with start_accord(extra=["--pipeline", "--http", f"{HOST}:{http}"]) as node:
        wait_for(http)
        mistakes = Mistakes(tmp_path, mqtt=node.port, http=http)
        while "Java" not in (said := mistakes.make(f"report --url http://{HOST}:{{http}}")):
            assert "starting" in said
        assert "Spark needs Java 17 or 21, but JAVA_HOME is" in said
        assert "install one" in said
