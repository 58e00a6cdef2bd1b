"""The original as a peer on one store: `peer.py serve FILE` or `peer.py compete FILE UNTIL`.

`serve` submits two tasks, cancels one and ticks until nothing is left; `compete` ticks once, and when its standard input
ends goes on until UNTIL rows of the queue have ended, whoever ran them. Both print one JSON object.
"""

import asyncio
import json
import sys

from lionagi.dispatch import deliver_due_dispatches, enqueue_dispatch, retry_dispatch
from lionagi.state.db import StateDB
from lionagi.state.transitions import Actor
from lionagi.studio.scheduler.worker import worker_tick
from lionagi.studio.services.task_applications import TaskApplication, cancel_task, submit_task

executed = []


async def execute(row):
    executed.append(row["id"])
    return 0, ""


async def tick(db):
    return await worker_tick(db, worker_id="host:0badf00d", execute=execute, advertised_capabilities=["gpu-exclusive"])


async def serve(path):
    async with StateDB(path) as db:
        kept = await submit_task(db, TaskApplication("agent", {"action_prompt": "hé", "n": 2**70}, "host"))
        dropped = await submit_task(db, TaskApplication("playbook", {}, "host", ["gpu-exclusive"]))
        cancelled = await cancel_task(db, dropped, actor=Actor(type="operator", id="peer"))
        while (await tick(db))["claimed"]:
            pass
        return {"kept": kept, "dropped": dropped, "cancelled": cancelled}


async def compete(path, until):
    ended = "SELECT count(*) AS n FROM schedule_runs WHERE status IN ('completed', 'failed', 'cancelled')"
    async with StateDB(path) as db:
        await tick(db)
        print("in the middle", flush=True)
        sys.stdin.read()
        while (await db.fetch_all(ended))[0]["n"] < until:
            await tick(db)
        return {}


async def dispatch(path):
    """Sends what is due in the outbox, by a program that says yes to everything."""
    async with StateDB(path) as db:
        theirs = await enqueue_dispatch(db, kind="terminal_notify", deliver_to="somebody")
        counts = await deliver_due_dispatches(db, notify_template=["true", "{deliver_to}"])
        return {"theirs": theirs, "counts": counts}


async def retry(path, notice):
    async with StateDB(path) as db:
        return {"retried": await retry_dispatch(db, notice)}


async def main(what, path, *rest):
    verbs = {"serve": serve, "compete": lambda path, until: compete(path, int(until)), "dispatch": dispatch, "retry": retry}
    result = await verbs[what](path, *rest)
    print(json.dumps({**result, "executed": executed}), flush=True)


asyncio.run(main(*sys.argv[1:]))
