"""The same inner products in MPyC, as a separate program, since importing MPyC parses the command line.

python mpyc_gram.py RECORDS COLUMNS -M5 --no-prss -L33 -K66
"""

import sys
import time

import numpy as np
from mpyc.runtime import mpc


async def main() -> None:
    records, columns = int(sys.argv[1]), int(sys.argv[2])
    parties = len(mpc.parties)
    held = [len(range(party, columns, parties)) for party in range(parties)]
    secure = mpc.SecInt()
    await mpc.start()
    started = time.perf_counter()
    tables = []
    for party, count in enumerate(held):
        if count:
            own = np.random.default_rng(party).integers(-100, 100, (count, records)).astype(object)
            tables.append(mpc.input(secure.array(secure.field.array(own)), senders=party))
    products = []
    for first, a in enumerate(tables):
        products += [mpc.np_reshape(mpc.np_matmul(a, mpc.np_transpose(b)), -1) for b in tables[first + 1 :]]
    answer = await mpc.output(mpc.np_concatenate(products), receivers=[0])
    sent = sum(peer.protocol.nbytes_sent for peer in mpc.parties if peer.pid != mpc.pid)
    await mpc.shutdown()
    if mpc.pid == 0:
        assert len(answer) > 0
        print("seconds", time.perf_counter() - started, "sent", sent, flush=True)


mpc.run(main())
