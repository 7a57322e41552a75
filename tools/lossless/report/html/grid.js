// Every prompt at a glance: a row a category, a column a variant, a cell a prompt with its worst verdict.

const grid = byId("grid");
const cells = new Map(); // "prompt variant" → button
let order = []; // cells in the document's order

function setUpGrid() {
  const title = (variant) => (variant === "baseline" ? "golden" : variant);
  grid.tHead.append(el("tr", {}, el("th", { scope: "col" }, "Category"), ...index.variants.map((v) => el("th", { scope: "col" }, visible(title(v))))));
  const categories = [...new Set(index.prompts.map((p) => p[1]))].sort();
  const there = new Set(answers.map((a) => `${a.prompt} ${a.variant}`));
  for (const category of categories) {
    const row = el("tr", {}, el("th", { scope: "row" }, visible(category)));
    for (const variant of index.variants) {
      const box = el("div", { class: "cells" });
      index.prompts.forEach((p, prompt) => {
        const key = `${prompt} ${variant}`;
        if (p[1] !== category || !there.has(key)) return;
        const cell = el("button", { type: "button", tabindex: "-1" });
        cell.hidden = true;
        cells.set(key, cell);
        box.append(cell);
      });
      row.append(el("td", { "data-label": visible(title(variant)) }, box));
    }
    grid.tBodies[0].append(row);
  }
  order = [...grid.querySelectorAll("button")];
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest(".cell");
    if (cell) open(answers[cell.dataset.answer], true);
  });
  grid.addEventListener("keydown", moveInGrid);
  listeners.push(updateGrid);
}

function updateGrid() {
  const worst = new Map();
  for (const a of shown) {
    const key = `${a.prompt} ${a.variant}`;
    const before = worst.get(key);
    if (!before || a.rank < before.rank || (a.rank === before.rank && (a.worst ?? 0) > (before.worst ?? 0))) worst.set(key, a);
  }
  for (const [key, cell] of cells) {
    const a = worst.get(key);
    cell.hidden = !a;
    if (!a || cell.dataset.answer === String(a.number)) continue;
    cell.dataset.answer = a.number;
    cell.className = `cell ${a.bucket.key}`;
    cell.textContent = a.bucket.letter;
    cell.setAttribute("aria-label", `${visible(a.id)}, ${visible(a.variant)}: ${a.bucket.name}`);
    cell.title = `${visible(a.id)} · ${visible(a.variant)} · ${stageOf(a)}: ${a.bucket.name}${a.reason ? ` (${a.reason})` : ""}`;
  }
  for (const row of grid.tBodies[0].rows) row.hidden = !row.querySelector(".cell:not([hidden])");
  if (!order.some((c) => c.tabIndex === 0 && !c.hidden)) {
    for (const c of order) c.tabIndex = -1;
    const first = order.find((c) => !c.hidden);
    if (first) first.tabIndex = 0;
  }
}

function moveInGrid(event) {
  const cell = event.target.closest(".cell");
  const visibleCells = order.filter((c) => !c.hidden);
  const at = visibleCells.indexOf(cell);
  if (at < 0) return;
  const to = {
    ArrowRight: () => visibleCells[at + 1],
    ArrowLeft: () => visibleCells[at - 1],
    ArrowDown: () => below(cell, visibleCells.slice(at + 1), 1),
    ArrowUp: () => below(cell, visibleCells.slice(0, at).reverse(), -1),
    Home: () => visibleCells[0],
    End: () => visibleCells.at(-1),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  const next = to();
  if (!next) return;
  cell.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

// The nearest cell one line further in a direction, among cells in the order they come.
function below(cell, others, direction) {
  const here = cell.getBoundingClientRect();
  let line = null, best = null, distance = Infinity;
  for (const other of others) {
    const box = other.getBoundingClientRect();
    if ((box.top - here.top) * direction < 4) continue;
    line ??= box.top;
    if (Math.abs(box.top - line) > 4) break;
    if (Math.abs(box.left - here.left) < distance) [best, distance] = [other, Math.abs(box.left - here.left)];
  }
  return best;
}

function markInGrid(answer) {
  grid.querySelector("[aria-current]")?.removeAttribute("aria-current");
  cells.get(`${answer.prompt} ${answer.variant}`)?.setAttribute("aria-current", "true");
}
