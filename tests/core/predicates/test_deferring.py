from __future__ import annotations

from accord.core.model.document import MAX_REMEMBERED, Condition, Document, parse_xml
from accord.core.predicates.index import Index
from accord.core.predicates.predicate import parse_xpath
from accord.core.predicates.tree import XPath
from accord.core.predicates.xpath import INLINE_COST, MAX_COST, compile_xpath, run_xpath

ROWS = 1_000
SOURCE = b"<r>" + b"".join(b"<a><b>%d</b></a>" % n for n in range(ROWS)) + b"</r>"
QUADRATIC = "count(//a[b = //b]) = 1000"
CUBIC = "count(//a[.//b >= //a[//b > 1]/b]) >= 0"
LINEAR = "count(//a) = 1000"


def _index(*texts: str) -> Index:
    index = Index()
    for text in texts:
        index.add(text, parse_xpath(text))
    return index


def deferred(index: Index, document: Document) -> list[Condition]:
    """What has to be found out of `document` elsewhere, before an event can be matched."""
    document.defer(INLINE_COST)
    index.match_values("c", {}, document)
    return document.deferred


def test_costly_conditions_are_listed_the_cheapest_first() -> None:
    document = Document(SOURCE)
    found = deferred(_index(CUBIC, LINEAR, QUADRATIC), document)
    assert found == [(QUADRATIC, ()), (CUBIC, ())]


def test_a_small_document_has_no_costly_conditions() -> None:
    document = Document(b"<r><a><b>1</b></a></r>")
    assert deferred(_index(CUBIC, LINEAR, QUADRATIC), document) == []


def test_what_the_index_rules_out_is_not_listed() -> None:
    document = Document(SOURCE)
    index = _index(f"/r/missing = 1 and {QUADRATIC}", f"/r/a/b = 7 and {QUADRATIC}")
    assert deferred(index, document) == [(f"/r/a/b = 7 and {QUADRATIC}", ())]
    other = Index()
    other.add("x", parse_xpath(QUADRATIC), channel="other")
    assert deferred(other, Document(SOURCE)) == []


def test_matching_is_complete_once_the_answers_are_remembered() -> None:
    document = Document(SOURCE)
    index = _index(CUBIC, LINEAR, QUADRATIC)
    waiting = deferred(index, document)
    assert index.match_values("c", {}, document).keys == [LINEAR]
    for condition in waiting:
        document.remember(condition, condition[0] == QUADRATIC)
    assert document.deferred == []
    assert set(index.match_values("c", {}, document).keys) == {LINEAR, QUADRATIC}
    assert document.deferred == []


def test_an_answer_that_nobody_could_give_stays_unknown() -> None:
    document = Document(SOURCE)
    index = _index(QUADRATIC, f"not({QUADRATIC})")
    for condition in deferred(index, document):
        document.remember(condition, None)
    assert index.match_values("c", {}, document).keys == []
    assert document.deferred == []


def test_without_deferring_the_static_bound_decides() -> None:
    document = Document(SOURCE)
    engine = compile_xpath(XPath(CUBIC))
    assert engine.cost(document) > MAX_COST
    assert engine.evaluate(document) is None
    assert document.deferred == []


def test_an_engine_is_asked_once_per_document() -> None:
    document = Document(SOURCE)
    engine = compile_xpath(XPath(LINEAR))
    assert engine.evaluate(document) is True
    document.remember((LINEAR, ()), False)
    assert engine.evaluate(document) is False


def test_namespaces_are_part_of_a_condition() -> None:
    document = Document(b"<r xmlns='urn:r'><a/><a/></r>")
    ours = parse_xpath("count(//n:a) = 2", {"n": "urn:r"})
    theirs = parse_xpath("count(//n:a) = 2", {"n": "urn:other"})
    assert ours.evaluate({}, document) is True
    assert theirs.evaluate({}, document) is False


def test_without_bounds_every_condition_has_an_answer() -> None:
    root = parse_xml(b"<r xmlns='urn:r'><a/><a/></r>")
    assert run_xpath(root, ("count(//n:a) = 2", (("n", "urn:r"),))) is True
    assert run_xpath(root, ("/a", ())) is False
    assert run_xpath(root, ("/a[", ())) is None
    assert run_xpath(root, ("//x:a", ())) is None


def test_what_a_document_remembers_is_bounded_but_for_what_was_deferred() -> None:
    document = Document(SOURCE)
    (waiting,) = deferred(_index(QUADRATIC), document)
    for number in range(MAX_REMEMBERED + 10):
        document.remember((f"{number} = 1", ()), False)
    document.remember(waiting, True)
    assert document.knows(waiting)
    assert document.knows((f"{MAX_REMEMBERED - 1} = 1", ()))
    assert not document.knows((f"{MAX_REMEMBERED} = 1", ()))
