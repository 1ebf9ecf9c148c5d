"""The committed console: built from its sources, complete, small, nothing inline or external."""

from __future__ import annotations

import gzip
import re
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
STATIC: Final = ROOT / "src" / "accord" / "console" / "static"
FIRST_LOAD: Final = 250_000  # bytes, compressed


def _script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    sys.modules.pop(name, None)
    return import_module(name)


def _page() -> str:
    return (STATIC / "index.html").read_text()


def _compressed(path: Path) -> bytes:
    packed = path.with_name(f"{path.name}.gz")
    return packed.read_bytes() if packed.exists() else gzip.compress(path.read_bytes())


def test_is_built_from_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = _script("console_digest", monkeypatch)
    assert (STATIC / "sources.sha256").read_text() == digest.digest(), "run `make console`"


def test_types_are_those_of_the_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    types = _script("console_types", monkeypatch)
    assert types.DIGEST.read_text() == types.digest(), "run `make console`"


def test_page_has_nothing_inline_and_nothing_external() -> None:
    page = _page()
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|//", page.replace("<!doctype", ""))
    assert all(
        re.search(r'\ssrc="/assets/[^"]+"', tag) and not body.strip()
        for tag, body in re.findall(r"(<script[^>]*>)(.*?)</script>", page, re.DOTALL)
    )
    for name in re.findall(r'(?:src|href)="(/[^"]+)"', page):
        assert name == "/docs" or (STATIC / name[1:]).is_file(), name


def test_scripts_neither_evaluate_text_nor_set_inline_styles() -> None:
    for path in STATIC.rglob("*.js"):
        text = path.read_text()
        assert "eval(" not in text.replace("Function.prototype", ""), path.name
        assert not re.search(r"<[a-z]+[^>`]*\sstyle=\"", text), path.name


def test_compressed_variants_have_the_same_content() -> None:
    packed = list(STATIC.rglob("*.gz"))
    assert packed
    for path in packed:
        assert gzip.decompress(path.read_bytes()) == path.with_suffix("").read_bytes(), path.name


def test_first_load_is_small() -> None:
    """All scripts and styles of the shell and of Overview, without what is loaded later."""
    names = set(re.findall(r'(?:src|href)="/(assets/[^"]+)"', _page()))
    names |= {f"assets/{path.name}" for path in (STATIC / "assets").glob("Overview-*.[jc]*s")}
    pending = list(names)
    while pending:  # static imports; those that are awaited come later
        text = (STATIC / pending.pop()).read_text()
        for found in re.findall(r'(?:from|import)\s*"\./([^"]+)"', text):
            if (name := f"assets/{found}") not in names:
                names.add(name)
                pending.append(name)
    size = len(_compressed(STATIC / "index.html"))
    size += sum(len(_compressed(STATIC / name)) for name in names)
    assert size <= FIRST_LOAD


def test_licences_of_what_is_in_it_are_shipped() -> None:
    text = (STATIC / "licences.txt").read_text()
    assert all(f"== {name} " in text for name in ("svelte", "uplot"))
