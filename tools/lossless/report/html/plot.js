// Regret and top-2 gap along an output, on a log scale, with epsilon drawn. Zero sits on the bottom line.

const TOP = 50;

function plotOf(output, { differences, epsilon }, width, onToken) {
  const n = output.ids.length;
  if (!output.logprob || !n) return null;
  const low = Math.min(1e-4, (epsilon ?? 1) / 10);
  const height = width < 500 ? 170 : 200;
  const area = { left: 46, right: 58, top: 10, bottom: 26 };
  const across = width - area.left - area.right;
  const down = height - area.top - area.bottom;
  const x = (t) => area.left + (n === 1 ? across / 2 : (t / (n - 1)) * across);
  const y = (v) => area.top + down - (Math.log(Math.max(v, low) / low) / Math.log(TOP / low)) * down;
  const bottom = area.top + down;
  const parts = [];

  for (const { at: [, , start, end] } of differences.slice(0, 400)) {
    if (start < n) parts.push(svg("rect", { class: "hunk", x: x(start) - 1, y: area.top, width: Math.max(2, x(Math.min(end, n - 1)) - x(start)), height: down }));
  }
  for (let power = Math.ceil(Math.log10(low)); 10 ** power <= TOP; power += 1) {
    const value = 10 ** power;
    parts.push(svg("line", { class: "rule", x1: area.left, x2: width - area.right, y1: y(value), y2: y(value) }));
    parts.push(svg("text", { x: area.left - 8, y: y(value) + 4, "text-anchor": "end" }, value >= 0.001 ? String(value) : `1e${power}`));
  }
  parts.push(svg("text", { x: area.left - 8, y: bottom + 4, "text-anchor": "end" }, y(10 ** Math.ceil(Math.log10(low))) > bottom - 12 ? "" : "0"));
  const ticks = Math.min(n - 1, width < 500 ? 3 : 6) || 1;
  for (let k = 0; k <= ticks; k += 1) {
    const t = Math.round((k / ticks) * (n - 1));
    parts.push(svg("text", { x: x(t), y: height - 6, "text-anchor": "middle" }, t.toLocaleString("en-US")));
  }

  // Several tokens may share a pixel: its smallest gap and its largest regret are drawn.
  const gaps = new Map();
  const regrets = new Map();
  let largest = 0;
  for (let t = 0; t < n; t += 1) {
    const score = scoreOf(output, t);
    const column = Math.round(x(t));
    if (score.gap !== null) gaps.set(column, Math.min(gaps.get(column) ?? Infinity, score.gap));
    if (score.regret > 0) {
      regrets.set(column, Math.max(regrets.get(column) ?? 0, score.regret));
      largest = Math.max(largest, score.regret);
    }
  }
  const path = [...gaps].map(([column, gap], k) => `${k ? "L" : "M"}${column} ${y(gap).toFixed(1)}`).join("");
  parts.push(svg("path", { class: "gap", d: path }));
  for (const [column, regret] of regrets) {
    const over = epsilon !== null && regret > epsilon + 1e-5 ? " over" : "";
    parts.push(svg("line", { class: `regret${over}`, x1: column, x2: column, y1: bottom, y2: y(regret) }));
    parts.push(svg("circle", { class: `dot${over}`, cx: column, cy: y(regret), r: 3 }));
  }
  if (epsilon !== null) {
    parts.push(svg("line", { class: "epsilon", x1: area.left, x2: width - area.right, y1: y(epsilon), y2: y(epsilon) }));
    parts.push(svg("text", { class: "epsilon", x: width - area.right + 6, y: y(epsilon) + 4 }, `ε ${nats(epsilon)}`));
  }
  const cursor = svg("line", { class: "cursor", y1: area.top, y2: bottom, visibility: "hidden" });
  const off = regrets.size ? `largest regret ${nats(largest)} nats` : "no regret";
  const label = `Regret and top-2 gap over ${count(n, "token")}; ${off}; epsilon ${nats(epsilon)} nats`;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label }, ...parts, cursor);
  const nearest = (event) => {
    const box = drawing.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * width;
    return Math.round(Math.min(1, Math.max(0, (at - area.left) / across)) * (n - 1));
  };
  drawing.addEventListener("click", (event) => onToken(nearest(event)));
  return {
    element: el("figure", { class: "plot" }, drawing,
      el("figcaption", {}, "Nats, log scale, by position.", el("span", { class: "swatch" }), "top-2 gap", el("span", { class: "swatch regret" }), "regret", el("span", { class: "swatch hunk" }), "differs from the left side")),
    at: (t) => {
      cursor.setAttribute("x1", x(t));
      cursor.setAttribute("x2", x(t));
      cursor.setAttribute("visibility", "visible");
    },
  };
}
