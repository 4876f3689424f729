"""One sample's way: request, response, dump, match, publish. Runs in a thread of the shard's pool."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from hsqueue.contracts.card import EngineCard
from hsqueue.contracts.errors import EngineDown, EngineRefused, HsqueueError, SampleRefused
from hsqueue.contracts.meters import DUMP, ENGINE, VOLUME
from hsqueue.contracts.rid import RequestId
from hsqueue.contracts.sample import Published, Sample
from hsqueue.contracts.target import Target
from hsqueue.store.files import require_run
from hsqueue.store.layout import RunLayout
from hsqueue.store.publish import Publication, publish
from hsworker.budget import Share
from hsworker.dumps import DumpSource
from hsworker.engine import EngineClient
from hsworker.gauges import Gauge
from hsworker.matching import check_dump, check_response, check_sample
from hsworker.times import Times


@dataclass(frozen=True, slots=True)
class Way:
    """What every sample of a shard needs. fence: of the lease. is_same_engine: whether the process that `card`
    describes still stands. may_publish: raises where the lease is lost. answered: called once the engine is done.
    publishing: holds as many places as samples may be copied at a time. times: where the samples' time goes.
    gauge: how the process fares, for its worker to tell.
    """

    run: str
    shard: int
    fence: int
    target: Target
    card: EngineCard
    layout: RunLayout
    engine: EngineClient
    dumps: DumpSource
    share: Share
    dump_timeout: float
    is_same_engine: Callable[[], bool]
    may_publish: Callable[[], None]
    answered: Callable[[], None]
    publishing: threading.Semaphore
    times: Times = field(default_factory=Times)
    gauge: Gauge = field(default_factory=Gauge)


def process(way: Way, sample: Sample, attempt: int, alone: bool = False) -> Published:
    """Asks for one sample and publishes what matches. The caller has taken its share of the budget.

    alone: the sample is suspected of taking the engine down, so it is sent only where that one stands.

    Raises a named error of hsqueue.contracts.errors; whatever happened, nothing of the request is left behind.
    """
    rid = RequestId(way.run, sample.index, way.fence, attempt)
    try:
        seconds = None
        way.gauge.asked()
        try:
            way.dumps.announce(rid, sample)
            seconds = _ask(way, rid, sample, alone)
        finally:
            way.gauge.answered(seconds)
            way.share.answered(sample.tokens)
            way.answered()
        return _take(way, rid, sample)
    finally:
        way.share.taken(dump_bytes(way.target, sample.tokens))


def dump_bytes(target: Target, tokens: int) -> int:
    """Bytes of one dump, for the budget."""
    return target.bytes_per_token * tokens


def _ask(way: Way, rid: RequestId, sample: Sample, alone: bool) -> float:
    """Returns the seconds that the engine took."""
    accepted = False
    try:
        check_sample(sample, way.target, way.card.context_length)
        if alone and not way.engine.alive():
            down = EngineDown("the engine went down before this sample was sent", sample=rid)
            down.asked = False
            raise down
        accepted = True
        began = time.monotonic()
        try:
            response = way.engine.prefill(str(rid), sample.input_ids.tolist())
        except (EngineRefused, SampleRefused):
            accepted = False
            raise
        except EngineDown as error:
            if way.engine.alive() and way.is_same_engine():
                raise EngineRefused(f"the connection broke, the engine stands ({error.problem})", sample=rid) from None
            raise
        seconds = time.monotonic() - began
        way.times.add(ENGINE, seconds)
        check_response(response, str(rid), sample.tokens)
        return seconds
    except BaseException:
        # An accepted request that came to nothing here may still leave a dump.
        way.dumps.forget(rid, orphaned=accepted)
        raise


def _take(way: Way, rid: RequestId, sample: Sample) -> Published:
    taken = False
    try:
        with way.times.spend(DUMP):
            dump = way.dumps.wait(rid, sample, way.dump_timeout)
        taken = True
        check_dump(dump.meta, dump.file, dump.ids, str(rid), sample, way.target)
        require_run(way.layout.run_json)
        with way.times.spend(VOLUME), way.gauge.publication(sample.tokens), way.publishing:
            return publish(
                Publication(
                    source=dump.path, dump=dump.file, meta=dump.meta, run=way.run, index=sample.index, id=sample.id,
                    ids=sample.input_ids.tobytes(), loss_mask=sample.loss_mask,
                    final=way.layout.sample(way.shard, sample.index), mark=f"{way.fence}.{rid.attempt}",
                ),
                way.may_publish,
            )  # fmt: skip
    except HsqueueError as error:
        error.sample = error.sample or rid
        raise
    finally:
        way.dumps.forget(rid, orphaned=not taken)
