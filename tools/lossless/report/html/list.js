// The answers as a table, the worst first, a page at a time.

const PAGE = 12;
const PRINTED = 300;
const list = byId("list");
let sorted = answers;
let page = 0;
let current = null;

function setUpList() {
  byId("previous").addEventListener("click", () => turn(-1));
  byId("next").addEventListener("click", () => turn(1));
  listeners.push(() => {
    sorted = [...shown].sort((a, b) => a.rank - b.rank || (b.worst ?? 0) - (a.worst ?? 0) || a.number - b.number);
    page = 0;
    showPage();
  });
}

function turn(by) {
  page += by;
  showPage();
}

function showPage() {
  const pages = Math.max(1, Math.ceil(sorted.length / PAGE));
  page = Math.min(Math.max(page, 0), pages - 1);
  const rows = sorted.slice(page * PAGE, (page + 1) * PAGE);
  list.tBodies[0].replaceChildren(...(rows.length ? rows.map(row) : [el("tr", {}, el("td", { colspan: "6" }, "No answer matches."))]));
  byId("page").textContent = `Page ${page + 1} of ${pages}`;
  byId("previous").disabled = page === 0;
  byId("next").disabled = page === pages - 1;
  byId("previous").parentElement.hidden = pages === 1;
}

function row(a) {
  const button = el("button", { type: "button", class: "link", onclick: () => open(a, true) }, visible(a.id));
  return el("tr", { "data-answer": String(a.number), "aria-current": a === current ? "true" : null },
    el("td", {}, badge(a.bucket, a.reason && a.bucket.key !== "known" ? a.reason : a.bucket.name)),
    el("td", {}, button, el("span", { class: "where" }, `${visible(a.category)} · ${stageOf(a)}`)),
    el("td", {}, visible(a.variant)),
    el("td", { class: "n", "data-label": "First difference" }, a.first === null ? "–" : `${a.first.toLocaleString("en-US")} of ${a.tokens.toLocaleString("en-US")}`),
    el("td", { class: "n", "data-label": "Worst, nats" }, nats(a.worst)),
    el("td", {}, visible(a.detail ?? `all ${a.tokens} tokens equal`), a.words && words(a.words)));
}

// What stood before the difference, then what became of it: the names say which side is which, not the color alone.
function words([before, left, right]) {
  return el("span", { class: "words" }, visible(before),
    el("del", { title: "left side" }, visible(left) || "∅"), " → ", el("ins", { title: "right side" }, visible(right) || "∅"));
}

function markInList(answer) {
  current = answer;
  list.querySelector("tr[aria-current]")?.removeAttribute("aria-current");
  list.querySelector(`tr[data-answer="${answer.number}"]`)?.setAttribute("aria-current", "true");
}

// On paper there are no pages to turn: everything that is not identical.
function printList() {
  const rows = sorted.filter((a) => a.bucket.key !== "identical");
  list.tBodies[0].replaceChildren(...rows.slice(0, PRINTED).map(row));
  if (rows.length > PRINTED) list.tBodies[0].append(el("tr", {}, el("td", { colspan: "6" }, `… and ${count(rows.length - PRINTED, "more answer")}`)));
  if (!rows.length) list.tBodies[0].append(el("tr", {}, el("td", { colspan: "6" }, "Every answer shown is identical.")));
}
