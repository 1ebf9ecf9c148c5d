"""Predicates: check one before it is used, with the place of a problem in its text."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from msgspec import Meta, Struct

from accord.core.model.channels import problem_with_filter
from accord.core.model.errors import PredicateError
from accord.operations.operation import Asker, Request, RequestError, Right, operation
from accord.operations.ports import NodePorts

Text = Annotated[str, Meta(max_length=65_535)]


class CheckedPredicate(Struct, frozen=True, kw_only=True):
    """A valid predicate in canonical form, and what it reads of an event.

    `selects` is `all` or `none` where that does not depend on the event.
    """

    canonical: str
    attributes: tuple[str, ...]
    paths: tuple[str, ...]
    selects: Literal["some", "all", "none"]


class CheckPredicate(Request[CheckedPredicate], frozen=True, kw_only=True, tag="check"):
    where: Annotated[
        Text, Meta(description="A condition on attributes.", examples=["load_mw > 4"])
    ] = ""
    xpath: Annotated[Text, Meta(description="Or an XPath condition on the XML metadata.")] = ""
    channel: Annotated[Text, Meta(description="A filter it is to be used with.")] = ""


@operation("predicates", "POST /predicates/check", Right.ANY)
async def check_predicate(_node: NodePorts, ask: CheckPredicate, asker: Asker) -> CheckedPredicate:
    """Check a predicate, and the filter it is for.

    A problem says where: `at` is a position in the text, counted from 0; `expected` is what was
    expected there, `repair` the whole predicate as it may have been meant.
    """
    if ask.where and ask.xpath:
        raise RequestError(400, "expected either where or xpath, got both", "xpath")
    if ask.channel:
        if problem := problem_with_filter(ask.channel):
            raise RequestError(400, problem, "channel")
        if not asker.rights.may_subscribe(ask.channel):
            raise RequestError(403, "you may not subscribe to these channels", "channel")
    return await asyncio.to_thread(_checked, ask)  # a long one takes a while


def _checked(ask: CheckPredicate) -> CheckedPredicate:
    from accord.core.predicates.predicate import parse, parse_xpath  # noqa: PLC0415 (it is slow)
    from accord.core.predicates.repair import suggest_repair  # noqa: PLC0415
    from accord.core.predicates.terms import to_terms  # noqa: PLC0415
    from accord.core.predicates.tree import TRUE, Attribute, PathTest, walk  # noqa: PLC0415

    try:
        predicate = parse_xpath(ask.xpath) if ask.xpath else parse(ask.where)
    except PredicateError as error:
        place, repair = ("xpath", "") if ask.xpath else ("where", suggest_repair(ask.where))
        raise predicate_problem(error, place, repair) from None
    tree = predicate.tree
    nodes = list(walk(tree))
    return CheckedPredicate(
        canonical=str(predicate),
        attributes=tuple(sorted({each.name for each in nodes if isinstance(each, Attribute)})),
        paths=tuple(sorted({each.path for each in nodes if isinstance(each, PathTest)})),
        selects="all" if tree == TRUE else "some" if to_terms(tree) else "none",
    )


def predicate_problem(error: PredicateError, place: str, repair: str = "") -> RequestError:
    """The refusal of a request with an invalid predicate."""
    problem = RequestError(400, error.summary, place)
    problem.at = error.position
    problem.expected = error.expected
    problem.repair = repair
    return problem
