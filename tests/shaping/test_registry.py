from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.pictures import decoded, surveillance_jpeg
from tests.plug_ins import install_shapers

from accord.core.scheduling.shaping_decision import ShapingTarget
from accord.shaping import registry
from accord.shaping.content import Content, ShapingError

TEXT = Content(b"some text, which is no image", "text/plain")


@pytest.fixture
def _plug_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_shapers(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    _forget()
    yield
    _forget()
    sys.modules.pop("odd_shapers", None)


def _forget() -> None:
    registry.find.cache_clear()
    registry._plug_ins.cache_clear()


def test_three_shapers_come_with_accord() -> None:
    assert {"scaling", "decimation", "trimming"} <= set(registry.names())


def test_content_is_shaped_by_the_shaper_that_is_named() -> None:
    image = registry.shape(Content(surveillance_jpeg()), ShapingTarget("scaling", 16_384))
    assert len(image.payload) <= 16_384
    assert decoded(image.payload).format == "JPEG"
    series = registry.shape(Content(b"[1, 2, 3, 4, 5, 6]"), ShapingTarget("decimation", 10))
    assert series.payload == b"[1,2,4,6]"
    track = Content(b"", "", (("a", "1"), ("b", "2")))
    assert registry.shape(track, ShapingTarget("trimming", argument="b")).properties == (
        ("b", "2"),
    )


def test_content_of_another_kind_is_a_clear_error() -> None:
    assert not registry.accepts("scaling", "text/plain", TEXT.payload)
    with pytest.raises(ShapingError, match="scaling can't shape text/plain"):
        registry.shape(TEXT, ShapingTarget("scaling", 10))
    with pytest.raises(ShapingError, match="scaling can't shape content without a known type"):
        registry.shape(Content(b"text"), ShapingTarget("scaling", 10))


def test_an_unknown_shaper_is_a_clear_error() -> None:
    assert not registry.accepts("folding", "", b"")
    with pytest.raises(ShapingError, match=r"no shaper 'folding', expected one of .*decimation"):
        registry.shape(TEXT, ShapingTarget("folding", 10))


@pytest.mark.usefixtures("_plug_ins")
def test_plug_ins_are_found_by_entry_point() -> None:
    assert {"halving", "scaling"} <= set(registry.names())
    assert registry.accepts("halving", "", b"")
    shaped = registry.shape(TEXT, ShapingTarget("halving", 10))
    assert TEXT.payload.startswith(shaped.payload)
    assert len(shaped.payload) == len(TEXT.payload) // 2


@pytest.mark.usefixtures("_plug_ins")
def test_what_comes_with_accord_can_not_be_replaced() -> None:
    assert registry.shape(Content(surveillance_jpeg()), ShapingTarget("scaling", 16_384)).payload


@pytest.mark.usefixtures("_plug_ins")
def test_a_result_that_is_no_gain_is_not_used() -> None:
    assert registry.shape(TEXT, ShapingTarget("growing", 10)) is TEXT


@pytest.mark.usefixtures("_plug_ins")
@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("raising", r"raising failed: KeyError\('beyond repair'\)"),
        ("wrong", "wrong gave no content"),
        ("picky", r"picky failed: TypeError\('no idea'\)"),
        ("unmade", "shaper unmade can't be loaded"),
        ("missing", "shaper missing can't be loaded"),
    ],
)
def test_a_mistake_in_a_plug_in_is_a_shaping_error(name: str, problem: str) -> None:
    with pytest.raises(ShapingError, match=problem):
        registry.shape(TEXT, ShapingTarget(name, 10))


@pytest.mark.usefixtures("_plug_ins")
def test_a_plug_in_that_can_not_tell_accepts_nothing() -> None:
    assert not registry.accepts("picky", "", b"")


def test_asking_whether_content_is_accepted_loads_no_image_library() -> None:
    code = (
        "import sys; from accord.shaping import registry, sniffing\n"
        "assert registry.accepts('scaling', '', b'\\xff\\xd8\\xff')\n"
        "sys.exit('PIL' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
