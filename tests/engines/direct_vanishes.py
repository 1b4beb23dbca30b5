"""A corrupt receiver's worker: it vanishes before it is READY, or takes the result, gives no share and vanishes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tpmdp.engines.direct import session, worker
from tpmdp.engines.direct.link import LinkKind


async def gone(self: Any, kind: LinkKind, ours: Any) -> Any:
    if kind == LinkKind.READY:
        os._exit(1)
    return await plain_swap(self, kind, ours)


def keep(self: Any, opened: Any) -> Any:
    Path(os.environ["VANISH_TO"]).write_text(" ".join(str(int(value)) for value in opened))
    os._exit(1)


plain, plain_swap = session._Session._receive, session._Session._swap


async def take_only(self: Any) -> Any:
    for link in self._network.links.values():
        link.send = lambda *_: None
    return await plain(self)


if __name__ == "__main__":
    patched: Any = session._Session
    if "VANISH_TO" in os.environ:
        patched._in_range, patched._receive = keep, take_only
    else:
        patched._swap = gone
    worker.main()
