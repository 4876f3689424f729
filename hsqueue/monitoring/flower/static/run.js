// The page of one run: its figures, its shards as a grid, its workers, its failures.

import {
  answers, ask, bar, bytes, count, duration, element, fillBar, follow, percent, plural, rate, show, showFailures,
  showFigures, showTroubles, showWorkers, write,
} from "./common.js";
import { Grid, STATES } from "./grid.js";

const byId = (id) => document.getElementById(id);
const run = byId("run").dataset.run;
const progress = bar();
byId("progress").append(progress);

function figures(now) {
  const ended = now.total - now.pending;
  return [
    { name: "Samples ended", value: percent(ended, now.total), more: `${count(ended)} of ${count(now.total)}` },
    { name: "Tokens a second", value: rate(now.recent), more: `${rate(now.overall)} since the start` },
    { name: "Time left", value: now.pending ? duration(now.left) : "none", more: now.pending ? `${count(now.pending)} pending` : "the run has ended" },
    { name: "Failed", value: count(now.failed), bad: now.failed > 0, more: now.skipped ? `${count(now.skipped)} skipped` : "none skipped" },
    { name: "Written", value: bytes(now.bytes), more: plural(now.tokens, "token") },
  ];
}

// --- shards ----------------------------------------------------------------------------------------------

const tip = byId("tip");
const grid = new Grid(byId("grid"), pick, (shard, x, y) => {
  tip.hidden = shard === null;
  if (shard === null) return;
  write(tip, `shard ${shard}: ${STATES.find((state) => state.letter === grid.states[shard]).name}`);
  tip.style.left = `${Math.min(x, grid.canvas.clientWidth - tip.offsetWidth)}px`;
  tip.style.top = `${y + 20}px`;
});

function showLegend(states) {
  const counts = STATES.map((state) => ({ ...state, count: states.split(state.letter).length - 1 }));
  show(
    byId("legend"), counts, (state) => state.letter,
    (state) => {
      const button = element("button", { type: "button", "aria-pressed": "false" },
        element("i", { class: "hsq-cell", "data-letter": state.letter }), element("b", { "data-part": "count" }), ` ${state.name}`);
      button.addEventListener("click", () => only(grid.shown === state.letter ? null : state.letter));
      return element("li", {}, button);
    },
    (node, state) => write(node.querySelector("b"), count(state.count)),
  );
}

function only(letter) {
  grid.only(letter);
  for (const item of byId("legend").children) {
    item.firstChild.setAttribute("aria-pressed", String(item.dataset.key === letter));
  }
}

async function showShard(shard) {
  const found = await ask(answers(run, "shards", shard));
  if (shard !== grid.selected) return;
  const last = found.first + found.samples - 1;
  const list = element("ul", { class: "hsq-failures" });
  showFailures(list, found.failures, run);
  byId("shard").replaceChildren(
    element("h3", {}, `Shard ${found.shard}: ${found.state}`),
    element("p", {}, [
      `${count(found.done)} of ${plural(found.samples, "sample")} done (${found.first} to ${last})`,
      ...(found.given_up ? [`${count(found.given_up)} failed or skipped`] : []),
      ...(found.worker ? [`worker ${found.worker}`] : []),
      ...(found.leases ? [`leased ${plural(found.leases, "time")} since it last made progress`] : []),
    ].join(" · ")),
    list,
  );
  byId("shard").hidden = false;
}

function pick(shard) {
  grid.select(shard);
  byId("number").value = shard;
  history.replaceState(null, "", `#${shard}`);
  showShard(shard).catch((error) => byId("shard").replaceChildren(element("p", {}, error.message)));
}

byId("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const shard = Number(byId("number").value);
  if (Number.isInteger(shard) && shard >= 0 && shard < grid.states.length) pick(shard);
});
byId("next").addEventListener("click", () => {
  const from = grid.selected === null ? 0 : grid.selected + 1;
  const next = [grid.states.indexOf("f", from), grid.states.indexOf("f")].find((shard) => shard >= 0);
  if (next !== undefined) pick(next);
});
const fromAddress = () => {
  if (/^#\d{1,12}$/.test(location.hash)) pick(Number(location.hash.slice(1)));
};
window.addEventListener("hashchange", fromAddress);

// --- all of it -------------------------------------------------------------------------------------------

follow(async () => {
  const [found, shards] = await Promise.all([ask(answers(run)), ask(answers(run, "shards"))]);
  const now = found.run;
  write(byId("about"), [now.model, now.dir].filter(Boolean).join(" · "));
  showFigures(figures(now));
  fillBar(progress, now);
  showTroubles(found.troubles, run);
  const first = !grid.states;
  grid.set(shards.states);
  grid.canvas.setAttribute("aria-label", `${plural(shards.states.length, "shard")} of run ${run}`);
  showLegend(shards.states);
  byId("next").disabled = !shards.states.includes("f");
  showWorkers(found.workers, run);
  showFailures(byId("failures"), found.failures, run);
  if (first) fromAddress();
  else if (grid.selected !== null) await showShard(grid.selected);
});
