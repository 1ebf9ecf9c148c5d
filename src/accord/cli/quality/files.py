"""Files of expectations and profiles (XML or JSON), and of properties."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from accord.cli.errors import InputError
from accord.core.model.errors import file_problem
from accord.core.quality.properties import PropertyRegistry, QualityError
from accord.core.quality.property_files import parse_properties
from accord.core.quality.serialisation import (
    QualityDocument,
    read_json,
    read_xml,
    write_json,
    write_xml,
)

MAX_BYTES: Final = 16_000_000
FORMATS: Final = (".xml", ".json")


def read_registry(files: list[Path]) -> PropertyRegistry:
    """The built-in properties, and those that these files define."""
    registry = PropertyRegistry()
    for file in files:
        try:
            for each in parse_properties(read_text(file)):
                registry.define(each)
        except QualityError as error:
            raise InputError(f"{file}: {error.place}", error.problem) from None
    return registry


def read_stored(file: Path, registry: PropertyRegistry) -> QualityDocument:
    check_format(file)
    text = read_text(file)
    try:
        if file.suffix == ".xml":
            return read_xml(text.encode(), registry)
        return read_json(text, registry)
    except QualityError as error:
        raise InputError(f"{file}: {error.place}", error.problem) from None


def write_stored(file: Path, stored: QualityDocument) -> None:
    check_format(file)
    try:
        if file.suffix == ".xml":
            file.write_bytes(write_xml(stored).rstrip() + b"\n")
        else:
            file.write_text(write_json(stored).rstrip() + "\n")
    except QualityError as error:
        raise InputError(f"{file}: {error.place}", error.problem) from None
    except OSError as error:
        raise InputError(str(file), file_problem(error)) from None


def check_format(file: Path) -> None:
    if file.suffix not in FORMATS:
        raise InputError(str(file), f"expected a name that ends with {' or '.join(FORMATS)}")


def read_text(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise InputError(str(file), f"expected at most {MAX_BYTES} bytes")
        return data.decode()
    except OSError as error:
        raise InputError(str(file), file_problem(error)) from None
    except UnicodeDecodeError:
        raise InputError(str(file), "expected UTF-8 text") from None
