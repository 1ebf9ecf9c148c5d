"""Loads a configuration from a file and command-line options, checked as a whole."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import replace

from accord.config.cross_checks import problems
from accord.config.errors import ConfigError, ConfigProblem
from accord.config.reader import SettingsReader, shown
from accord.config.settings import Config
from accord.config.toml_lines import Path as KeyPath
from accord.config.toml_lines import TomlLines
from accord.core.model.errors import file_problem
from accord.core.queries.spark_settings import problem_with_master
from accord.runtime.addresses import parse_address

FILE: Final = "accord.toml"
MAX_BYTES: Final = 1_000_000

_AT_LINE: Final = re.compile(r" \(at line (\d+), column \d+\)$")


def load(path: str | os.PathLike[str] | None = None, **options: str | None) -> Config:
    """Load the configuration in the file `path`; by default `accord.toml`, if it exists here.

    Options (`mqtt`, `websocket`, `http`, …, `data`, `spark`) override the file where they are not
    None; an empty one switches off. Raises `ConfigError` with all problems of single settings or,
    if there are none, with all problems of their combination.
    """
    if path is None:
        path = FILE if Path(FILE).is_file() else None
    if path is None:
        return _finish(Config(), None, [], options)
    file = os.fspath(path)
    return parse(read_text(file), file=file, **options)


def parse(text: str, *, file: str = FILE, **options: str | None) -> Config:
    """Parse the configuration `text`, which is the content of `file`."""
    table, lines = parse_toml(text, file)
    mistakes: list[ConfigProblem] = []

    def place(path: KeyPath) -> str:
        return f"{file}:{lines.find(path)}"

    def note(path: KeyPath, problem: str) -> None:
        mistakes.append(ConfigProblem(place(path), dotted(path), problem))

    reader = SettingsReader(note, os.path.dirname(file))
    config = reader.read_struct(Config, table, ())
    if mistakes:
        raise ConfigError(mistakes)
    return _finish(cast("Config", config), place, mistakes, options)


def parse_toml(text: str, file: str) -> tuple[dict[str, Any], TomlLines]:
    """The tables in `text`, and the lines of its keys."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        return tomllib.loads(text), TomlLines(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([_syntax_problem(str(error), text, file)]) from None
    except RecursionError:
        raise ConfigError([ConfigProblem(file, "", "TOML is nested too deeply")]) from None


def _finish(
    config: Config,
    place: Callable[[KeyPath], str] | None,
    found: list[ConfigProblem],
    options: dict[str, str | None],
) -> Config:
    given = {name: text for name, text in options.items() if text is not None}
    config = _with_options(config, given, found)
    for path, problem in problems(config):
        is_option = path[-1] in given and path[0] in ("listen", "node")
        if is_option:
            found.append(ConfigProblem(f"--{path[-1]}", "", problem))
        else:
            found.append(ConfigProblem(place(path) if place else "", dotted(path), problem))
    if found:
        raise ConfigError(found)
    return config


def _with_options(config: Config, given: dict[str, str], found: list[ConfigProblem]) -> Config:
    listen = config.listen
    for name, text in given.items():
        if name == "data":
            config = replace(config, node=replace(config.node, data=text))
            continue
        if name == "spark":
            if problem := problem_with_master(text):
                found.append(ConfigProblem("--spark", "", problem))
            spark = replace(config.pipeline.spark, master=text)
            config = replace(config, pipeline=replace(config.pipeline, spark=spark))
            continue
        assert name in listen.__struct_fields__, f"no option {name}"
        address = parse_address(text) if text else None
        if text and address is None:
            found.append(ConfigProblem(f"--{name}", "", f"expected HOST:PORT, got {shown(text)}"))
        listen = replace(listen, **{name: () if address is None else (address,)})
    return replace(config, listen=listen)


def read_text(file: str) -> str:
    """The content of `file`, which must be small."""
    try:
        with open(file, "rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise ConfigError([ConfigProblem(file, "", file_problem(error))]) from None
    if len(data) > MAX_BYTES:
        raise ConfigError([ConfigProblem(file, "", f"expected at most {MAX_BYTES} bytes")])
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError([ConfigProblem(f"{file}:{line}", "", "expected UTF-8 text")]) from None


def _syntax_problem(problem: str, text: str, file: str) -> ConfigProblem:
    at = _AT_LINE.search(problem)
    line = int(at[1]) if at else text.rstrip("\n").count("\n") + 1
    what = problem[: at.start()] if at else problem
    return ConfigProblem(f"{file}:{line}", "", f"not TOML: {what[:1].lower()}{what[1:]}")


def dotted(path: KeyPath) -> str:
    """A path as it would be written in the file; positions count from 1."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            bare = part if re.fullmatch(r"[A-Za-z0-9_-]+", part) else repr(part)
            text += f".{bare}" if text else bare
    return text
