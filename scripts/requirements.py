"""Prints what pyproject.toml asks for, without the package: `requirements.py dependencies dev`."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(groups: list[str]) -> None:
    file = Path(__file__).parents[1] / "pyproject.toml"
    project = tomllib.loads(file.read_text())["project"]
    known = {"dependencies": project["dependencies"], **project["optional-dependencies"]}
    for group in groups:
        # pip gets each as one argument: nothing may stand between a name and its marker.
        print(*(requirement.replace(" ", "") for requirement in known[group]), sep="\n")


main(sys.argv[1:])
