// A canvas with one cell a shard. The largest cells that fit are taken, so 20 shards and 100,000 can both be read.

export const STATES = [
  { letter: ".", name: "waiting" }, { letter: "q", name: "queued" }, { letter: "w", name: "worked at" },
  { letter: "e", name: "ended" }, { letter: "f", name: "with failures or skips" },
];
const SIZES = [24, 20, 16, 12, 10, 8, 6, 5, 4, 3, 2];
const TALLEST = 560;
const MARKED = 8;

const cssName = (letter) => ({ ".": "waiting", q: "queued", w: "working", e: "ended", f: "failed" })[letter];

// The side of a cell, so that `cells` of them fit into `width` and are no taller than wanted, where that is possible.
export function sizeOf(cells, width, tallest = TALLEST) {
  return SIZES.find((size) => Math.ceil(cells / Math.max(1, Math.floor(width / size))) * size <= tallest) ?? SIZES.at(-1);
}

export class Grid {
  // picked: called with a shard's number. pointed: with a number or null, and where on the canvas.
  constructor(canvas, picked, pointed) {
    this.canvas = canvas;
    this.states = "";
    this.selected = null;
    this.shown = null;
    canvas.addEventListener("click", (event) => this.#at(event, picked));
    canvas.addEventListener("pointermove", (event) => this.#at(event, pointed, true));
    canvas.addEventListener("pointerleave", () => pointed(null));
    canvas.addEventListener("keydown", (event) => this.#key(event, picked));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    new MutationObserver(() => this.draw()).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  }

  // letter: the one state to show, or null for all.
  only(letter) {
    this.shown = letter;
    this.draw();
  }

  set(states) {
    if (states === this.states) return;
    this.states = states;
    this.draw();
  }

  select(shard) {
    this.selected = shard;
    this.draw();
  }

  #at(event, tell, always = false) {
    const x = Math.floor(event.offsetX / this.size);
    const shard = Math.floor(event.offsetY / this.size) * this.columns + x;
    const inside = x < this.columns && shard >= 0 && shard < this.states.length;
    if (inside || always) tell(inside ? shard : null, event.offsetX, event.offsetY);
  }

  #key(event, picked) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = this.selected === null ? 0 : this.selected + step;
    if (next >= 0 && next < this.states.length) picked(next);
  }

  draw() {
    const width = Math.floor(this.canvas.parentElement.clientWidth);
    if (!width || !this.states) return;
    this.size = sizeOf(this.states.length, width);
    this.columns = Math.min(Math.floor(width / this.size), this.states.length);
    const rows = Math.ceil(this.states.length / this.columns);
    const scale = window.devicePixelRatio || 1;
    const [w, h] = [this.columns * this.size, rows * this.size];
    this.canvas.width = Math.round(w * scale);
    this.canvas.height = Math.round(h * scale);
    this.canvas.style.width = `${w}px`;
    this.canvas.style.height = `${h}px`;
    const pen = this.canvas.getContext("2d");
    pen.scale(scale, scale);
    this.#cells(pen);
    if (this.selected !== null && this.selected < this.states.length) this.#frame(pen);
  }

  #place(shard) {
    return [(shard % this.columns) * this.size, Math.floor(shard / this.columns) * this.size];
  }

  #cells(pen) {
    const style = getComputedStyle(this.canvas);
    const gap = this.size >= 10 ? 2 : this.size >= 4 ? 1 : 0;
    const side = this.size - gap;
    for (const { letter } of STATES) {
      // Where cells are tiny, a failure is drawn over its neighbours, so that one among many can be seen.
      const shown = letter === "f" ? Math.max(side, 3) : side;
      pen.fillStyle = style.getPropertyValue(`--hsq-${cssName(letter)}`);
      pen.globalAlpha = this.shown === null || this.shown === letter ? 1 : 0.15;
      for (let shard = this.states.indexOf(letter); shard >= 0; shard = this.states.indexOf(letter, shard + 1)) {
        const [x, y] = this.#place(shard);
        pen.fillRect(x, y, shown, shown);
      }
    }
    pen.globalAlpha = 1;
    if (side >= MARKED) this.#marks(pen, style.getPropertyValue("--hsq-mark"), side);
  }

  // Shape beside colour: a cross on failures, a dot on what is worked at.
  #marks(pen, colour, side) {
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineWidth = 1.5;
    const edge = side * 0.28;
    for (let shard = 0; shard < this.states.length; shard++) {
      const letter = this.states[shard];
      if ((letter !== "f" && letter !== "w") || (this.shown !== null && this.shown !== letter)) continue;
      const [x, y] = this.#place(shard);
      pen.beginPath();
      if (letter === "f") {
        pen.moveTo(x + edge, y + edge);
        pen.lineTo(x + side - edge, y + side - edge);
        pen.moveTo(x + side - edge, y + edge);
        pen.lineTo(x + edge, y + side - edge);
        pen.stroke();
      } else {
        pen.arc(x + side / 2, y + side / 2, side * 0.18, 0, 7);
        pen.fill();
      }
    }
  }

  #frame(pen) {
    const [x, y] = this.#place(this.selected);
    pen.strokeStyle = getComputedStyle(this.canvas).getPropertyValue("--hsq-frame");
    pen.lineWidth = 2;
    const room = Math.max(this.size, 8);
    const inset = (room - this.size) / 2;
    pen.strokeRect(x - inset, y - inset, room, room);
  }
}
