"""The documentation of settings says what the settings are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec import structs

from accord.config import Config, parse
from accord.config.reader import is_named
from accord.config.reference import example_toml, is_section, markdown, renewed, sections
from accord.config.settings import AnonymousSettings

DOCUMENT = Path(__file__).parents[2] / "docs" / "CONFIGURATION.md"
WITH_FILES = [
    DOCUMENT,
    *(DOCUMENT.parent / f"{name}.md" for name in ("NETWORK", "PERSISTENT", "SECURITY")),
]


def test_the_document_is_up_to_date() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text == renewed(text), "run: python -m accord.config.reference docs/CONFIGURATION.md"


def test_the_document_names_every_setting() -> None:
    tables = markdown()
    for name, cls, _ in sections():
        assert f"[{name}" in tables
        for field in structs.fields(cls):
            is_header = is_section(field) or (is_named(cls) and field.name == "name")
            assert f"`{field.name}`" in tables or is_header


@pytest.mark.parametrize("document", WITH_FILES, ids=lambda path: path.name)
def test_the_files_that_documents_show_are_accepted(document: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", document.read_text("utf-8"), re.DOTALL)
    assert blocks
    for block in blocks:
        parse(block)


def test_the_sample_says_the_defaults() -> None:
    assert parse(example_toml()) == Config()


def test_what_the_sample_has_in_comments_are_the_defaults() -> None:
    settings = [
        line.removeprefix("# ")
        for line in example_toml().splitlines()
        if re.match(r"# [a-z_]+ = |\[", line)
        and not re.match(
            r"# (password|channels|attributes|may|may_not|groups|max_delay_ms|paths|transport) = ",
            line,
        )
    ]
    names = sum(
        not is_section(field)
        for _, cls, is_many in sections()
        for field in structs.fields(cls)
        if not is_many
    )
    assert len(settings) == names - 2 + sum(not is_many for _, _, is_many in sections())
    config = parse("\n".join(settings))
    assert config == structs.replace(Config(), anonymous=AnonymousSettings(allowed=True))
