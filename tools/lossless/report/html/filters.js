// Which answers are shown. No chosen verdict means all of them.

const form = byId("filters");
const chosen = new Set();
const listeners = [];
let shown = answers;

function setUpFilters() {
  const chips = form.querySelector(".chips");
  for (const bucket of buckets) {
    const n = answers.filter((a) => a.bucket === bucket).length;
    if (!n) continue;
    const chip = el("button", { type: "button", class: `chip ${bucket.key}`, "aria-pressed": "false", "data-bucket": bucket.key },
      el("span", { class: "letter", "aria-hidden": "true" }, bucket.letter), bucket.name, el("span", { class: "count" }, n.toLocaleString("en-US")));
    chip.addEventListener("click", () => {
      const on = !chosen.delete(bucket.key);
      if (on) chosen.add(bucket.key);
      chip.setAttribute("aria-pressed", String(on));
      filter();
    });
    chips.append(chip);
  }
  const options = {
    category: [...new Set(index.prompts.map((p) => p[1]))].sort(),
    group: [...new Set(index.prompts.map((p) => p[2]))].sort(),
    variant: index.variants,
    stage: index.stages,
  };
  for (const [name, values] of Object.entries(options)) {
    form.elements[name].append(...values.map((v) => el("option", { value: v }, visible(v))));
    form.elements[name].addEventListener("change", filter);
  }
  let waiting;
  form.elements.text.addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(filter, 120);
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => {
    chosen.clear();
    for (const chip of chips.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", "false");
    setTimeout(filter); // the fields are empty only after this event
  });
}

function filter() {
  const fields = Object.fromEntries(["category", "group", "variant", "stage"].map((n) => [n, form.elements[n].value]));
  const text = form.elements.text.value.trim().toLowerCase();
  shown = answers.filter((a) =>
    (!chosen.size || chosen.has(a.bucket.key)) &&
    (!fields.category || a.category === fields.category) &&
    (!fields.group || a.group === fields.group) &&
    (!fields.variant || a.variant === fields.variant) &&
    (!fields.stage || a.stage === fields.stage) &&
    (!text || haystack(a).includes(text)));
  const prompts = new Set(shown.map((a) => a.prompt)).size;
  byId("count").textContent = shown.length === answers.length
    ? `All ${count(answers.length, "answer")} to ${count(index.prompts.length, "prompt")}`
    : `${count(shown.length, "answer")} of ${answers.length.toLocaleString("en-US")}, to ${count(prompts, "prompt")}`;
  for (const listener of listeners) listener();
}

function haystack(a) {
  a.hay ??= [a.id, a.text, a.category, a.group, a.variant, a.stage, a.bucket.name, a.reason, a.detail, ...(a.words ?? [])].join("\n").toLowerCase();
  return a.hay;
}
