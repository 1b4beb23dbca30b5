"""Messages to the nodes of a Flower grid and their replies, with at most one unanswered message per node.

Flower's simulation may run two messages to one node in two processes at once. Each process gets a copy of the node's
state and writes all of it back, so the later one would erase what the other has remembered, such as a key. A node that
has not answered is therefore not asked again, not even by a later session, until it answers or its message expires.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flwr.app import Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from tpmdp.errors import shown
from tpmdp.flower.wire import RECORD

LATE: Final = "does not answer in time"
ADD_MOD: Final = "give its app the mod, first in the list: ClientApp(mods=[private_mod()])"
_PAUSE_S: Final = (0.02, 0.5)  # between two pulls: shortest, longest
_PAUSE_SHARE: Final = 0.02  # of the time waited so far
_GRACE_S: Final = 30.0


@dataclass(eq=False)
class _Unanswered:
    """A message that was sent; its reply goes to `replies`."""

    node: int
    expires: float
    replies: dict[int, Message]


class Nodes:
    """The nodes of a grid. All messages have one type; `expire` lets a node skip messages that nobody waits for."""

    def __init__(self, grid: Grid, message_type: str, expire: bool = True) -> None:
        self._grid, self._message_type, self._expire = grid, message_type, expire
        self._unanswered: dict[str, _Unanswered] = {}  # by message id
        self._posted: dict[int, Message] = {}
        self._with_mod: set[int] = set()  # nodes that have answered as tpmdp's mod does

    def ids(self) -> list[int]:
        """The nodes that are online."""
        return list(self._grid.get_node_ids())

    @property
    def busy(self) -> set[int]:
        """The nodes that have not answered yet."""
        return {message.node for message in self._unanswered.values()}

    def exchange(
        self, contents: Mapping[int, RecordDict], timeout_s: float
    ) -> tuple[dict[int, RecordDict], dict[int, str]]:
        """Send each node its content and wait: the replies, and why the other nodes have none.

        Unlike `Grid.send_and_receive`, this gives the reasons, and checks for replies more often.
        """
        began = time.monotonic()
        ttl_s = self._ttl_s(timeout_s)
        unsent, replies, failed = dict(contents), dict[int, Message](), dict[int, str]()
        self._pull()
        while len(replies) + len(failed) < len(contents):
            busy = self.busy
            free = {node: content for node, content in unsent.items() if node not in busy}
            if not self._send(free, ttl_s, replies):
                failed |= dict.fromkeys(free, "could not be sent: look for a limit on the size of messages")
            unsent = {node: content for node, content in unsent.items() if node in busy}
            self._pull()
            passed = time.monotonic() - began
            if passed >= timeout_s:
                break
            if len(replies) + len(failed) < len(contents):
                time.sleep(min(max(_PAUSE_S[0], _PAUSE_SHARE * passed), _PAUSE_S[1]))
        answers = {node: reply.content for node, reply in replies.items() if not reply.has_error()}
        self._with_mod |= {node for node, content in answers.items() if RECORD in content}
        for node, reply in replies.items():
            if reply.has_error():
                failed[node] = _failure(reply.error, has_mod=node in self._with_mod)
        late = dict.fromkeys(contents.keys() - answers.keys() - failed.keys(), LATE)
        return answers, failed | late

    def post(self, contents: Mapping[int, RecordDict], timeout_s: float) -> None:
        """Send without waiting; nodes that are busy are left out. After `timeout_s` a node may be asked again."""
        busy = self.busy
        free = {node: content for node, content in contents.items() if node not in busy}
        self._send(free, self._ttl_s(timeout_s), self._posted)

    def posted(self) -> dict[int, RecordDict]:
        """The replies to posted messages that have come since the last call."""
        self._pull()
        posted = {node: reply.content for node, reply in self._posted.items() if not reply.has_error()}
        self._posted.clear()
        return posted

    def _ttl_s(self, timeout_s: float) -> float | None:
        return max(1.0, timeout_s) + _GRACE_S if self._expire else None

    def _send(self, contents: Mapping[int, RecordDict], ttl_s: float | None, replies: dict[int, Message]) -> bool:
        if not contents:
            return True
        kind = self._message_type
        messages = [Message(content, node, kind, ttl=ttl_s) for node, content in contents.items()]
        names = list(self._grid.push_messages(messages))
        if len(names) != len(messages):
            return False
        expires = math.inf if ttl_s is None else time.monotonic() + ttl_s
        for name, node in zip(names, contents, strict=True):
            self._unanswered[name] = _Unanswered(node, expires, replies)
        return True

    def _pull(self) -> None:
        if not self._unanswered:
            return
        for reply in self._grid.pull_messages(list(self._unanswered)):  # an error may come from the SuperLink
            message = self._unanswered.pop(reply.metadata.reply_to_message_id, None)
            if message is not None:
                message.replies[message.node] = reply
        now = time.monotonic()
        self._unanswered = {name: message for name, message in self._unanswered.items() if message.expires > now}


def _failure(error: Error, has_mod: bool) -> str:
    """Why a node failed. The mod answers every message itself, so an app that raises does so outside of it."""
    lines = (error.reason or "").strip().splitlines() or ["failed without a reason"]
    last = lines[-1].rpartition("Exception ClientAppException occurred. Message: ")[2]  # of a traceback in a simulation
    reason = shown(last, 200)
    if error.code != ErrorCode.CLIENT_APP_RAISED_EXCEPTION:
        return reason
    if has_mod:
        return f"its app failed outside tpmdp's mod, perhaps in a mod before it ({reason}): put private_mod() first"
    return f"its app failed before tpmdp's mod could answer ({reason}): {ADD_MOD}"
