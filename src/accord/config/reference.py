"""Documentation of all settings, generated from the settings themselves.

`python -m accord.config.reference FILE` updates the table in a document, between its two marks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Final

from msgspec import NODEFAULT, Struct, inspect, structs

from accord.config.reader import describe_integer, is_named
from accord.config.settings import Config
from accord.core.queries.spark_settings import SparkSettings
from accord.core.router.rights import EVERYTHING, Allowed, Denied
from accord.runtime.addresses import SocketAddress

BEGIN: Final = "<!-- settings: made by python -m accord.config.reference, do not edit -->"
END: Final = "<!-- end of settings -->"

_LISTS: Final = ("publish", "subscribe", "groups", "origins", "location")
_EXAMPLES: Final = {
    "keep": """\
# [[keep]]
# channels = ["report/#", "uav/+/position"]
# attributes = { altitude_m = "float", platform = "string" }
""",
    "net.transports": """\
# [[net.transports]]
# channels = "video/#"
# transport = "udp"
""",
    "channels": """\
# [channels."uav/#"]
# max_delay_ms = 200
# paths = 2
""",
    "users": """\
# [users.ann]
# password = "$argon2id$…"    # made by: accord user hash
# may = { publish = ["uav/#", "home/%u/#"], subscribe = ["#"] }
# may_not = { subscribe = ["secret/#"] }
# groups = ["analysts"]
""",
}


def example_toml() -> str:
    """A file with every setting at its default, commented out."""
    parts = [
        "# Accord: every setting with its default. Remove the # in front of what you change.",
        '# Sizes may be written as 4096, "16 MB" or "64 MiB", durations as 90, "15min" or "24h";',
        "# paths are relative to the folder of this file.",
    ]
    for name, cls, is_many in sections():
        parts += ["", *(f"# {line}".rstrip() for line in _doc(cls).splitlines())]
        if is_many:
            parts += [f"#   {key.name}: {_description(key)}" for key in _keys(cls)]
            parts += _EXAMPLES[name].rstrip().splitlines()
            continue
        parts.append(f"[{name}]")
        for key in _keys(cls):
            parts += [f"# {_description(key)}", f"# {key.name} = {_default(key)}"]
    return "\n".join(parts) + "\n"


def markdown() -> str:
    """A table of sections with their keys."""
    return "\n".join(_markdown_lines())


def renewed(document: str) -> str:
    """`document` with the text between the marks regenerated."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}"


def sections() -> Iterator[tuple[str, type[Struct], bool]]:
    """Name and struct of each section, and whether there may be several of it."""
    yield from _sections_of(Config, "")


def _sections_of(cls: type[Struct], prefix: str) -> Iterator[tuple[str, type[Struct], bool]]:
    for field in structs.fields(cls):
        if not is_section(field):
            continue
        type_ = inspect.type_info(field.type)
        is_many = isinstance(type_, inspect.VarTupleType)
        if isinstance(type_, inspect.VarTupleType):
            type_ = type_.item_type
        assert isinstance(type_, inspect.StructType)
        yield f"{prefix}{field.name}", type_.cls, is_many
        if not is_many:
            yield from _sections_of(type_.cls, f"{prefix}{field.name}.")


def is_section(field: structs.FieldInfo) -> bool:
    """Whether the field is a table, or several, with its own description."""
    type_ = inspect.type_info(field.type)
    if isinstance(type_, inspect.VarTupleType):
        type_ = type_.item_type
    return isinstance(type_, inspect.StructType)


def _markdown_lines() -> Iterator[str]:
    yield from ("| section | purpose | keys |", "|---|---|---|")
    for name, cls, is_many in sections():
        header = f"[{name}]"
        if is_many:
            header = f"[{name}.NAME]" if is_named(cls) else f"[[{name}]]"
        purpose = _doc(cls).partition("\n")[0]
        keys = ", ".join(f"`{key.name}`" for key in _keys(cls))
        yield f"| `{header}` | {purpose} | {keys} |"
    yield ""


def _keys(cls: type[Struct]) -> list[structs.FieldInfo]:
    fields = [field for field in structs.fields(cls) if not is_section(field)]
    return fields[1:] if is_named(cls) else fields


def _doc(cls: type[Struct]) -> str:
    return cleandoc(cls.__doc__ or "").strip()


def _description(key: structs.FieldInfo) -> str:
    type_ = inspect.type_info(key.type)
    assert isinstance(type_, inspect.Metadata), f"{key.name} has no description"
    return str((type_.extra_json_schema or {})["description"])


def _default(key: structs.FieldInfo) -> str:
    default = key.default
    if default is NODEFAULT and key.default_factory is not NODEFAULT:
        default = key.default_factory()
    return _toml(key.name, default)


def _toml(name: str, value: object) -> str:
    match value:
        case None:
            return "true"  # `anonymous.allowed`, whose description states when it is not
        case bool():
            return "true" if value else "false"
        case float():
            return f"{value:g}"
        case int():
            text = describe_integer(name)[1](value) if value else "0"
            return text if text.isdigit() else f'"{text}"'
        case Denied():
            return "{}"
        case Allowed():
            assert value == EVERYTHING
            inner = (
                f"{key} = {_toml(key, getattr(value, key))}" for key in ("publish", "subscribe")
            )
            return f"{{ {', '.join(inner)} }}"
        case SparkSettings():
            return '""'
        case dict():
            assert not value
            return "{}"
        case tuple():
            items = [f'"{each}"' for each in value]
            if len(items) == 1 and isinstance(value[0], SocketAddress):
                return items[0]
            return f"[{', '.join(items)}]" if items or name in _LISTS else '""'
        case _:
            return f'"{value}"'


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(renewed(file.read_text("utf-8")), "utf-8")
