"""Link models of a topology: common behaviour, and exceptions per link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from msgspec.structs import replace

from accord.sim.delays import Constant, Delay, Lognormal, Normal, Recorded, Uniform
from accord.sim.links import LinkModel
from accord.sim.topology import Span

Shape = Literal["constant", "uniform", "normal", "lognormal", "recorded"]


def with_delays(
    model: LinkModel, shape: Shape = "recorded", spread: float = 0.0, step_us: int = 0
) -> Callable[[Span], LinkModel]:
    """Like `model`, but with the topology's delay, if known."""

    def choose(span: Span) -> LinkModel:
        if span.delay_us is None:
            return model
        if shape == "recorded" and span.series:
            return replace(model, delay=Recorded(span.series, step_us))
        return replace(model, delay=spread_around(span.delay_us, shape, spread))

    return choose


def spread_around(delay_us: int, shape: Shape, spread: float) -> Delay:
    """Delays around `delay_us`; `spread` is the relative deviation of most."""
    if spread and shape == "uniform":
        wide_us = min(round(delay_us * spread), delay_us)
        return Uniform(delay_us - wide_us, delay_us + wide_us)
    if spread and shape == "normal":
        return Normal(delay_us, round(delay_us * spread))
    if spread and shape == "lognormal":
        return Lognormal(delay_us, spread)
    return Constant(delay_us)


def except_for(
    choose: Callable[[Span], LinkModel], changes: Mapping[tuple[str, str], dict[str, object]]
) -> Callable[[Span], LinkModel]:
    """As `choose`, but with other values for some links, whose ends may be in either order."""

    def chosen(span: Span) -> LinkModel:
        changed = changes.get((span.one, span.other)) or changes.get((span.other, span.one))
        model = choose(span)
        return replace(model, **changed) if changed else model

    return chosen
