"""Sends one message for each shard that is not done, a few hundred bytes, without a prompt in it."""

from __future__ import annotations

from collections.abc import Sequence

import kombu.exceptions
from celery import Celery

from hsqueue.contracts.errors import RedisUnreachable
from hsqueue.contracts.fingerprint import RunInfo
from hsqueue.contracts.message import TASK_NAME, ShardMessage, task_id
from hsqueue.ledger.address import masked
from hsqueue.ledger.ledger import Ledger

CLAIM = 100
"""Shards claimed at a time: the most that a producer killed half way leaves to the reaper."""


def send_shard(app: Celery, info: RunInfo, shard: int, sent: int) -> None:
    """Sends one message. sent: how often this shard may have been sent before, for the task's id."""
    message = ShardMessage(info.run, shard, len(info.shard_range(shard)))
    app.send_task(
        TASK_NAME,
        kwargs=message.to_kwargs(),
        queue=info.fingerprint.target.queue,
        task_id=task_id(info.run, shard, sent),
        # Nobody replies to a task without a result; left out, Celery would put a queue's name here.
        reply_to="-",
        ignore_result=True,
    )


def send_shards(app: Celery, ledger: Ledger, info: RunInfo, shards: Sequence[int], grace: float | None) -> int:
    """Claims and sends those of `shards` that nobody works on and nobody has sent. Returns how many.

    grace: see ``Ledger.claim``. Raises RedisUnreachable; what was not sent is not claimed either.
    """
    count = 0
    for begin in range(0, len(shards), CLAIM):
        claimed = ledger.claim(shards[begin : begin + CLAIM], grace)
        attempts = ledger.lease_attempts(claimed)
        unsent = list(claimed)
        try:
            for shard in claimed:
                send_shard(app, info, shard, attempts.get(shard, 0))
                unsent.remove(shard)
                count += 1
        except (kombu.exceptions.OperationalError, OSError) as error:
            ledger.unqueue(unsent)
            raise RedisUnreachable(
                f"the broker at {masked(ledger.url)} takes no message ({error})",
                do="Start Redis, then run the command again.",
            ) from error
    return count


def enqueue(app: Celery, ledger: Ledger, info: RunInfo) -> int:
    """Sends every shard that has not ended and is neither queued nor leased. Returns how many."""
    return send_shards(app, ledger, info, ledger.lost_shards(info.shards), None)
