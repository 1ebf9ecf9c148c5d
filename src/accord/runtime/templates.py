"""Channel templates provided by other packages, through the entry points `accord.templates`."""

from __future__ import annotations

from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from accord.core.channels.channels import SHIPPED, Load
from accord.core.channels.template import Template
from accord.runtime.logs import get_log

log = get_log(__name__)

GROUP: Final = "accord.templates"


def installed_templates() -> dict[str, Load]:
    """Loaders by name; one that fails is logged, and its template counts as not installed."""
    return {point.name: partial(_load, point) for point in entry_points(group=GROUP)}


def find_template(name: str) -> type[Template] | None:
    """A shipped or installed template; None if there is none of that name."""
    if name in SHIPPED:
        return SHIPPED[name]
    load = installed_templates().get(name)
    return None if load is None else load()


def _load(point: EntryPoint) -> type[Template] | None:
    try:
        loaded = point.load()
    except Exception as error:  # fault isolation: importing a package may raise anything
        log.failure("template: not loaded", error, template=point.name)
        return None
    if isinstance(loaded, type) and issubclass(loaded, Template):
        return loaded
    log.warning("template: not a class of templates", template=point.name, got=str(loaded)[:80])
    return None
