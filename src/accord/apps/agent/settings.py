"""Settings of an agent: what its program can provide, and the template of its configuration."""

from __future__ import annotations

import re
import signal
import tomllib
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from accord.core.model.channels import problem_with_channel
from accord.core.model.errors import AccordError, file_problem
from accord.core.quality.json_forms import expect_object, read_capabilities, read_couplings
from accord.core.quality.profiles import Capability, Coupling
from accord.core.quality.properties import QualityError, Value, shown

MAX_BYTES: Final = 1_000_000
RESTART: Final = "restart"
SIGNALS: Final = ("SIGHUP", "SIGUSR1", "SIGUSR2")
_FIELDS: Final = ("channel", "source", "program", "capabilities", "couplings")
_OF_PROGRAM: Final = ("template", "config", "apply", "stop_s")
_BLANK: Final = re.compile(r"\{\{\s*([A-Za-z][A-Za-z0-9_.-]*?)(\.period_ms|\.period_s)?\s*\}\}")


class AgentError(AccordError):
    """A problem in the agent's settings: its location, and what was expected."""

    def __init__(self, place: str, problem: str) -> None:
        self.place = place
        self.problem = problem
        super().__init__(f"{place}: {problem}")


class AgentSettings(Struct, frozen=True, kw_only=True):
    """Settings of an agent; `apply` is a signal, or 0 to restart the program with each change."""

    channel: str
    source: str | None
    template: str  # with {{placeholders}}
    config: Path
    apply: int
    stop_s: float
    capabilities: tuple[Capability, ...]
    couplings: tuple[Coupling, ...]


def read_settings(file: Path) -> AgentSettings:
    """Read the settings; paths are relative to the file's directory.

    Raises AgentError for the first problem.
    """
    table = _toml(file)
    try:
        _check_names(table, _FIELDS, "")
        program = expect_object(table.get("program"), "program")
        _check_names(program, _OF_PROGRAM, "program")
        channel = _text(table, "channel")
        if problem := problem_with_channel(channel):
            raise QualityError("channel", problem)
        capabilities = read_capabilities(expect_object(table.get("capabilities"), "capabilities"))
        if not capabilities:
            raise QualityError("capabilities", "expected at least one")
        source = file.parent / _text(program, "template", "program.")
        config = file.parent / _text(program, "config", "program.")
        if source.resolve() == config.resolve():
            raise QualityError("program.config", "expected another file than the template")
        template = _read(source)
        _check_blanks(template, [each.property for each in capabilities])
        return AgentSettings(
            channel=channel,
            source=_text(table, "source") if "source" in table else None,
            template=template,
            config=config,
            apply=_apply(program.get("apply", RESTART)),
            stop_s=_seconds(program.get("stop_s", 5)),
            capabilities=capabilities,
            couplings=read_couplings(table.get("couplings", [])),
        )
    except QualityError as error:
        raise AgentError(f"{file}: {error.place}", error.problem) from None


def fill(template: str, values: dict[str, Value]) -> str:
    """Fill in `template`'s placeholders: `{{rate}}`, `{{rate.period_ms}}`, `{{…period_s}}`."""

    def value(found: re.Match[str]) -> str:
        chosen = values[found[1]]
        if isinstance(chosen, str):
            return chosen
        if found[2]:
            number = 1 / chosen if chosen else 0.0
            chosen = number * 1_000 if found[2] == ".period_ms" else number
        return shown(float(f"{chosen:.9g}"))

    return _BLANK.sub(value, template)


def _check_blanks(template: str, names: list[str]) -> None:
    found = {each[1] for each in _BLANK.finditer(template)}
    for name in sorted(found - set(names)):
        known = ", ".join(names)
        raise QualityError("program.template", f"{{{{{name}}}}}: expected one of {known}")
    for name in names:
        if name not in found:
            problem = f"expected {{{{{name}}}}} in it: nothing would change with advice"
            raise QualityError("program.template", problem)


def _toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(_read(file))
    except RecursionError:
        raise AgentError(str(file), "TOML is nested too deeply") from None
    except tomllib.TOMLDecodeError as error:
        raise AgentError(str(file), f"not TOML: {error}") from None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise AgentError(str(file), f"expected at most {MAX_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise AgentError(str(file), file_problem(error)) from None
    except UnicodeDecodeError:
        raise AgentError(str(file), "expected UTF-8 text") from None


def _text(table: dict[str, Any], name: str, place: str = "") -> str:
    found = table.get(name)
    if not isinstance(found, str) or not found:
        got = "nothing" if found is None else shown(found)
        raise QualityError(f"{place}{name}", f"expected a text, got {got}")
    return found


def _apply(found: object) -> int:
    if found == RESTART:
        return 0
    if isinstance(found, str) and found in SIGNALS:
        return getattr(signal, found).value  # type: ignore[no-any-return]
    problem = f"expected {RESTART} or one of {', '.join(SIGNALS)}, got {shown(found)}"
    raise QualityError("program.apply", problem)


def _seconds(found: object) -> float:
    if isinstance(found, bool) or not isinstance(found, (int, float)) or not 0 <= found <= 3_600:
        problem = f"expected seconds from 0 to 3600, got {shown(found)}"
        raise QualityError("program.stop_s", problem)
    return float(found)


def _check_names(table: dict[str, Any], expected: tuple[str, ...], place: str) -> None:
    for name in table:
        if name not in expected:
            problem = f"expected {', '.join(expected)}, got {shown(name)}"
            raise QualityError(place or "settings", problem)
