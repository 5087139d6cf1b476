// ---- panels.js: legend, table of runs, texts

const legend = new Map();               // run name -> its elements

function makeLegendRow(run) {
  const box = make("input", {type: "checkbox"}), swatch = make("span", {class: "swatch"});
  const name = make("span", {class: "name", text: run.name, title: run.name});
  const dot = make("span", {class: "dot"}), last = make("span", {class: "last"});
  const item = make("li", {}, make("label", {}, box, swatch, name), last, dot);
  box.addEventListener("change", () => {
    state.off[box.checked ? "delete" : "add"](run.name);
    changed();
  });
  item.addEventListener("mouseenter", () => light(run.name));
  item.addEventListener("mouseleave", () => light(null));
  box.addEventListener("focus", () => light(run.name));
  box.addEventListener("blur", () => light(null));
  return {item, box, swatch, dot, last};
}

function showLegend() {
  const list = byId("legend"), sorted = [...runs.values()].sort(byName), words = byId("filter").value.toLowerCase();
  for (const [name, row] of legend) {
    if (!runs.has(name)) row.item.remove(), legend.delete(name);
  }
  for (const [i, run] of sorted.entries()) {
    if (!legend.has(run.name)) legend.set(run.name, makeLegendRow(run));
    const {item, box, swatch, dot, last} = legend.get(run.name);
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
    item.hidden = !run.name.toLowerCase().includes(words);
    box.checked = !state.off.has(run.name);
    item.classList.toggle("off", !box.checked);
    const dashes = dashOf(run);
    swatch.style.borderTop = `3px ${dashes.length ? dashes[0] < 3 ? "dotted" : "dashed" : "solid"} ${colourOf(run)}`;
    dot.className = "dot " + (["training", "done", "stopped", "quiet"].includes(run.state) ? run.state : "");
    dot.title = stateText(run);
    const loss = lastOf(run.train, "loss");
    setText(last, isNumber(loss) ? loss.toFixed(3) : "");
  }
}

function lightLegend() {
  for (const [name, {item}] of legend) item.classList.toggle("lit", name === state.lit);
}

function stateText(run) {
  const age = run.age + (live ? (performance.now() - run.heard) / 1000 : 0);
  return run.state === "quiet" && isNumber(age) ? `quiet for ${duration(age)}` : String(run.state);
}

// ---- the table of runs

const ofTotal = run => run.config?.train?.steps ? " / " + grouped(run.config.train.steps) : "";
const COLUMNS = [
  ["Run", run => run.name, "left"], ["State", stateText, "left"],
  ["Step", run => grouped(lastStep(run.train)) + ofTotal(run)],
  ["Loss", run => fixed(lastOf(run.train, "loss"), 4)], ["Val. loss", run => fixed(lastOf(run.val, "loss"), 4)],
  ["Tokens/s", run => short(lastOf(run.train, "tokens_per_s"), 4)], ["MFU", run => percent(lastOf(run.train, "mfu"))],
  ["Time left", run => duration(secondsLeft(run))], ["Parameters", run => short(run.start?.params, 4)],
  ["Ranks", run => grouped(run.start?.world)], ["Precision", run => String(run.start?.precision ?? "–"), "left"],
  ["Device", run => String(run.start?.device ?? "–"), "left"],
  ["About", run => String(run.config?.about ?? ""), "left"],
];
const tableRows = new Map();

function showTable() {
  const place = byId("table").querySelector(".wide");
  byId("table").hidden = !runs.size;
  if (!place.firstChild) {
    place.append(makeTable(COLUMNS.map(([text, , side]) => [text, side ?? ""])));
  }
  const body = place.querySelector("tbody"), sorted = [...runs.values()].sort(byName);
  for (const [name, row] of tableRows) {
    if (!runs.has(name)) row.remove(), tableRows.delete(name);
  }
  for (const [i, run] of sorted.entries()) {
    if (!tableRows.has(run.name)) {
      tableRows.set(run.name, make("tr", {}, ...COLUMNS.map(([, , side]) => make("td", {class: side ?? ""}))));
    }
    const row = tableRows.get(run.name);
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    COLUMNS.forEach(([, value], k) => setText(row.children[k], value(run)));
    if (row.lastChild.textContent) row.lastChild.title = row.lastChild.textContent;
  }
}

// ---- texts

const chosen = {text: null, at: null, health: null, row: null};     // runs; places in their lists, null: the newest

/** A select of runs that keeps its choice. */
function runSelect(place, label, onChange) {
  const select = make("select", {"aria-label": label});
  select.addEventListener("change", () => onChange(select.value));
  place.append(select);
  return select;
}

function fillSelect(select, names, value) {
  const now = [...select.options].map(o => o.value).join("\n");
  if (now !== names.join("\n")) {
    select.replaceChildren(...names.map(name => make("option", {value: name, text: name})));
  }
  if (select.value !== value) select.value = value;
}

function showTexts() {
  const panel = byId("texts"), having = [...runs.values()].filter(run => run.samples.length).sort(byName);
  panel.hidden = !having.length;
  if (!having.length) return;
  if (!panel.querySelector("pre")) makeTexts(panel);
  const run = having.find(r => r.name === chosen.text) ?? having[0], last = run.samples.length - 1;
  const at = Math.min(last, chosen.at ?? last), slider = panel.querySelector("input");
  fillSelect(panel.querySelector("select"), having.map(r => r.name), run.name);
  slider.max = last;
  slider.value = at;
  slider.hidden = last === 0;
  const which = last ? `, ${at + 1} of ${last + 1}` : "";
  setText(panel.querySelector("output"), `after step ${grouped(run.samples[at].step)}${which}`);
  setText(panel.querySelector("pre"), String(run.samples[at].text));
}

function makeTexts(panel) {
  const picker = make("div", {class: "picker"});
  runSelect(picker, "Run of the texts", name => {
    Object.assign(chosen, {text: name, at: null});
    showTexts();
  });
  const slider = make("input", {type: "range", min: 0, step: 1, "aria-label": "Step of the text"});
  slider.addEventListener("input", () => {
    chosen.at = Number(slider.value) === Number(slider.max) ? null : Number(slider.value);
    showTexts();
  });
  picker.append(slider, make("output", {class: "muted"}));
  panel.append(picker, make("pre", {tabindex: "0", "aria-label": "Text"}));
}
