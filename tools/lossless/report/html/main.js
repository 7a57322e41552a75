// Starts everything. The page is usable when the root element says data-ready.

const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

function setUpTheme() {
  const button = byId("theme");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  try {
    const kept = localStorage.getItem("lossless-theme");
    if (kept === "dark" || kept === "light") root.dataset.theme = kept;
  } catch { /* storage may be off: then the choice lasts as long as the page */ }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("lossless-theme", root.dataset.theme); } catch { /* as above */ }
    show();
  });
  dark.addEventListener("change", show);
  show();
}

function setUpPrint() {
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details[data-print]:not([open])")];
    for (const d of closed) d.open = true;
    printList();
  });
  addEventListener("afterprint", () => {
    for (const d of closed) d.open = false;
    showPage();
  });
}

function start() {
  setUpTheme();
  setUpFilters();
  setUpGrid();
  setUpList();
  setUpPrint();
  filter();
  addEventListener("hashchange", () => {
    const answer = fromPlace(location.hash);
    if (answer && answer !== wanted) open(answer, true);
  });
  let redraw, width = innerWidth;
  addEventListener("resize", () => {
    clearTimeout(redraw);
    redraw = setTimeout(() => {
      if (innerWidth !== width && wanted) open(wanted, false);
      width = innerWidth;
    }, 200);
  });
  root.dataset.ready = String(Math.round(performance.now()));
  const linked = fromPlace(location.hash);
  const worst = sorted[0];
  if (linked) open(linked, false).then(() => detail.scrollIntoView({ block: "start" }));
  else if (worst && worst.bucket.key !== "identical") open(worst, false);
}

start();
