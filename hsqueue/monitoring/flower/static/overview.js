// The Samples tab: every run, every worker, what is wrong, what failed last.

import {
  answers, ask, bar, bytes, count, duration, element, endings, fill, fillBar, follow, percent, plural, rate, runPage,
  show, showFailures, showFigures, showTroubles, showWorkers,
} from "./common.js";

function figures(total) {
  const ended = total.total - total.pending;
  return [
    {
      name: "Samples ended", value: percent(ended, total.total),
      more: `${count(ended)} of ${count(total.total)}`,
    },
    { name: "Tokens a second", value: rate(total.recent), more: "over the last five minutes" },
    {
      name: "Time left", value: total.pending ? duration(total.left) : "none",
      more: total.unfinished ? plural(total.unfinished, "unfinished run") : "every run has ended",
    },
    {
      name: "Failed", value: count(total.failed), bad: total.failed > 0,
      more: total.skipped ? `${count(total.skipped)} skipped` : "none skipped",
    },
    { name: "Written", value: bytes(total.bytes), more: plural(total.tokens, "token") },
  ];
}

const slot = (tag, name, className) => element(tag, { "data-part": name, class: className });

const makeRun = (run) => element(
  "li", {},
  element("div", { class: "hsq-line" },
    element("a", { href: runPage(run.run), class: "hsq-name" }, run.run),
    slot("span", "rate", "hsq-tail"), slot("span", "left", "hsq-tail"), slot("span", "percent", "hsq-tail hsq-percent")),
  bar(),
  element("div", { class: "hsq-line hsq-more" },
    slot("span", "endings", "hsq-name"), slot("span", "overall", "hsq-tail"), slot("span", "tokens", "hsq-tail"),
    slot("span", "bytes", "hsq-tail")),
);

function left(run) {
  if (run.left !== null) return `${duration(run.left)} left`;
  return run.began === null ? "not begun" : "time left unknown";
}

function changeRun(node, run) {
  const over = run.pending === 0;
  fill(node, {
    percent: percent(run.total - run.pending, run.total),
    rate: over ? "" : `${rate(run.recent)} tokens/s`,
    left: over ? "ended" : left(run), endings: endings(run), overall: `${rate(run.overall)} since the start`,
    tokens: plural(run.tokens, "token"), bytes: bytes(run.bytes),
  });
  fillBar(node.querySelector(".hsq-bar"), run);
  node.classList.toggle("hsq-over", over);
}

follow(async () => {
  const found = await ask(answers());
  showFigures(figures(found.totals));
  showTroubles(found.troubles, null);
  const runs = found.runs.sort((a, b) => Number(a.pending === 0) - Number(b.pending === 0) || (b.began ?? 0) - (a.began ?? 0));
  show(document.getElementById("runs"), runs, (run) => run.run, makeRun, changeRun);
  showWorkers(found.workers, null);
  showFailures(document.getElementById("failures"), found.failures, null);
});
