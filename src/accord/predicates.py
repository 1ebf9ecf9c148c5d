"""Predicates as a library: parse them, compare them, match events against many of them.

from accord.predicates import Event, Index, parse

index = Index()
index.add("patrol-1", parse("altitude_m > 300 AND platform = 'UAV'"), channel="uav/#")
index.match(Event(channel="uav/imagery", attributes={"altitude_m": 420, "platform": "UAV"}))
"""

from accord.core.model.document import Document
from accord.core.model.errors import EventError, PredicateError
from accord.core.model.event import Event
from accord.core.predicates.index import Index, Matches
from accord.core.predicates.predicate import EVERYTHING, Predicate, parse, parse_xpath
from accord.core.predicates.relation_index import Related, Relations
from accord.core.predicates.relations import covers, intersects

__all__ = [
    "EVERYTHING",
    "Document",
    "Event",
    "EventError",
    "Index",
    "Matches",
    "Predicate",
    "PredicateError",
    "Related",
    "Relations",
    "covers",
    "intersects",
    "parse",
    "parse_xpath",
]
