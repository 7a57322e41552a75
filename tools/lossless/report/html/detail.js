// One answer in full: verdict, numbers, plot, both texts, candidates, and what to type next.

const detail = byId("detail");
let wanted = null;

// ``go``: the reader asked for it, so the page moves there, and the focus with it.
async function open(answer, go) {
  wanted = answer;
  markInGrid(answer);
  markInList(answer);
  if (go) history.replaceState(null, "", `#${new URLSearchParams(placeOf(answer))}`);
  const { vocabulary, chunk } = await chunkOf(answer.prompt);
  if (wanted !== answer) return; // another one was chosen meanwhile
  const entry = chunk.answers.find((e) => e.answer === answer.number);
  detail.hidden = false;
  const view = build(answer, entry, chunk, vocabulary);
  detail.replaceChildren(...view.parts);
  view.settle();
  if (go) {
    detail.scrollIntoView({ block: "start" });
    byId("detail-title").focus({ preventScroll: true });
  }
}

const placeOf = (a) => ({ prompt: a.id, variant: a.variant, stage: a.stage, ...(a.turn ? { turn: a.turn } : {}) });

function fromPlace(hash) {
  const place = new URLSearchParams(hash.replace(/^#/, ""));
  if (!place.has("prompt")) return null;
  return answers.find((a) => a.id === place.get("prompt") && a.variant === (place.get("variant") ?? a.variant) &&
    a.stage === (place.get("stage") ?? a.stage) && a.turn === Number(place.get("turn") ?? 0)) ?? null;
}

function build(answer, entry, chunk, vocabulary) {
  const left = chunk.outputs[entry.left] ?? null;
  const right = chunk.outputs[entry.right] ?? null;
  const token = el("div", { id: "token", "aria-live": "polite" });
  let view = null, plot = null;
  if (left || right) {
    view = tokensView(vocabulary, left, right, entry, (at) => {
      token.replaceChildren(...tokenInfo(at, vocabulary));
      if (at.side.output === (right ?? left)) plot?.at(at.t);
    });
    const width = Math.max(280, Math.min(1140, Math.round(detail.parentElement.clientWidth - 56)));
    plot = plotOf(right ?? left, entry, width, (t) => view.show(t));
  }
  const words = [
    el("h2", { id: "detail-title", tabindex: "-1" }, visible(answer.id), " ", badge(answer.bucket, entry.label),
      el("span", { class: "muted" }, `${visible(answer.variant)} · ${stageOf(answer)}`)),
    el("p", { class: "said" }, visible(entry.detail)),
    entry.next && el("p", { class: "muted" }, `→ ${entry.next}`),
    ...entry.notes.map((note) => el("p", { class: "muted" }, `Note: ${visible(note)}`)),
    ...siblings(answer),
    hintsOf(entry),
    figures(answer, entry),
  ];
  const body = view ? [
    el("h3", {}, "Regret and top-2 gap"),
    plot ? plot.element : el("p", { class: "fine" }, "This output was not re-scored."),
    el("h3", {}, entry.left === entry.right ? "What both said" : "Both texts, token by token"),
    el("p", { id: "token-help", class: "fine keys" }, "Point at a token, or focus a text: the arrow keys move by token, n and p by difference. Differing tokens are bold on color; a dotted line marks regret within epsilon, a wavy one beyond."),
    token, view.element,
    ...sentTexts(entry, left, right),
    ...differencesOf(entry, vocabulary),
  ] : [];
  return { parts: [...words, ...body, promptOf(chunk), commandsOf(answer)].filter(Boolean), settle: () => view?.reveal() };
}

function siblings(answer) {
  const others = answers.filter((a) => a.prompt === answer.prompt);
  if (others.length < 2) return [];
  return [el("div", { class: "others", role: "group", "aria-label": "Answers to this prompt" }, ...others.map((a) =>
    el("button", { type: "button", class: a.bucket.key, "aria-current": a === answer ? "true" : null, "aria-label": `${visible(a.variant)}, ${stageOf(a)}: ${a.bucket.name}`, onclick: () => open(a, true) },
      el("span", { class: "letter", "aria-hidden": "true" }, a.bucket.letter), `${visible(a.variant)} · ${stageOf(a)}`)))];
}

function hintsOf(entry) {
  if (!entry.hints.length) return null;
  return el("div", { class: "hints" }, el("h3", {}, "Perhaps"), el("ul", {}, ...entry.hints.map((h) =>
    el("li", {}, el("strong", {}, h.kind), `: ${visible(h.sentence)} `, el("span", { class: "muted" }, `(${visible(h.evidence)}${h.reports.length ? `; similar reports: ${h.reports.join(", ")}` : ""})`)))));
}

function figures(answer, entry) {
  const d = entry.differences;
  const last = d.at(-1);
  const meet = !d.length ? null
    : entry.reconverged ? `at ${last.at[3].toLocaleString("en-US")}, ${count(last.equal, "equal token")} to the end`
      : last.equal ? `no; ${count(last.equal, "equal token")} after the last difference` : "no";
  const pairs = [
    ["First difference", answer.first === null ? null : `position ${answer.first.toLocaleString("en-US")}`],
    ["Differences", d.length ? d.length.toLocaleString("en-US") : null],
    ["Reconverged", meet],
    ["Largest regret", entry.regret ? `${nats(entry.regret.largest)} nats${entry.regret.largest_at === null ? "" : ` at ${entry.regret.largest_at}`}` : null],
    ["Sum of regrets", entry.regret ? `${nats(entry.regret.total)}, budget ${nats(entry.budget?.total)}` : null],
    ["Off the argmax", entry.regret ? `${count(entry.regret.count, "token")}, budget ${entry.budget?.count}` : null],
    ["Epsilon", entry.epsilon === null ? "none" : `${nats(entry.epsilon)} nats`],
    ["Accept length", entry.steps ? `${(answer.tokens / entry.steps).toFixed(2)} over ${count(entry.steps, "step")}` : null],
    ["From the cache", entry.cached ? count(entry.cached, "prompt token") : null],
  ];
  return el("dl", { class: "tiles" }, ...pairs.filter(([, v]) => v !== null).map(([k, v]) => el("div", {}, el("dt", {}, k), el("dd", {}, v))));
}

function tokenInfo({ side, t, other, twin }, vocabulary) {
  const column = (s, at) => {
    if (!s) return null;
    if (at === null) return el("dl", {}, el("dt", {}, visible(s.title)), el("dd", {}, "no token here"));
    const score = scoreOf(s.output, at);
    const pairs = [[visible(s.title), quoted(textOf(vocabulary, s.output, at), vocabulary.ids[s.output.ids[at]])]];
    if (score) {
      const choice = (c) => (c ? quoted(vocabulary.texts[c.token], vocabulary.ids[c.token], c.logprob) : "–");
      pairs.push(["logprob", score.sound ? fixed(score.own) : `${fixed(score.own)} (contradicts itself)`], ["top-2", el("span", {}, choice(score.best), el("br"), choice(score.second))],
        ["gap", `${nats(score.gap)} nats`], ["regret", `${nats(score.regret)} nats`]);
    } else pairs.push(["scores", "none for this output"]);
    return el("dl", {}, ...pairs.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
  };
  const pair = side.name === "left" ? [[side, t], [other, twin]] : [[other, twin], [side, t]];
  return [el("p", {}, `Position ${t.toLocaleString("en-US")}${side.output.source ? `, ${side.output.source}` : ""}`), ...pair.map(([s, at]) => column(s, at)).filter(Boolean)];
}

function quoted(text, id, logprob) {
  return el("span", {}, el("span", { class: "quoted" }, visible(text).replace(/\n/g, "⏎").replace(/\t/g, "⇥") || "(part of a character)"),
    el("span", { class: "muted" }, ` id ${id}${logprob === undefined || logprob === null ? "" : `, ${fixed(logprob)}`}`));
}

// The servers' texts, where they are not simply those of the tokens.
function sentTexts(entry, left, right) {
  return [[entry.names[0], left], [entry.names[1], right]].filter(([, o]) => o?.text !== undefined).flatMap(([name, o]) =>
    [el("h3", {}, `Text as ${visible(name)} sent it`), el("pre", { class: "said-text" }, visible(o.text) || "(empty)")]);
}

function differencesOf(entry, vocabulary) {
  if (!entry.differences.length) return [];
  const tables = entry.differences.filter((d) => d.candidates.length).slice(0, 12).map((d) => candidates(d, entry.names, vocabulary));
  const [first, ...rest] = tables;
  return [first && el("h3", {}, "What the baseline holds of the tokens where a difference starts"), first,
    rest.length ? el("details", {}, el("summary", {}, `The next ${count(rest.length, "difference")}`), ...rest) : null];
}

function candidates(d, names, vocabulary) {
  const best = Math.max(...d.candidates.map(([, v]) => v ?? -Infinity));
  const rows = new Map(d.candidates);
  for (const side of [d.left, d.right]) if (side && side[1] !== null && !rows.has(side[0])) rows.set(side[0], side[1]);
  const after = d.to_end ? `then ${count(d.equal, "equal token")} to the end` : d.equal ? `then ${count(d.equal, "equal token")}` : "and does not meet again";
  const [gone, came] = [d.at[1] - d.at[0], d.at[3] - d.at[2]];
  const change = !gone ? `${count(came, "token")} too many` : !came ? `${count(gone, "token")} missing` : `${count(gone, "token")} became ${came}`;
  const title = `Position ${d.at[2].toLocaleString("en-US")}: ${change}, ${after}${d.ties > 1 ? `; ${d.ties} tokens tie exactly` : ""}`;
  return el("div", { class: "scroll", role: "region", tabindex: "0", "aria-label": title }, el("table", {}, el("caption", { class: "fine" }, title),
    el("thead", {}, el("tr", {}, ...["Candidate", "id", "Logprob", "Below argmax", "Chosen by"].map((c, k) => el("th", { scope: "col", class: k > 0 && k < 4 ? "n" : null }, c)))),
    el("tbody", {}, ...[...rows].sort((a, b) => (b[1] ?? -Infinity) - (a[1] ?? -Infinity)).map(([token, v]) =>
      el("tr", {}, el("th", { scope: "row" }, el("span", { class: "quoted" }, visible(vocabulary.texts[token]).replace(/\n/g, "⏎"))), el("td", { class: "n" }, String(vocabulary.ids[token])),
        el("td", { class: "n" }, fixed(v === null ? null : v / UNITS)), el("td", { class: "n" }, fixed(v === null ? null : (best - v) / UNITS)),
        el("td", {}, [[d.left, names[0]], [d.right, names[1]]].filter(([s]) => s && s[0] === token).map(([, n]) => visible(n)).join(", ")))))));
}

function promptOf(chunk) {
  const asked = Object.entries(chunk.sampling).map(([k, v]) => `${k} ${typeof v === "string" ? v : JSON.stringify(v)}`).join(", ");
  return el("details", {}, el("summary", {}, `The prompt, ${count(chunk.tokens, "token")}; ${visible(asked)}`), el("pre", { class: "prompt-text" }, visible(chunk.text) || "(given as token ids)"));
}

function commandsOf(answer) {
  const shell = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);
  const [run, prompt, variant] = [index.command, answer.id, answer.variant].map(shell);
  const lines = [["Show it in the terminal", `lossless verify ${run} --prompt ${prompt}`]];
  if (answer.stage !== "golden") lines.push(["Send it again and shorten it", `lossless replay ${run} --prompt ${prompt} --variant ${variant}`]);
  return el("dl", { class: "commands" }, ...lines.flatMap(([k, v]) => [el("dt", {}, k), el("dd", {}, el("code", {}, visible(v)))]));
}
