"""The paper's figures 9 and 10, drawn from what the experiment found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE: Final = (8.4, 3.4)  # in inches
_COLOURS: Final = {"none": "#dc2626", "50 %": "#d97706", "full": "#2563eb"}
_FIGURES: Final = {
    "admission-figure-9": (("discarded", "events discarded"), ("refused", "subscriptions refused")),
    "admission-figure-10": (("cpu", "CPU used"), ("bandwidth", "bandwidth used")),
}
_STYLE: Final[dict[Any, Any]] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "admission",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e2e8f0",
    "legend.frameon": False,
}


class Found(Protocol):
    """One point of a plot."""

    @property
    def guarantee(self) -> str: ...

    @property
    def subscriptions(self) -> int: ...


def draw(found: Sequence[Found], folder: Path) -> list[Path]:
    """Both figures, as SVG."""
    # Only here: it takes a while to load.
    import matplotlib as mpl  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    paths: list[Path] = []
    with mpl.rc_context(_STYLE):
        for name, parts in _FIGURES.items():
            figure = Figure(figsize=_SIZE, layout="constrained")
            for place, (field, label) in enumerate(parts, start=1):
                _draw(figure.add_subplot(1, 2, place), found, field, label)
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], format="svg", metadata={"Date": None})
    return paths


def _draw(axes: Axes, found: Sequence[Found], field: str, label: str) -> None:
    for name, colour in _COLOURS.items():
        points = sorted(
            (each.subscriptions, 100 * float(getattr(each, field)))
            for each in found
            if each.guarantee == name
        )
        axes.plot(*zip(*points, strict=True), color=colour, marker="o", markersize=3, label=name)
    axes.set_xlabel("subscriptions")
    axes.set_ylabel(f"{label}, %")
    axes.set_ylim(bottom=0)
    axes.legend(title="guarantee")
