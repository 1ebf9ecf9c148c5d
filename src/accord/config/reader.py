"""Converts TOML values to settings, and notes every problem on the way."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from ipaddress import IPv4Address
from os.path import join
from typing import Any, Final, cast

from msgspec import NODEFAULT, Struct, inspect, structs

from accord.config.errors import format_duration, format_size, parse_duration, parse_size
from accord.config.spark import read_spark
from accord.config.toml_lines import Path
from accord.core.model import former_names
from accord.core.model.channels import problem_with_filter
from accord.core.model.locations import LOCATION_EXPECTED, is_location
from accord.core.model.units import BANDWIDTHS_BPS
from accord.core.model.units import parse as parse_units
from accord.core.overlay.channel_directory import OPTION_EXPECTED, option_text
from accord.core.policy.policy import GUARANTEES
from accord.core.queries.journal_http import parse_node_address
from accord.core.queries.messages import problem_with
from accord.runtime.addresses import SocketAddress, parse_address, parse_link_address
from accord.runtime.transports.proxy import parse_proxy
from accord.runtime.transports.udp import is_group
from accord.runtime.users import problem_with_hash
from accord.runtime.websocket import parse_origin

_KINDS: Final = {
    dict: "a table",
    list: "a list",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a float",
}
MAX_SHOWN: Final = 60


class SettingsReader:
    """Reads settings;

    `report` receives each problem. If there is any, the result is meaningless.
    """

    def __init__(self, report: Callable[[Path, str], None], directory: str) -> None:
        self._report = report
        self._directory = directory
        self._readers: dict[str, Callable[[object, Path], object]] = {
            "path": self._read_path,
            "place": self._read_place,
            "addresses": self._read_addresses,
            "link addresses": self._read_link_addresses,
            "proxy": self._read_proxy,
            "group": self._read_group,
            "location": self._read_location,
            "interface": self._read_interface,
            "origins": self._read_origins,
            "filters": self._read_filters,
            "hash": self._read_hash,
            "names": self._read_names,
            "declared": self._read_declared,
            "guarantee": self._read_guarantee,
            "bandwidth": self._read_bandwidth,
            "bandwidths": self._read_bandwidths,
            "options": self._read_options,
            "nodes": self._read_nodes,
            "spark": lambda value, path: read_spark(value, path, report),
        }

    def read_struct(
        self, cls: type[Struct], table: object, path: Path, **given: object
    ) -> Struct | None:
        """Make a `cls` from `table`, from what is `given`, and from defaults for the rest."""
        if not isinstance(table, dict):
            self._report(path, f"expected a table, got {shown(table)}")
            return None
        fields = {field.name: field for field in structs.fields(cls) if field.name not in given}
        values: dict[str, object] = dict(given)
        for name, value in table.items():
            if name in fields:
                values[name] = self._read(fields[name], value, (*path, name))
            else:
                self._report((*path, name), _unknown((*path, name), list(fields)))
        missing = [name for name, field in fields.items() if is_required(field)]
        for name in missing:
            if name not in table:
                self._report((*path, name), "expected, but missing")
        return cls(**values) if all(name in values for name in missing) else None

    def _read(self, field: structs.FieldInfo, value: object, path: Path) -> object:
        type_ = inspect.type_info(field.type)
        if isinstance(type_, inspect.Metadata):
            reader = self._readers.get((type_.extra or {}).get("kind", ""))
            if reader is not None:
                return reader(value, path)
            type_ = type_.type
        return self._read_type(type_, value, path)

    def _read_type(self, type_: inspect.Type, value: object, path: Path) -> object:
        match type_:
            case inspect.StructType(cls=cls):
                return self.read_struct(cls, value, path)
            case inspect.VarTupleType(item_type=inspect.StructType(cls=cls)):
                return self._read_structs(cls, value, path)
            case inspect.DictType(value_type=inspect.FloatType() as number):
                if isinstance(value, dict):
                    items = value.items()
                    return {
                        name: self._read_number(number, each, (*path, name)) for name, each in items
                    }
                self._report(path, f"expected a table, got {shown(value)}")
            case inspect.IntType():
                return self._read_integer(type_, value, path)
            case inspect.FloatType():
                return self._read_number(type_, value, path)
            case inspect.LiteralType(values=choices):
                if value not in choices:
                    self._report(path, f"expected one of {quoted(choices)}, got {shown(value)}")
            case inspect.StrType():
                self._check_text(type_, value, path)
            case _:  # a boolean, or no value
                if not isinstance(value, bool):
                    self._report(path, f"expected true or false, got {shown(value)}")
        return value

    def _read_structs(self, cls: type[Struct], value: object, path: Path) -> tuple[object, ...]:
        """Tables in an array, or in a table that names them."""
        if is_named(cls):
            if isinstance(value, dict):
                items = value.items()
                return tuple(
                    self.read_struct(cls, each, (*path, name), name=name) for name, each in items
                )
            self._report(path, f"expected tables, such as [{path[-1]}.NAME], got {shown(value)}")
        elif isinstance(value, list):
            return tuple(
                self.read_struct(cls, each, (*path, number)) for number, each in enumerate(value)
            )
        else:
            self._report(path, f"expected tables with two brackets, [[{path[-1]}]]")
        return ()

    def _read_integer(self, type_: inspect.IntType, value: object, path: Path) -> object:
        name = str(path[-1])
        read, write, what = describe_integer(name)
        number = read(value) if isinstance(value, str) and read is not None else value
        assert type_.ge is not None
        assert type_.le is not None
        if isinstance(number, bool) or not isinstance(number, int):
            self._report(path, f"expected {what}, got {shown(value)}")
        elif not type_.ge <= number <= type_.le:
            self._report(
                path, f"expected {write(type_.ge)} to {write(type_.le)}, got {shown(value)}"
            )
        return number

    def _read_number(self, type_: inspect.FloatType, value: object, path: Path) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._report(path, f"expected a number, got {shown(value)}")
            return value
        assert type_.ge is not None
        assert type_.le is not None
        if not type_.ge <= value <= type_.le:
            self._report(path, f"expected {type_.ge:g} to {type_.le:g}, got {shown(value)}")
        return float(value)

    def _check_text(self, type_: inspect.StrType, value: object, path: Path) -> None:
        if not isinstance(value, str):
            self._report(path, f"expected a string, got {shown(value)}")
        elif type_.max_length is not None and len(value) > type_.max_length:
            self._report(path, f"expected at most {type_.max_length} characters, got {len(value)}")
        elif type_.pattern is not None and not re.search(type_.pattern, value):
            self._report(path, f"expected letters, digits and _.- only, got {shown(value)}")

    def _read_path(self, value: object, path: Path) -> object:
        """A path, relative to the directory of the file that contains it."""
        if not isinstance(value, str) or "\0" in value:
            self._report(path, f"expected the path of a file or folder, got {shown(value)}")
            return ""
        return join(self._directory, value) if value else ""

    def _read_place(self, value: object, path: Path) -> object:
        """A path, or the URI of a place on an object store."""
        is_uri = isinstance(value, str) and "://" in value
        return value if is_uri else self._read_path(value, path)

    def _read_addresses(self, value: object, path: Path) -> tuple[SocketAddress, ...]:
        return self._read_each_address(value, path, parse_address, 'HOST:PORT or "" for nowhere')

    def _read_link_addresses(self, value: object, path: Path) -> tuple[SocketAddress, ...]:
        expected = 'HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH or "" for nowhere'
        return self._read_each_address(value, path, parse_link_address, expected)

    def _read_each_address(
        self, value: object, path: Path, parse: Callable[[str], SocketAddress | None], expected: str
    ) -> tuple[SocketAddress, ...]:
        if value is False or value == "":
            return ()
        found = []
        for place, text in _each(value, path):
            address = parse(text) if isinstance(text, str) else None
            if address is None:
                self._report(place, f"expected {expected}, got {shown(text)}")
            else:
                found.append(address)
        return tuple(found)

    def _read_group(self, value: object, path: Path) -> tuple[SocketAddress, ...]:
        found = parse_address(value) if isinstance(value, str) else None
        if value == "":
            return ()
        if found is None or not is_group(found.host) or not found.port:
            expected = "an IPv4 multicast address and a port, such as 239.17.4.1:7410"
            self._report(path, f"expected {expected}, got {shown(value)}")
            return ()
        return (found,)

    def _read_location(self, value: object, path: Path) -> tuple[float, ...]:
        found = value if isinstance(value, list) else [None]
        numbers = [
            float(each)
            for each in found
            if isinstance(each, int | float) and not isinstance(each, bool)
        ]
        if value == []:
            return ()
        if len(numbers) != len(found) or len(numbers) != 2 or not is_location(*numbers):
            self._report(path, f"expected {LOCATION_EXPECTED}, got {shown(value)}")
        return tuple(numbers)

    def _read_interface(self, value: object, path: Path) -> object:
        try:
            IPv4Address(value or "0.0.0.0" if isinstance(value, str) else "")  # noqa: S104
        except ValueError:
            self._report(path, f"expected an IPv4 address of this machine, got {shown(value)}")
        return value

    def _read_proxy(self, value: object, path: Path) -> object:
        # Never shown: it may contain a password.
        if not isinstance(value, str) or (value and parse_proxy(value) is None):
            self._report(path, 'expected the URL of a proxy, such as "http://proxy:3128"')
            return ""
        return value

    def _read_filters(self, value: object, path: Path) -> tuple[str, ...]:
        found = []
        for place, text in _each(value, path):
            if not isinstance(text, str):
                self._report(place, f"expected a filter of channels, got {shown(text)}")
            elif problem := problem_with_filter(text):
                self._report(place, problem)
            elif text.startswith("$share/"):
                # It would select nothing, and in a denial it would allow what it seems to deny.
                self._report(place, f"expected a filter without $share/GROUP/, got {shown(text)}")
            else:
                found.append(text)
        return tuple(found)

    def _read_origins(self, value: object, path: Path) -> tuple[str, ...]:
        found = []
        for place, text in _each(value, path):
            origin = parse_origin(text) if isinstance(text, str) else None
            if origin is None:
                expected = '"https://HOST" or "http://HOST:PORT" without a path, "null" or "*"'
                self._report(place, f"expected {expected}, got {shown(text)}")
            else:
                found.append(origin)
        return tuple(found)

    def _read_names(self, value: object, path: Path) -> tuple[str, ...]:
        found = []
        for place, text in _each(value, path):
            if isinstance(text, str) and text and len(text) <= MAX_SHOWN and text.isprintable():
                found.append(text)
            else:
                what = f"a name of up to {MAX_SHOWN} printable characters"
                self._report(place, f"expected {what}, got {shown(text)}")
        return tuple(found)

    def _read_declared(self, value: object, path: Path) -> dict[str, str]:
        """Names of attributes with their types."""
        if not isinstance(value, dict):
            self._report(
                path, f'expected a table such as {{ speed = "float" }}, got {shown(value)}'
            )
            return {}
        for name, type_ in value.items():
            if problem := problem_with(name, type_):
                self._report((*path, name), problem)
        return value

    def _read_guarantee(self, value: object, path: Path) -> object:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and 0 <= cast("float", value) <= 1:
            return float(cast("float", value))
        if value not in GUARANTEES:
            expected = 'expected one of "none", "full", or a share from 0 to 1'
            self._report(path, f"{expected}, got {shown(value)}")
        return value

    def _read_bandwidth(self, value: object, path: Path) -> object:
        """A bandwidth as text; it is converted later."""
        bps = parse_units(value, BANDWIDTHS_BPS) if isinstance(value, str) else None
        if value != "" and not bps:
            self._report(path, f'expected a bandwidth such as "2 Mbit/s", got {shown(value)}')
        return value

    def _read_bandwidths(self, value: object, path: Path) -> object:
        if not isinstance(value, dict):
            example = '{ denver = "2 Mbit/s" }'
            self._report(path, f"expected a table such as {example}, got {shown(value)}")
            return {}
        for name, each in value.items():
            self._read_bandwidth(each, (*path, name))
        return value

    def _read_options(self, value: object, path: Path) -> dict[str, str]:
        """Options of a channel, as text."""
        if not isinstance(value, dict):
            example = "{ persistent = true }"
            self._report(path, f"expected a table such as {example}, got {shown(value)}")
            return {}
        texts = {name: option_text(each) for name, each in value.items()}
        for name, text in texts.items():
            if text is None:
                self._report((*path, name), f"{OPTION_EXPECTED}, got {shown(value[name])}")
        return {name: text for name, text in texts.items() if text is not None}

    def _read_nodes(self, value: object, path: Path) -> dict[str, str]:
        """Addresses by node; never shown: they may contain passwords."""
        if not isinstance(value, dict):
            self._report(path, 'expected a table such as { denver = "http://denver:8080" }')
            return {}
        for name, each in value.items():
            try:
                parse_node_address(each if isinstance(each, str) else "")
            except ValueError as error:
                self._report((*path, name), str(error))
        return value

    def _read_hash(self, value: object, path: Path) -> object:
        # Never shown: it may be the password itself.
        problem = (
            problem_with_hash(value)
            if isinstance(value, str)
            else "expected an argon2 hash, as `accord user hash` makes it"
        )
        if problem:
            self._report(path, problem)
        return value


def describe_integer(
    name: str,
) -> tuple[Callable[[str], int | None] | None, Callable[[int], str], str]:
    """Parser, formatter and description of an integer setting, by the unit that ends its name."""
    if name.endswith("_bytes"):
        return parse_size, format_size, 'a size, such as 4096, "16 MB" or "64 MiB"'
    if name.endswith("_s") and not name.endswith("_per_s"):
        return parse_duration, format_duration, 'a duration, such as 90, "90s", "15min" or "24h"'
    return None, str, "an integer"


def is_named(cls: type[Struct]) -> bool:
    """Whether the struct's name is the key of its table."""
    return "name" in cls.__struct_fields__ and is_required(structs.fields(cls)[0])


def is_required(field: structs.FieldInfo) -> bool:
    return field.default is NODEFAULT and field.default_factory is NODEFAULT


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return _KINDS[type(value)]
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


def quoted(choices: tuple[Any, ...]) -> str:
    return ", ".join(f'"{choice}"' for choice in choices)


def _each(value: object, path: Path) -> list[tuple[Path, object]]:
    """One value, or each of a list."""
    if isinstance(value, list):
        return [((*path, number), each) for number, each in enumerate(value)]
    return [(path, value)]


def _unknown(path: Path, known: list[str]) -> str:
    renamed = former_names.SETTINGS.get(path)
    if renamed in known:
        return f"unknown key, renamed to {renamed}"
    near = get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f"unknown key, did you mean {near[0]}?"
    return f"unknown key, expected one of {', '.join(known)}"
