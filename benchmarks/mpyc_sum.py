"""The same sum in MPyC, as a separate program, since importing MPyC parses the command line.

python mpyc_sum.py ENTRIES -M20 --no-prss
"""

import sys
import time

import numpy as np
from mpyc.runtime import mpc


async def main() -> None:
    entries = int(sys.argv[1])
    secure = mpc.SecInt(32)
    await mpc.start()
    own = secure.array(secure.field.array((np.arange(entries) + mpc.pid).astype(object)))
    started = time.perf_counter()
    shares = mpc.input(own)
    total = shares[0]
    for share in shares[1:]:
        total = total + share
    answer = await mpc.output(total, receivers=[0])
    if mpc.pid == 0:
        parties = len(mpc.parties)
        assert int(answer[1]) == parties + parties * (parties - 1) // 2
        print("seconds", time.perf_counter() - started, flush=True)
    await mpc.shutdown()


mpc.run(main())
