from __future__ import annotations

import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

import accord


@pytest.mark.parametrize("module", ["accord", "accord.predicates", "accord.cli.main"])
def test_importing_does_not_load_what_it_does_not_need(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = set(result.stdout.split())
    assert not loaded & {"pyspark", "pandas", "pyarrow", "elementpath"}


def test_no_class_inherits_from_a_compiled_one_that_forbids_it() -> None:
    """Compiled code refuses that only when an instance is made."""
    modules = [
        import_module(each.name)
        for each in pkgutil.walk_packages(accord.__path__, "accord.")
        if not each.name.endswith("__main__")
    ]
    assert len(modules) > 100
    refused = []
    for module in modules:
        for name, class_ in _own_classes(module.__name__, vars(module)):
            if not any(map(_is_compiled, class_.__mro__[1:])) or _is_compiled(class_):
                continue
            try:
                make: Any = class_.__new__
                make(class_)
            except TypeError as error:
                refused.append(f"{module.__name__}.{name}: {error}")
    assert not refused


def _own_classes(module: str, names: dict[str, object]) -> Iterator[tuple[str, type]]:
    for name, value in names.items():
        is_own = inspect.isclass(value) and value.__module__ == module
        if is_own and not getattr(value, "_is_protocol", False):
            assert isinstance(value, type)
            yield name, value


def _is_compiled(class_: type) -> bool:
    module = sys.modules.get(class_.__module__)
    if not class_.__module__.startswith("accord.") or module is None:
        return False
    return not str(module.__file__).endswith(".py")
