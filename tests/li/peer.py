"""The original's worker in a loop, with an executor that only notes what it was given, and waits until ours has begun, too.

usage: peer.py STORE.db STARTS WORKER_ID

It leaves when nothing is queued or running any more, whoever runs it.
"""
import asyncio
import sys

from lionagi.state.db import StateDB
from lionagi.studio.scheduler.worker import worker_tick

store, starts, worker_id = sys.argv[1:]
LEFT = "SELECT COUNT(*) AS n FROM schedule_runs WHERE status IN ('queued', 'running')"


async def execute(row):
    with open(starts, "a") as file:
        file.write(f"{row['id']} peer\n")
    while " ours\n" not in open(starts).read():
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.02)
    return 0, ""


async def main():
    async with StateDB(store) as db:
        print("ready", flush=True)
        while (await db.fetch_all(LEFT))[0]["n"]:
            await worker_tick(db, worker_id=worker_id, execute=execute)
            await asyncio.sleep(0.05)


asyncio.run(main())
