"""The mpyc engine on one machine."""

from __future__ import annotations

from tpmdp.engines.direct.engine import DirectEngine, Watch
from tpmdp.engines.direct.job import Parameters
from tpmdp.engines.direct.worker_process import WORKER


class MpycEngine(DirectEngine):
    """Shamir sharing among all parties, for functions other than sums too."""

    def __init__(
        self,
        function: str = "tpmdp.engines.mpyc.functions:total",
        parameters: Parameters | None = None,
        *,
        module: str = WORKER,
        on_go: Watch | None = None,
    ) -> None:
        super().__init__("mpyc", function, parameters, module=module, on_go=on_go)
