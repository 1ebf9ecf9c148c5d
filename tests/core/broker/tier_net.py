"""Brokers of both tiers that hear each other without a network: nodes in a line, and children."""

from __future__ import annotations

from collections.abc import Mapping

from tests.core.broker.dialogue import Table
from tests.core.broker.test_overlay_bridge import START_MS, Net, Node

from accord.core.broker.broker import Broker
from accord.core.broker.child_bridge import ChildBridge
from accord.core.broker.feedback import FeedbackHandler
from accord.core.broker.parent_bridge import ParentBridge
from accord.core.model.receipts import SECRET_BYTES
from accord.core.router.limits import Limits
from accord.core.tiers.child import Child
from accord.core.tiers.messages import TierOptions


class Secondary:
    def __init__(self, name: str, net: TierNet, tiers: TierOptions) -> None:
        self.name = name
        self.broker = Broker(Limits(), now_ms=START_MS, node=name, new_client_id=lambda: "auto")
        self.child = Child(name, 1_000, tiers)
        self.upwards = ParentBridge(self.broker, lambda: net.now_us, self.child)
        self.broker.bridge = self.upwards
        self.upwards.start()

    def hand_over(self) -> None:
        for event in self.child.deliveries:
            self.upwards.on_event(event)
        self.child.deliveries.clear()


class TierNet(Net):
    """`secondary` has each child's parents, the best first; what is `deaf` hears nothing.

    That is said of a child or a parent on the link between them: `("x", "a")` is x, deaf for a.
    """

    def __init__(
        self, names: str, secondary: Mapping[str, str], tiers: TierOptions | None = None
    ) -> None:
        self.secondary: dict[str, Secondary] = {}
        self.deaf: dict[tuple[str, str], bool] = {}
        self._parents = dict(secondary)
        super().__init__(names)
        for name in secondary:
            self.secondary[name] = Secondary(name, self, tiers or TierOptions())
        for node in self.nodes.values():
            node.bridge.children = ChildBridge(node.bridge, 1, lambda: self.now_us)
        for name, parents in secondary.items():
            for rank, parent in enumerate(parents):
                self.children_of(parent).parent.link_up(name, self.now_us)
                self.secondary[name].child.link_up(parent, rank, self.now_us)
        self.tables = {name: _table(each) for name, each in [*self.nodes.items()]}
        self.tables |= {name: _table(each) for name, each in self.secondary.items()}
        self.settle()

    def children_of(self, name: str) -> ChildBridge:
        found = self.nodes[name].bridge.children
        assert found is not None
        return found

    def kill(self, name: str) -> None:
        """It is gone, and all it is linked with notice."""
        del self.nodes[name]
        for node in self.nodes.values():
            node.overlay.link_down(name, self.now_us)
        for each in self.secondary.values():
            each.child.link_down(name, self.now_us)

    def leave(self, name: str) -> None:
        """A child says so, and ends."""
        each = self.secondary.pop(name)
        each.child.leave()
        self._talk(each)
        for parent in self._parents[name]:
            self.children_of(parent).parent.link_down(name, self.now_us)

    def settle(self, ms: int = 200) -> None:
        for _ in range(ms):
            super().settle(1)
            for each in self.secondary.values():
                each.broker.context.now_ms = START_MS + self.now_us // 1_000
                each.child.advance(self.now_us)
                self._talk(each)
            for node in self.nodes.values():
                if node.bridge.children is not None:
                    node.bridge.children.parent.advance(self.now_us)
        for at in getattr(self, "tables", {}).values():
            at.now_ms = at.hub.now_ms
            at.turn()

    def check_invariants(self) -> None:
        for name, node in self.nodes.items():
            node.channels.check_invariants()
            self.children_of(name).check_invariants()
            assert node.bridge.feedback_router is not None
            node.bridge.feedback_router.check_invariants()
        for each in self.secondary.values():
            each.child.check_invariants()

    def _exchange(self, node: Node) -> None:
        sends = node.overlay.sends
        sends[:] = [each for each in sends if each[0] in self.nodes]
        super()._exchange(node)

    def _talk(self, each: Secondary) -> None:
        """Both say what they have to."""
        child = each.child
        sends, child.sends = child.sends, []
        for name in self._parents[each.name]:
            if name not in self.nodes:
                continue
            parent = self.children_of(name).parent
            said = [message for to, message in sends if to == name]
            said += child.take(name, 1 << 20, self.now_us)
            if (name, each.name) not in self.deaf:
                for up in said:
                    parent.receive(each.name, up, self.now_us)
            told = [message for to, message in parent.sends if to == each.name]
            parent.sends[:] = [other for other in parent.sends if other[0] != each.name]
            told += parent.take(each.name, 1 << 20, self.now_us)
            if (each.name, name) not in self.deaf:
                for down in told:
                    child.receive(name, down, self.now_us)
        each.hand_over()


def _table(node: Node | Secondary) -> Table:
    """With real connections to clients."""
    node.broker.feedback = FeedbackHandler(node.broker, node.name.encode() * SECRET_BYTES)
    at = Table(Limits())
    at.broker, at.hub = node.broker, node.broker.context
    at.now_ms = node.broker.context.now_ms
    return at
