from __future__ import annotations

from hsengine.stats import Stats


def test_counters_tell_whose_requests_they_were() -> None:
    stats = Stats(asked=[("hsq.r.0.1.0", 5), ("HEALTH_CHECK_1.5", 1), ("0123abcd", 6), ("hsq.r.0.1.1", 5)])
    assert stats.counters()["requests"] == {"hsq.": 2, "HEALTH_CHECK": 1, "other": 1}


def test_a_sample_asked_for_twice_shows() -> None:
    stats = Stats(asked=[("hsq.r.0.1.0", 5), ("hsq.r.7.1.0", 4), ("hsq.r.0.2.0", 5), ("hsq.q.0.1.0", 5), ("x", 1)])
    assert stats.requests()["indices"] == {"r": {"0": 2, "7": 1}, "q": {"0": 1}}
    assert stats.requests()["requests"][0] == {"rid": "hsq.r.0.1.0", "tokens": 5}  # type: ignore[index]
