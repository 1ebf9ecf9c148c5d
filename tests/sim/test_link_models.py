from __future__ import annotations

from accord.sim.delays import Constant, Lognormal, Normal, Recorded, Uniform
from accord.sim.links import LinkModel, except_for, spread_around, with_delays
from accord.sim.topology import Span

MODEL = LinkModel(delay=Constant(7), loss=0.1)


def test_a_topologys_delays_come_first() -> None:
    choose = with_delays(MODEL)
    assert choose(Span("a", "b")) == MODEL
    assert choose(Span("a", "b", 500)) == LinkModel(delay=Constant(500), loss=0.1)
    assert choose(Span("a", "b", 500, (400, 600))).delay == Recorded((400, 600))
    assert with_delays(MODEL, "constant")(Span("a", "b", 500, (400, 600))).delay == Constant(500)


def test_shapes_are_around_the_delay() -> None:
    assert spread_around(1_000, "uniform", 0.5) == Uniform(500, 1_500)
    assert spread_around(1_000, "uniform", 2.0) == Uniform(0, 2_000)
    assert spread_around(1_000, "normal", 0.1) == Normal(1_000, 100)
    assert spread_around(1_000, "lognormal", 0.4) == Lognormal(1_000, 0.4)
    assert spread_around(1_000, "lognormal", 0.0) == Constant(1_000)


def test_some_links_are_different_whichever_end_is_named_first() -> None:
    choose = except_for(with_delays(MODEL), {("b", "a"): {"loss": 0.5}})
    assert choose(Span("a", "b")).loss == 0.5
    assert choose(Span("a", "c")).loss == 0.1
