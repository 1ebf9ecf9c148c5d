"""Store of the last retained message of each channel, searchable by filter."""

from __future__ import annotations

from typing import Final

from accord.core.router.message import Message

_LEVEL_BYTES: Final = 300


class _Branch:
    def __init__(self) -> None:
        self.children: dict[str, _Branch] = {}
        self.message: Message | None = None


class RetainedMessages:
    """Trie of retained messages by channel level, bounded in messages and bytes."""

    def __init__(self, *, messages_limit: int, bytes_limit: int) -> None:
        self.messages_limit = messages_limit
        self.bytes_limit = bytes_limit
        self.messages = 0
        self.bytes = 0
        self._root = _Branch()

    def has_room(self, message: Message) -> bool:
        known = self.get(message.channel)
        freed = 0 if known is None else cost_of(known)
        return (
            self.messages + (known is None) <= self.messages_limit
            and self.bytes + cost_of(message) - freed <= self.bytes_limit
        )

    def get(self, channel: str) -> Message | None:
        branch: _Branch | None = self._root
        for level in channel.split("/"):
            branch = None if branch is None else branch.children.get(level)
        return None if branch is None else branch.message

    def set(self, message: Message) -> None:
        branch = self._root
        for level in message.channel.split("/"):
            child = branch.children.get(level)
            if child is None:
                child = branch.children[level] = _Branch()
            branch = child
        if branch.message is None:
            self.messages += 1
        else:
            self.bytes -= cost_of(branch.message)
        self.bytes += cost_of(message)
        branch.message = message

    def remove(self, channel: str) -> bool:
        """Remove the message of `channel`; False if there was none."""
        path = [self._root]
        levels = channel.split("/")
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        found = path[-1].message
        if found is None:
            return False
        self.messages -= 1
        self.bytes -= cost_of(found)
        path[-1].message = None
        for position in range(len(levels) - 1, -1, -1):
            if path[position + 1].children or path[position + 1].message is not None:
                break
            del path[position].children[levels[position]]
        return True

    def select(self, pattern: str, *, now_ms: int) -> list[Message]:
        """Return the messages of the channels that `pattern` selects; removes expired ones."""
        branches = [self._root]
        levels = pattern.split("/")
        for position, level in enumerate(levels):
            if level == "#":
                found: list[_Branch] = []
                for branch in branches:
                    _collect(branch, found, is_top=position == 0)
                branches = found
                break
            if level == "+":
                branches = [
                    child
                    for branch in branches
                    for name, child in branch.children.items()
                    if position > 0 or not name.startswith("$")
                ]
            else:
                branches = [
                    child
                    for branch in branches
                    if (child := branch.children.get(level)) is not None
                ]
        messages = [branch.message for branch in branches if branch.message is not None]
        fresh = [message for message in messages if not 0 < message.expires_ms <= now_ms]
        if len(fresh) < len(messages):
            for message in messages:
                if 0 < message.expires_ms <= now_ms:
                    self.remove(message.channel)
        return fresh

    def all(self) -> list[Message]:
        found: list[_Branch] = []
        _collect(self._root, found, is_top=False)
        return [branch.message for branch in found if branch.message is not None]


def cost_of(message: Message) -> int:
    """Return its cost in memory, including the branches to it."""
    return message.size() + _LEVEL_BYTES * (message.channel.count("/") + 1)


def _collect(branch: _Branch, found: list[_Branch], *, is_top: bool) -> None:
    """Add `branch` and all below it; `#` at the top omits channels that start with `$`."""
    pending = [branch]
    while pending:
        current = pending.pop()
        found.append(current)
        for name, child in current.children.items():
            if not (is_top and current is branch and name.startswith("$")):
                pending.append(child)
