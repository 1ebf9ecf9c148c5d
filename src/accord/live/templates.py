"""Templates of channels that other packages bring along, by the entry points `accord.templates`."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from accord.core.channels.template import Template
from accord.live.logs import get_log

log = get_log(__name__)

GROUP: Final = "accord.templates"


def installed_templates() -> dict[str, type[Template]]:
    """By name; one that can't be loaded is told and left out."""
    found: dict[str, type[Template]] = {}
    for point in entry_points(group=GROUP):
        try:
            loaded = point.load()
        except Exception as error:  # whatever a package does when it is imported
            log.failure("a template can't be loaded", error, template=point.name)
            continue
        if isinstance(loaded, type) and issubclass(loaded, Template):
            found[point.name] = loaded
        else:
            log.warning("expected a class of templates", template=point.name, got=str(loaded)[:80])
    return found
