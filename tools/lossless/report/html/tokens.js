// Two outputs side by side, token by token, with what the baseline thinks of each token.

const AROUND = 60; // equal tokens kept around a difference
const AT_ONCE = 1500; // tokens a fold shows when it is opened

// Equal runs and differing hunks: [left start, left end, right start, right end, equal].
function segmentsOf(left, right, differences) {
  const found = [];
  let l = 0, r = 0;
  for (const { at: [l0, l1, r0, r1] } of differences) {
    if (l0 > l) found.push([l, l0, r, r0, true]);
    found.push([l0, l1, r0, r1, false]);
    [l, r] = [l1, r1];
  }
  if (left.ids.length > l) found.push([l, left.ids.length, r, right.ids.length, true]);
  return found;
}

function textOf(vocabulary, output, t) {
  return output.texts?.[t] ?? vocabulary.texts[output.ids[t]];
}

// What re-scoring says of position t: own logprob, the two best tokens, gap and regret in nats; null where unknown.
function scoreOf(output, t) {
  const units = (v) => (v === null || v === undefined ? null : v / UNITS);
  if (!output.logprob) return null;
  const own = units(output.logprob[t]);
  const off = output.off?.[t];
  const best = off ? { token: off[0], logprob: units(off[1]) } : { token: output.ids[t], logprob: own };
  const second = output.second?.[t] >= 0 ? { token: output.second[t], logprob: units(output.second_logprob[t]) } : null;
  const sound = own !== null && !output.unsound?.includes(t);
  return {
    own, best, second, sound,
    regret: sound && best.logprob !== null ? Math.max(0, best.logprob - own) : null,
    gap: best.logprob !== null && second ? best.logprob - second.logprob : null,
  };
}

