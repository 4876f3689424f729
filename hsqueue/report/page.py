"""A report as one HTML page: no script, nothing from another host, so that it can be mailed and kept."""

from __future__ import annotations

from importlib.resources import files

from hsqueue import __version__
from hsqueue.report import faults, flow, shapes
from hsqueue.report.gather import Report
from hsqueue.report.pictures import stack, value, words
from hsqueue.report.text import clock, section
from hsqueue.wording import plural, readable_bytes, readable_seconds

POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(report: Report) -> str:
    """The whole document."""
    style = (files("hsqueue.report") / "page.css").read_text()
    parts = [
        _troubles(report), _totals(report), flow.pace(report), flow.time_spent(report), faults.survived(report),
        shapes.lengths(report), shapes.sizes(report), faults.failures(report), flow.workers(report),
        faults.rejected(report), _fingerprint(report),
    ]  # fmt: skip
    run = words(report.info.run)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Run {run}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n{_head(report)}\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<footer>hsqueue {words(__version__)}, {clock(report.made)}. {_source(report)}</footer>\n"
        "</body>\n</html>\n"
    )


def headline(report: Report) -> str:
    """How the run stands, in one plain sentence."""
    t = report.totals
    if t.pending:
        share = 100 * (t.total - t.pending) / t.total
        # Not yet everything is never said to be everything.
        return f"{min(share, 99.9):.1f}% of {plural(t.total, 'sample')} have ended"
    if t.failed:
        return f"All {plural(t.total, 'sample')} have ended, {t.failed:,} of them failed"
    return f"Complete: {plural(t.done, 'sample')}" + (f", {t.skipped:,} skipped" if t.skipped else "")


def _head(report: Report) -> str:
    info = report.info
    model = info.fingerprint.model.rstrip("/").rsplit("/", 1)[-1]
    return (
        f"<header>\n<h1>{words(headline(report))}</h1>\n"
        f'<p class="quiet">Run {words(info.run)} of {words(model)}, planned {clock(info.created)}</p>\n</header>'
    )


def _source(report: Report) -> str:
    if report.present is None:
        return "Figures from the files on the volume; no Redis was at hand."
    return "Totals from Redis, everything else from the manifests on the volume."


def _troubles(report: Report) -> str:
    """What is wrong at the moment, of a run under way."""
    if report.present is None or not report.present.troubles:
        return ""
    listed = "".join(f"<li>{words(trouble.text)}</li>" for trouble in report.present.troubles)
    return section("What is wrong now", f"<ul>{listed}</ul>", wide=True, kind="trouble")


def _totals(report: Report) -> str:
    t = report.totals
    ways = (("done", t.done), ("skipped", t.skipped), ("failed", t.failed), ("pending", t.pending))
    tiles = [(name, value(name, count)) for name, count in ways]
    tiles += [
        ("samples", value("total", t.total)),
        ("tokens", value("tokens", t.tokens)),
        ("hidden states", value("bytes", t.bytes, readable_bytes(t.bytes))),
        ("shards ended", f"{value('shards_ended', t.shards_ended)} <small>of {value('shards', t.shards)}</small>"),
    ]
    if report.rates is not None:
        tiles.append(("time at work", value("busy", round(report.rates.busy, 1), readable_seconds(report.rates.busy))))
    tiles += _pace(report)
    keys = {name for name, _ in ways}
    listed = "".join(
        f'<div><dt class="{f"key {name}" if name in keys else ""}"><span>{name}</span></dt><dd>{shown}</dd></div>'
        for name, shown in tiles
    )
    bar = stack([(name, float(count)) for name, count in ways], "done, skipped, failed and pending samples")
    return section("How far", f'<figure class="stack">{bar}</figure>\n<dl class="tiles">{listed}</dl>', wide=True)


def _pace(report: Report) -> list[tuple[str, str]]:
    """Tiles that only Redis can tell."""
    if report.present is None or report.present.pace.began is None:
        return []
    pace = report.present.pace
    tiles = [("tokens/s, last five minutes", value("recent", pace.recent, f"{pace.recent:,.0f}"))]
    if report.totals.pending and pace.seconds_left is not None:
        tiles.append(("time left", value("seconds_left", pace.seconds_left, readable_seconds(pace.seconds_left))))
    return tiles


def _fingerprint(report: Report) -> str:
    f = report.info.fingerprint
    rows = [
        ("model", f.model), ("weights", f.weights), ("layers", ", ".join(map(str, f.layers))),
        ("layer ids are", f"{f.layer_convention}s of layers"), ("norm", f.norm), ("dtype", f.dtype),
        ("hidden size", f.hidden_size), ("vocabulary", f.vocab_size), ("tokenizer", f.tokenizer),
        ("chat template", f.chat_template), ("data set", f.dataset), ("longest", plural(f.max_length, "token")),
        ("least supervised", plural(f.min_loss_tokens, "token")), ("shard", plural(f.shard_size, "sample")),
        ("ids", f.ids), ("contract", f.contract),
    ]  # fmt: skip
    listed = "".join(f"<tr><td>{words(name)}</td><td><code>{words(found)}</code></td></tr>" for name, found in rows)
    return section("What the run was made for", f'<table class="plain">{listed}</table>', wide=True)
