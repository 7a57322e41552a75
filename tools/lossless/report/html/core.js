// What all parts share: the index, one prompt's data on demand, and building elements from text alone.

const UNITS = 100000; // logprobs are integers in units of 1e-5 nats
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;
const byId = (id) => document.getElementById(id);
const read = (id) => JSON.parse(byId(id).textContent);

const index = read("index");
const buckets = index.buckets.map(([key, letter, name]) => ({ key, letter, name }));
const columns = index.answers;
const answers = columns.prompt.map((prompt, number) => {
  const [id, category, group, text] = index.prompts[prompt];
  return {
    number, prompt, id, category, group, text,
    variant: index.variants[columns.variant[number]],
    stage: index.stages[columns.stage[number]],
    turn: columns.turn[number],
    rank: columns.bucket[number],
    bucket: buckets[columns.bucket[number]],
    reason: columns.reason[number],
    tokens: columns.tokens[number],
    first: columns.first[number],
    worst: columns.worst[number] === null ? null : columns.worst[number] / UNITS,
    detail: columns.detail[number],
    words: columns.words[number],
  };
});

// Invisible characters (controls, direction marks) are written out, so that none acts on the page.
function visible(text) {
  return text.replace(HIDDEN, (c) => `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

function nats(value) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  return Math.abs(value) < 1e-3 || Math.abs(value) >= 1e5 ? value.toExponential(1) : String(Number(value.toPrecision(4)));
}

// A logprob, with four digits after the point.
const fixed = (value) => (value === null || value === undefined ? "–" : value.toFixed(4).replace(/^-(0\.0000)$/, "$1"));

const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en-US")} ${n === 1 ? one : many}`;

// An element with attributes and children. Strings become text nodes, never markup.
function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return made;
}

function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const badge = (bucket, text = bucket.name) =>
  el("span", { class: `badge ${bucket.key}` }, el("span", { class: "letter", "aria-hidden": "true" }, bucket.letter), " ", text);

const stageOf = (answer) => (answer.turn ? `${answer.stage} ${answer.turn + 1}` : answer.stage);

async function unpack(id) {
  const bytes = Uint8Array.from(atob(read(id)), (c) => c.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(plain).text());
}

const unpacked = new Map();
async function chunkOf(prompt) {
  if (!unpacked.has("vocabulary")) unpacked.set("vocabulary", unpack("vocabulary"));
  const key = `chunk-${prompt}`;
  if (!unpacked.has(key)) unpacked.set(key, unpack(key));
  const [vocabulary, chunk] = await Promise.all([unpacked.get("vocabulary"), unpacked.get(key)]);
  if (unpacked.size > 20) unpacked.delete([...unpacked.keys()].find((k) => k !== "vocabulary" && k !== key));
  return { vocabulary, chunk };
}
