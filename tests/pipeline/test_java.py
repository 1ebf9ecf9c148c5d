from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from accord.pipeline import java
from accord.pipeline.java import JavaError, find_java, read_version


def fake_java(home: Path, told: str, *, code: int = 0) -> Path:
    """Something that answers to `java -version` as Java does, on stderr."""
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(f"#!/bin/sh\necho '{told}' >&2\necho \"$@\" > {home}/asked\nexit {code}\n")
    command.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def no_bundled_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_bundled", lambda: None)


@pytest.mark.parametrize(
    ("told", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19 LTS', 21),
        ('java version "1.8.0_402"', 8),
        ('Picked up options\nopenjdk version "21.0.8" 2025-07-15', 21),
        ("what?", None),
    ],
)
def test_versions_are_read_as_java_tells_them(told: str, version: int | None) -> None:
    assert read_version(told) == version


def test_java_home_comes_first(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "21.0.8"')
    other = fake_java(tmp_path / "other", 'openjdk version "17.0.1"')
    environment = {"JAVA_HOME": str(home), "PATH": str(other / "bin")}
    assert find_java(environment, work=tmp_path) == java.Java(str(home), 21)


def test_the_one_on_the_path_is_found_behind_its_links(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java({"PATH": str(tmp_path / "bin")}, work=tmp_path)
    assert found == java.Java(str(home), 17)


def test_no_java_is_told_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(JavaError) as caught:
        find_java({"PATH": str(tmp_path)}, work=tmp_path)
    assert str(caught.value).startswith("Spark needs Java 17 or 21, but none was found; ")
    assert "apt install openjdk-17-jre-headless" in str(caught.value)
    assert "JAVA_HOME" in str(caught.value)


def test_a_wrong_java_is_named(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "old", 'java version "1.8.0_402"')
    with pytest.raises(JavaError, match=r"that of JAVA_HOME, .*/old, is Java 8; install"):
        find_java({"JAVA_HOME": str(home)}, work=tmp_path)


def test_a_java_home_without_java_is_told(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match=r"JAVA_HOME is .*, which has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path)}, work=tmp_path)


def test_a_java_that_does_not_run_is_told(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "broken", "", code=3)
    with pytest.raises(JavaError, match="does not run"):
        find_java({"JAVA_HOME": str(home)}, work=tmp_path)


def test_a_bundled_java_is_used_where_there_is_no_other_that_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundled = fake_java(tmp_path / "with 'quotes'", 'openjdk version "21.0.8"')
    monkeypatch.setattr(java, "_bundled", lambda: bundled / "bin" / "java")
    old = fake_java(tmp_path / "old", 'java version "1.8.0_402"')
    found = find_java({"PATH": str(old / "bin")}, work=tmp_path / "work")
    assert found == java.Java(str(tmp_path / "work" / "java"), 21)


def test_the_bundled_java_is_not_asked_for_modules_that_it_lacks(tmp_path: Path) -> None:
    bundled = fake_java(tmp_path / "jdk", 'openjdk version "21.0.8"')
    command = java._shim(bundled / "bin" / "java", tmp_path / "shim")
    subprocess.run(
        [command, "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "Main"], check=True
    )
    assert (bundled / "asked").read_text() == "-Xmx1g a b Main\n"
