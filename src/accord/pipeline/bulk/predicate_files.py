"""Predicates from a file: JSON lines or, if its name ends in .csv, a table with a header.

    {"name": "hot", "channel": "demo/#", "where": "temperature_c > 30", "importance": 5}

Only `name` is required; the other fields are `channel` (default: all), `where`, `xpath` and
`importance`. Problems name the file and the line.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from accord.core.model.errors import InputError, file_problem
from accord.pipeline.bulk.predicate_compiler import (
    PredicateSet,
    Registered,
    RegistrationError,
    compile_set,
)
from accord.pipeline.bulk.predicate_folder import PredicateFolder

_MAX_LINE: Final = 1 << 20  # characters


class PredicateLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    channel: str = "#"
    where: str = ""
    xpath: str = ""
    importance: int = 0


def open_predicates(path: Path) -> PredicateSet | PredicateFolder:
    """The predicates of a file, or of a folder in which versions of a set are published."""
    return PredicateFolder(path) if path.is_dir() else read_predicates(path)


def read_predicates(path: Path) -> PredicateSet:
    """Compile the predicates of a file; InputError at the first problem."""
    lines: dict[str, int] = {}
    registered: list[Registered] = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            read = _read_csv if path.suffix.lower() == ".csv" else _read_json
            for line, found in read(file, path):
                if found.name in lines:
                    problem = f"expected another name, {found.name!r} is in line"
                    raise InputError(f"{path}:{line}", f"{problem} {lines[found.name]}")
                lines[found.name] = line
                registered.append(
                    Registered(
                        key=found.name,
                        channel=found.channel,
                        where=found.where,
                        xpath=found.xpath,
                        importance=found.importance,
                    )
                )
    except UnicodeDecodeError:
        raise InputError(str(path), "expected text in UTF-8") from None
    except OSError as error:
        raise InputError(str(path), file_problem(error)) from None
    try:
        return compile_set(registered)
    except RegistrationError as error:
        raise InputError(f"{path}:{lines[error.key]}", str(error)) from None


def _read_json(file: IO[str], path: Path) -> Iterator[tuple[int, PredicateLine]]:
    number = 0
    while text := file.readline(_MAX_LINE + 1):
        number += 1
        if len(text) > _MAX_LINE:
            raise InputError(f"{path}:{number}", f"expected at most {_MAX_LINE} characters a line")
        if text.strip():
            try:
                yield number, msgspec.json.decode(text, type=PredicateLine)
            except msgspec.DecodeError as error:
                problem = f'expected an object such as {{"name": "…", "where": "…"}}: {error}'
                raise InputError(f"{path}:{number}", problem) from None


def _read_csv(file: IO[str], path: Path) -> Iterator[tuple[int, PredicateLine]]:
    rows = csv.reader(file, strict=True)
    try:
        header = next(rows, [])
        unknown = [name for name in header if name not in PredicateLine.__struct_fields__]
        if unknown or "name" not in header:
            known = ", ".join(PredicateLine.__struct_fields__)
            got = ", ".join(header) or "nothing"
            raise InputError(f"{path}:1", f"expected columns among {known}, got {got}")
        for row in rows:
            if row and len(row) != len(header):
                problem = f"expected {len(header)} fields as in the header, got {len(row)}"
                raise InputError(f"{path}:{rows.line_num}", problem)
            if row:
                fields = {name: text for name, text in zip(header, row, strict=True) if text}
                yield rows.line_num, msgspec.convert(fields, PredicateLine, strict=False)
    except (csv.Error, msgspec.ValidationError) as error:
        raise InputError(f"{path}:{rows.line_num}", str(error)) from None
