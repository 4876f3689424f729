"""A report over manifests whose values were changed and sealed anew: a page comes of it, whatever they say."""

from __future__ import annotations

import json
import random

from hsqueue.contracts.errors import RunDamaged
from hsqueue.report.bins import rates
from hsqueue.report.gather import Report, Totals
from hsqueue.report.page import page
from hsqueue.report.tally import Tally
from hsqueue.store.manifest import read_table, seal
from tests.fuzz.records import MANIFEST_TABLE, Refused, random_text
from tests.support.page import read_page
from tests.support.volume import TARGET, make_info

INFO = make_info((5, 9, 7, 5, 9, 7), 3)
TOTALS = Totals(6, 2, 1, 0, 3, 14, 14 * TARGET.bytes_per_token, 2, 1)


def report(dice: random.Random) -> bool:
    tally = Tally()
    try:
        table = read_table(seal(random_text(MANIFEST_TABLE, dice).decode(errors="replace")), "m")
        tally.add(table, "r1", 1, 3)
    except (RunDamaged, ValueError, TypeError, KeyError, AttributeError):
        assert tally == Tally(), "what is refused adds nothing"
        raise Refused from None
    text = page(Report(INFO, TOTALS, tally, rates(tally.spans), {}, 0, None, 0.0))
    read = read_page(text)
    assert "script" not in read.tags
    assert len(text) < 100_000, len(text)
    assert json.loads(json.dumps(read.figures, allow_nan=False)), "every figure is a number"
    return True