function tokensView(vocabulary, left, right, entry, onToken) {
  const same = left && right && entry.left === entry.right;
  const both = left && right && !same;
  const segments = both ? segmentsOf(left, right, entry.differences) : [[0, (left ?? right).ids.length, 0, (left ?? right).ids.length, true]];
  const sides = [];
  if (left && !same) sides.push(side("left", entry.names[0], left, 0));
  if (right) sides.push(side("right", same ? `${entry.names[0]} and ${entry.names[1]}` : entry.names[1], right, 2));
  for (const s of sides) s.fill();

  function side(name, title, output, offset) {
    const panel = el("div", { class: "tokens", tabindex: "0", role: "group", dir: "ltr", "aria-label": `Tokens of ${visible(title)}`, "aria-describedby": "token-help" });
    const made = new Map();
    const open = new Map(); // segment → tokens shown from its start beyond the usual
    const me = { name, title, output, panel, made, offset, active: null, fill, open };
    function span(t, equal) {
      const score = scoreOf(output, t);
      const limit = entry.epsilon;
      const kinds = ["t"];
      if (!equal) kinds.push("diff");
      if (score?.regret > 0) kinds.push(limit !== null && score.regret > limit + 1e-5 ? "over" : "off");
      const text = textOf(vocabulary, output, t);
      const token = el("span", { class: kinds.join(" "), "data-t": t });
      for (const part of text.split(/(\n|\t)/)) {
        if (part === "\n" || part === "\t") token.append(el("span", { class: "space", "aria-hidden": "true" }, part === "\n" ? "⏎" : "⇥"), part);
        else if (part) token.append(visible(part));
      }
      made.set(t, token);
      return token;
    }
    function fill() {
      const parts = [];
      made.clear();
      segments.forEach((segment, number) => {
        const [start, end] = [segment[offset], segment[offset + 1]];
        const equal = segment[4];
        if (start === end && !equal) return parts.push(el("span", { class: "gone", role: "img", "aria-label": "nothing here" }, "∅"));
        const head = equal ? (number === 0 && both ? 0 : both ? AROUND : 1200) + (open.get(number) ?? 0) : end - start;
        const tail = equal && number < segments.length - 1 ? AROUND : equal ? 0 : 0;
        const limit = equal ? head + tail : AT_ONCE + (open.get(number) ?? 0);
        if (end - start <= limit + 12) {
          for (let t = start; t < end; t += 1) parts.push(span(t, equal));
          return undefined;
        }
        const upTo = equal ? start + head : start + limit;
        for (let t = start; t < upTo; t += 1) parts.push(span(t, equal));
        const folded = end - tail - upTo;
        const what = count(folded, equal ? "equal token" : "more token");
        const label = `Show ${folded > AT_ONCE ? `${AT_ONCE} of ` : ""}${what}`;
        parts.push(el("button", { type: "button", class: "fold", "aria-label": label, onclick: () => unfold(number) }, `… ${what} …`));
        for (let t = end - tail; t < end; t += 1) parts.push(span(t, equal));
        return undefined;
      });
      panel.replaceChildren(...(parts.length ? parts : ["(no tokens)"]));
    }
    panel.addEventListener("mouseover", (event) => pick(me, event.target.closest(".t"), false));
    panel.addEventListener("click", (event) => pick(me, event.target.closest(".t"), false));
    panel.addEventListener("focus", () => me.active === null && pick(me, made.get(firstOf(offset)) ?? panel.querySelector(".t"), false));
    panel.addEventListener("keydown", (event) => step(me, event));
    return me;
  }

  const firstOf = (offset) => entry.differences[0]?.at[offset] ?? 0;

  function unfold(number) {
    for (const s of sides) {
      s.open.set(number, (s.open.get(number) ?? 0) + AT_ONCE);
      s.fill();
    }
  }

  function pick(me, token, scroll) {
    if (!token) return;
    const t = Number(token.dataset.t);
    for (const s of sides) for (const marked of s.panel.querySelectorAll(".on, .twin")) marked.classList.remove("on", "twin");
    for (const s of sides) s.active = null;
    token.classList.add("on");
    me.active = t;
    const other = sides.find((s) => s !== me);
    const twin = other ? twinOf(t, me.offset) : null;
    if (twin !== null) other.made.get(twin)?.classList.add("twin");
    if (scroll) token.scrollIntoView({ block: "nearest", inline: "nearest" });
    onToken({ side: me, t, other, twin });
  }

  // The position across from t, or null where the other side has nothing there.
  function twinOf(t, offset) {
    const segment = segments.find((s) => t >= s[offset] && t < s[offset + 1]);
    if (!segment) return null;
    const across = segment[2 - offset] + t - segment[offset];
    return across < segment[3 - offset] ? across : null;
  }

  function step(me, event) {
    const shownTokens = [...me.made.keys()].sort((a, b) => a - b);
    const at = shownTokens.indexOf(me.active);
    const starts = entry.differences.map((d) => d.at[me.offset]).filter((t) => me.made.has(t));
    const here = me.active ?? -1;
    const to = {
      ArrowRight: () => shownTokens[at + 1],
      ArrowLeft: () => shownTokens[at - 1],
      Home: () => shownTokens[0],
      End: () => shownTokens.at(-1),
      n: () => starts.find((t) => t > here),
      p: () => starts.findLast((t) => t < here),
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey || event.target !== me.panel) return;
    event.preventDefault();
    pick(me, me.made.get(to()), true);
  }

  return {
    element: el("div", { class: sides.length > 1 ? "sides" : "sides one" }, ...sides.map((s) =>
      el("div", { class: `side ${s.name}` }, el("h4", {}, visible(s.title), " ", el("span", { class: "muted" }, `${count(s.output.ids.length, "token")}, finish ${visible(s.output.finish)}`)), s.panel))),
    show: (t) => {
      const target = sides.at(-1);
      const token = target.made.get(t);
      pick(target, token, false);
      if (token) target.panel.scrollTop += token.getBoundingClientRect().top - target.panel.getBoundingClientRect().top - target.panel.clientHeight / 2;
    },
    // Scrolls each side so that its first difference can be seen; only inside the panels.
    reveal: () => {
      for (const s of sides) {
        const token = s.made.get(firstOf(s.offset));
        if (token && entry.differences.length) s.panel.scrollTop = Math.max(0, token.offsetTop - s.panel.offsetTop - 60);
      }
      const last = sides.at(-1);
      pick(last, last.made.get(firstOf(last.offset)) ?? last.made.values().next().value, false);
    },
  };
}
