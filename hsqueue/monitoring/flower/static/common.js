// What both pages share: asking every two seconds, writing figures, and lists that change in place.
// Whatever comes from the ledger becomes text nodes, never HTML.

const POLL = 2000;
const PATIENCE = 6000;
const main = document.getElementById("main-content");

export const runPage = (run) => `${main.dataset.pages}/run/${encodeURIComponent(run)}`;
export const shardPage = (run, shard) => `${runPage(run)}#${shard}`;
export const answers = (...parts) => [main.dataset.answers, ...parts.map(encodeURIComponent)].join("/");
const workerPage = (name) => `${main.dataset.worker}${encodeURIComponent(name)}`;

// --- figures ---------------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export const count = (number) => whole.format(number);
export const rate = (perSecond) => (perSecond < 1e6 ? whole : short).format(perSecond);
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

export function bytes(number) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (number < 1024) return `${number.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    number /= 1024;
  }
  return `${number.toFixed(2)} TiB`;
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 90) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

// Rounded down, so that 100 % is said of what has ended.
export function percent(part, all) {
  if (all === 0) return "100 %";
  const share = (100 * part) / all;
  return `${share === 100 ? 100 : (Math.floor(share * 10) / 10).toFixed(1)} %`;
}

// --- elements --------------------------------------------------------------------------------------------

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Has `list` show `items` in their order; an item that was there keeps its element, focus and selection.
export function show(list, items, key, make, change) {
  const before = new Map([...list.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, place) => {
    const name = key(item);
    let child = before.get(name);
    if (!child) {
      child = make(item);
      child.dataset.key = name;
    }
    before.delete(name);
    if (list.children[place] !== child) list.insertBefore(child, list.children[place] ?? null);
    change(child, item);
  });
  for (const child of before.values()) child.remove();
  const none = document.getElementById(`no-${list.id}`);
  if (none) none.hidden = items.length > 0;
}

const part = (node, name) => node.querySelector(`[data-part="${name}"]`);
const slot = (tag, name, className = "") => element(tag, { "data-part": name, ...(className && { class: className }) });

export function fill(node, parts) {
  for (const [name, text] of Object.entries(parts)) write(part(node, name), text);
}

export function showFigures(figures) {
  show(
    document.getElementById("figures"), figures, (figure) => figure.name,
    (figure) => element("div", {}, element("dt", {}, figure.name), slot("dd", "value"), slot("dd", "more", "hsq-more")),
    (node, figure) => {
      fill(node, { value: figure.value, more: figure.more ?? "" });
      node.classList.toggle("hsq-bad", Boolean(figure.bad));
    },
  );
}

// --- a bar of endings ------------------------------------------------------------------------------------

const ENDINGS = ["done", "skipped", "failed"];

export function bar() {
  const made = element("div", { class: "hsq-bar", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" });
  made.append(...ENDINGS.map((ending) => element("span", { class: `hsq-${ending}` })));
  return made;
}

export function fillBar(node, run) {
  ENDINGS.forEach((ending, place) => {
    node.children[place].style.width = `${run.total ? (100 * run[ending]) / run.total : 0}%`;
  });
  const ended = run.total - run.pending;
  node.setAttribute("aria-valuenow", run.total ? Math.floor((100 * ended) / run.total) : 100);
  node.setAttribute("aria-valuetext", `${count(ended)} of ${plural(run.total, "sample")} ended`);
}

export function endings(run) {
  const parts = ENDINGS.filter((name) => name === "done" || run[name]).map((name) => `${count(run[name])} ${name}`);
  if (run.pending) parts.push(`${count(run.pending)} pending`);
  return parts.join(" · ");
}

// --- lists that both pages have --------------------------------------------------------------------------

const TROUBLES = {
  ledger_damaged: "Ledger damaged",
  worker_gone: "Worker gone", engine_down: "Engine down", engine_stalled: "Engine stalled",
  volume_unusable: "Volume unusable", volume_slow: "Volume slow", dumps_full: "Dump directory full",
  samples_failing: "Samples failing", run_stalled: "Run stalled", no_worker: "No worker",
};

const FEW = 3;

// run: whose page it is, null for the overview, which says whose a trouble is unless it is a worker's.
export function showTroubles(troubles, run) {
  const section = document.getElementById("troubles");
  section.hidden = troubles.length === 0;
  show(
    section, troubles, (one) => `${one.kind} ${one.worker || one.text}`,
    () => element("p", {}, slot("strong", "kind"), " ", slot("span", "text")),
    (node, one) => {
      const more = one.runs.length > FEW ? ` and ${plural(one.runs.length - FEW, "other run")}` : "";
      const whose = run || one.worker ? "" : `${one.runs.slice(0, FEW).join(", ")}${more}: `;
      fill(node, { kind: TROUBLES[one.kind] ?? one.kind, text: whose + one.text });
    },
  );
}

const STATES = { serving: "Serving", paused: "Paused", stopping: "Stopping", gone: "Gone" };

export function showWorkers(workers, run) {
  show(
    document.getElementById("workers"), workers, (worker) => worker.name,
    (worker) => element(
      "li", {},
      element("div", { class: "hsq-who" },
        element("a", { href: workerPage(worker.name) }, worker.name), slot("span", "engine", "hsq-more")),
      element("div", { class: "hsq-gpu" }, slot("span", "gpu"), slot("span", "host", "hsq-more")),
      element("div", { class: "hsq-state" }, slot("span", "state", "hsq-dot"), slot("span", "doing", "hsq-more")),
      element("div", { class: "hsq-rate" }, slot("span", "rate"), element("span", { class: "hsq-more" }, "tokens/s")),
      element("div", { class: "hsq-dumps" }, slot("span", "dumps"), element("span", { class: "hsq-more" }, "in dumps"),
        element("meter", { min: "0", max: "1", "aria-label": "dumps" })),
      element("div", { class: "hsq-seen" }, slot("span", "seen"), element("span", { class: "hsq-more" }, "last sign of life")),
    ),
    (node, worker) => {
      const full = worker.dump_limit ? worker.dump_bytes / worker.dump_limit : 0;
      fill(node, {
        engine: worker.engine, gpu: worker.gpu || "GPU unknown", host: worker.host,
        state: STATES[worker.state] ?? worker.state, doing: doing(worker, run), rate: rate(worker.rate),
        dumps: worker.dump_limit ? `${bytes(worker.dump_bytes)} of ${bytes(worker.dump_limit)}` : "unknown",
        seen: `${duration(worker.seen)} ago`,
      });
      part(node, "state").dataset.state = worker.state;
      node.querySelector("meter").value = Math.min(1, full);
      node.querySelector("meter").high = 0.9;
    },
  );
}

function doing(worker, run) {
  if (worker.paused) return worker.paused;
  if (!worker.shards.length) return worker.state === "gone" ? "holds no shard" : "waiting for work";
  const byRun = new Map();
  for (const [of, shard] of worker.shards) byRun.set(of, [...(byRun.get(of) ?? []), shard]);
  return [...byRun].map(([of, shards]) => {
    const text = `${shards.length === 1 ? "shard" : "shards"} ${shards.join(", ")}`;
    return run ? text : `${of}: ${text}`;
  }).join("; ");
}

export function showFailures(list, failures, run) {
  show(
    list, failures, (failure) => `${failure.run} ${failure.index}`,
    (failure) => element(
      "li", {},
      element("p", {},
        element("a", { href: shardPage(failure.run, failure.shard), class: "hsq-where" },
          run ? `shard ${failure.shard}` : `${failure.run}, shard ${failure.shard}`),
        element("span", { class: "hsq-more" }, `sample ${failure.index}`),
        slot("span", "ending", `hsq-ending hsq-is-${failure.ending}`),
        slot("strong", "error"), slot("span", "attempts", "hsq-more"), slot("span", "age", "hsq-more")),
      slot("p", "detail", "hsq-detail"),
    ),
    (node, failure) => fill(node, {
      ending: failure.ending, error: failure.error, detail: failure.detail,
      attempts: `after ${plural(failure.attempts, "request")}`,
      age: failure.age === null ? "" : `${duration(failure.age)} ago`,
    }),
  );
}

// --- asking ----------------------------------------------------------------------------------------------

const SILENCES = {
  TypeError: "Flower does not answer.",
  TimeoutError: `Flower does not answer within ${PATIENCE / 1000} s; perhaps its Redis does not.`,
};
const live = document.getElementById("live");
let last = null;

export async function ask(url) {
  const answer = await fetch(url, { cache: "no-cache", signal: AbortSignal.timeout(PATIENCE) });
  const found = await answer.json().catch(() => ({ error: `Flower answers ${answer.status}` }));
  if (!answer.ok) throw new Error(found.error ?? `Flower answers ${answer.status}`);
  return found;
}

// Calls `look` now and every two seconds, one at a time, while the page can be seen.
export function follow(look) {
  let busy = false;
  const turn = async () => {
    if (busy || document.hidden) return;
    busy = true;
    try {
      await look();
      main.dataset.ready = "";
      last = new Date();
      live.dataset.state = "live";
      live.setAttribute("aria-live", "off");
      write(live, `Live, ${last.toLocaleTimeString("en-GB")}`);
    } catch (error) {
      live.dataset.state = "lost";
      live.setAttribute("aria-live", "assertive");
      const age = last ? `These figures are of ${last.toLocaleTimeString("en-GB")}. ` : "";
      write(live, age + (SILENCES[error.name] ?? error.message));
    } finally {
      busy = false;
    }
  };
  document.addEventListener("visibilitychange", turn);
  setInterval(turn, POLL);
  turn();
}
