"""Templates that raise exceptions: what that costs, and whom."""

from __future__ import annotations

import pytest

from accord.core.channels.channels import FAILED, PAUSE_US, SHIPPED, Channels
from accord.core.channels.template import Context, Template
from accord.core.overlay.channel_directory import ChannelDefinition
from accord.core.overlay.options import OverlayOptions
from accord.core.overlay.overlay import Overlay
from accord.core.overlay.signalling import TemplateMessage, TransitEvent

EVENT = TransitEvent("", 0, 0, (), "uav/imagery", b"pixels")


class Odd(Template):
    """Raises where it is told to."""

    fails = ""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.calls = 0
        self._try("__init__")
        context.watch("need", lambda *_: self._try("watch"))

    def _try(self, method: str) -> None:
        if method == type(self).fails:
            raise KeyError(method)

    def on_published(self, *_: object) -> None:
        self._try("published")

    def send_feedback(self, *_: object) -> None:
        self._try("feedback")

    def on_event(self, *_: object) -> None:
        self._try("carried")

    def on_message(self, *_: object) -> None:
        self._try("said")

    def advance(self, now_us: int) -> None:  # noqa: ARG002
        self.calls += 1
        self._try("advance")

    def next_due_us(self) -> int | None:
        self._try("next_due_us")
        return 0

    def has_room(self, channel: str) -> bool:  # noqa: ARG002
        self._try("has_room")
        return True

    def unconfirmed(self, channel: str) -> list[int]:  # noqa: ARG002
        self._try("unsettled")
        return []


def failing(method: str) -> type[Odd]:
    return type("OddOne", (Odd,), {"fails": method})


def a_node(
    template: type[Template], *, is_shipped: bool = False, contains: bool = True
) -> Channels:
    overlay = Overlay("a", 1, OverlayOptions(), lambda: 0.5, lambda *_: None)
    templates = {**SHIPPED, "odd": template} if is_shipped else SHIPPED
    channels = Channels(overlay, templates, {"odd": lambda: template}, isolate_faults=contains)
    assert not overlay.directory.create(ChannelDefinition(name="uav/#", template="odd"))
    overlay.link_up("b", 0)
    return channels


def use(channels: Channels) -> None:
    """All that can be asked of a template."""
    channels.channel_traits("uav/imagery")
    channels.has_room("uav/imagery")
    channels.unconfirmed("uav/imagery")
    channels.publish(EVENT, ["b"], 1)
    channels.feedback(EVENT, "b", "uav/imagery", 1)
    overlay = channels.overlay
    overlay.receive("b", TransitEvent("b", 1, 1, (), "uav/imagery", b"", template="odd"), 1)
    overlay.receive("b", TemplateMessage("odd", "uav/imagery", b""), 1)
    overlay.store.put("need", "1", b"")
    channels.next_due_us()
    channels.advance(1)


METHODS = [
    "__init__",
    "watch",
    "published",
    "feedback",
    "carried",
    "said",
    "advance",
    "next_due_us",
    "has_room",
    "unsettled",
]


@pytest.mark.parametrize("method", METHODS)
def test_somebody_else_s_template_that_fails_is_not_called_any_more(method: str) -> None:
    channels = a_node(failing(method))
    for _ in range(3):
        use(channels)
    assert [(name, str(error)) for name, error in channels.failures.take()] == [
        ("odd", f"'{method}'")
    ]
    assert channels.failures.take() == []
    assert "odd" not in channels.templates
    assert channels.channel_traits("uav/imagery").problem == (
        f"the template odd of uav/imagery failed at a: KeyError: '{method}'"
    )
    assert channels.nodes_without("odd") == ["a"]
    assert channels.next_due_us() > 0, "nothing of it is due"
    assert channels.has_room("uav/imagery"), "nobody waits for it"


def test_the_event_that_it_fails_over_is_told_to_be_lost() -> None:
    channels = a_node(failing("published"))
    for _ in range(2):
        channels.publish(EVENT, ["b"], 0)
    assert [cause for _, cause, _ in channels.overlay.drops] == [FAILED, FAILED]


@pytest.mark.parametrize("method", METHODS[2:])
def test_what_is_shipped_goes_on(method: str) -> None:
    channels = a_node(failing(method), is_shipped=True)
    for _ in range(3):
        use(channels)
    assert channels.failures.take()
    assert channels.channel_traits("uav/imagery").problem == ""
    assert channels.nodes_without("odd") == []


def test_what_fails_over_what_is_due_pauses_and_nothing_else_does() -> None:
    channels = a_node(failing("advance"), is_shipped=True)
    other = channels.serve("other", Odd)
    for now_us in range(10):
        channels.advance(now_us)
    odd = channels.templates["odd"]
    assert isinstance(odd, Odd)
    assert (odd.calls, other.calls) == (1, 10)
    channels.advance(PAUSE_US)
    assert odd.calls == 2


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("is_shipped", [True, False])
def test_in_a_simulation_it_is_raised(method: str, is_shipped: bool) -> None:
    def attempt() -> None:
        use(a_node(failing(method), is_shipped=is_shipped, contains=False))

    with pytest.raises(KeyError, match=method):
        attempt()


def test_it_is_loaded_where_somebody_asks_what_is_wrong_with_it() -> None:
    channels = a_node(failing("__init__"))
    assert channels.problem_with("odd").startswith("the template odd failed at a: KeyError")
    assert channels.problem_with("routed") == ""
    assert channels.problem_with("none") == "the template none is not installed at a"
