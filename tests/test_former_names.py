"""Former names of the interfaces for templates and simulations."""

from __future__ import annotations

import pytest

import accord.sim
import accord.templates
from accord.sim import SimSubscription
from accord.templates import COMPLETE, DuplicateFilter, Template


def test_a_former_name_still_works_and_warns() -> None:
    with pytest.warns(DeprecationWarning, match="is now COMPLETE"):
        assert accord.templates.ALL is COMPLETE
    with pytest.warns(DeprecationWarning, match="is now DuplicateFilter"):
        assert accord.templates.Duplicates is DuplicateFilter
    with pytest.warns(DeprecationWarning, match="is now SimSubscription"):
        assert accord.sim.Wish is SimSubscription


def test_a_name_that_never_was_is_none() -> None:
    with pytest.raises(AttributeError, match="Anything"):
        _ = accord.templates.Anything


def test_a_method_by_its_former_name_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Mine\.said is now called on_message"):
        type("Mine", (Template,), {"said": lambda *_: None})
