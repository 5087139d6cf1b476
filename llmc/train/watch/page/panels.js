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
  const list = byId("legend"), sorted = [...runs.values()].sort(byName);
  forget(legend, name => runs.has(name), row => row.item.remove());
  for (const [i, run] of sorted.entries()) {
    if (!legend.has(run.name)) legend.set(run.name, makeLegendRow(run));
    const {item, box, swatch, dot, last} = legend.get(run.name);
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
    item.hidden = !passesFilter(run);
    box.checked = !state.off.has(run.name);
    item.classList.toggle("off", !box.checked);
    drawSwatch(swatch, run, dashOf(run));
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

// ---- the table of runs: sorted by a column, pinned runs first

const ofTotal = run => isNumber(run.config?.train?.steps) ? " / " + grouped(run.config.train.steps) : "";
const least = (table, key) => Math.min(...(table[key] ?? []).filter(isNumber), Infinity);
// value sorts; text is shown; best: whether the largest (1) or the least (-1) value is
const COLUMNS = [
  {head: "Run", value: run => run.name, left: true}, {head: "State", value: stateText, left: true},
  {head: "Step", value: run => lastStep(run.train), text: (v, run) => grouped(v) + ofTotal(run)},
  {head: "Loss", value: run => lastOf(run.train, "loss"), text: v => fixed(v, 4), best: -1},
  {head: "Val. loss", value: run => lastOf(run.val, "loss"), text: v => fixed(v, 4), best: -1},
  {head: "Least val.", value: run => least(run.val, "loss"), text: v => fixed(v, 4), best: -1},
  {head: "Tokens/s", value: run => lastOf(run.train, "tokens_per_s"), text: v => short(v, 4), best: 1},
  {head: "MFU", value: run => lastOf(run.train, "mfu"), text: v => percent(v), best: 1},
  {head: "Time left", value: secondsLeft, text: duration},
  {head: "Parameters", value: run => run.start?.params, text: v => short(v, 4)},
  {head: "Ranks", value: run => run.start?.world, text: grouped},
  {head: "Precision", value: run => run.start?.precision ?? "–", left: true},
  {head: "Device", value: run => run.start?.device ?? "–", left: true},
  {head: "About", value: run => run.config?.about ?? "", left: true},
];
const tableRows = new Map();            // run name -> its row: a button to pin, then the columns

function makeRunsTable(place) {
  const table = makeTable([["", ""], ...COLUMNS.map(({left}) => ["", left ? "left" : ""])]);
  COLUMNS.forEach(({head}, i) => {
    const button = make("button", {type: "button", text: head});
    button.addEventListener("click", () => {
      state.down = state.sort === head && !state.down;
      state.sort = head;
      changed();
    });
    table.querySelectorAll("th")[i + 1].append(button);
  });
  place.append(table);
}

function makeRunsRow(name) {
  const pin = make("button", {type: "button", class: "pin", "aria-label": `Pin ${name} at the top`, text: "\u25b2"});
  pin.addEventListener("click", () => {
    state.pins[state.pins.has(name) ? "delete" : "add"](name);
    changed();
  });
  return make("tr", {}, make("td", {}, pin), ...COLUMNS.map(({left}) => make("td", {class: left ? "left" : ""})));
}

/** Runs in the order of the table. Those without a value come last. */
function tableOrder(all) {
  const {value} = COLUMNS.find(c => c.head === state.sort) ?? COLUMNS[0], sign = state.down ? -1 : 1;
  const isMissing = v => typeof v === "number" && !isNumber(v) || v === undefined;
  const compare = (a, b) => isMissing(a) || isMissing(b) ? isMissing(a) - isMissing(b)
    : sign * (isNumber(a) && isNumber(b) ? a - b : names.compare(String(a), String(b)));
  return all.sort((a, b) =>
    state.pins.has(b.name) - state.pins.has(a.name) || compare(value(a), value(b)) || byName(a, b));
}

function showTable() {
  const place = byId("table").querySelector(".wide"), all = [...runs.values()].filter(passesFilter);
  byId("table").hidden = !all.length;
  if (!place.firstChild) makeRunsTable(place);
  const heads = place.querySelectorAll("th"), body = place.querySelector("tbody");
  COLUMNS.forEach(({head}, i) => heads[i + 1].setAttribute("aria-sort", head !== state.sort ? "none"
    : state.down ? "descending" : "ascending"));
  forget(tableRows, name => all.includes(runs.get(name)), row => row.remove());
  const best = COLUMNS.map(({value, best: sign}) => {
    const values = sign ? all.map(value).filter(isNumber).map(v => sign * v) : [];
    return values.length > 1 ? sign * Math.max(...values) : NaN;
  });
  for (const [i, run] of tableOrder(all).entries()) {
    if (!tableRows.has(run.name)) tableRows.set(run.name, makeRunsRow(run.name));
    const row = tableRows.get(run.name);
    if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    row.firstChild.firstChild.setAttribute("aria-pressed", state.pins.has(run.name));
    COLUMNS.forEach(({value, text = String}, k) => {
      const v = value(run), cell = row.children[k + 1];
      setText(cell, text(v, run));
      cell.classList.toggle("best", v === best[k]);
    });
    if (row.lastChild.textContent) row.lastChild.title = row.lastChild.textContent;
  }
}

// ---- texts

// runs; places in their lists, null: the newest; what the map of health shows
const chosen = {text: null, at: null, health: null, row: null, statistic: null, kind: null};

/** Selects of members of `chosen`, each [label, member], and a slider of the member `at`; its end is the newest. */
function makePicker(selects, [label, at], show, more) {
  const choose = (member, value) => {
    if (member === selects[0][1]) chosen[at] = null;            // another run
    chosen[member] = value;
    show();
  };
  const slider = make("input", {type: "range", min: 0, step: 1, "aria-label": label});
  slider.addEventListener("input", () =>
    choose(at, Number(slider.value) === Number(slider.max) ? null : Number(slider.value)));
  const lists = selects.map(([label, member]) => {
    const select = make("select", {"aria-label": label});
    select.addEventListener("change", () => choose(member, select.value));
    return select;
  });
  return make("div", {class: "picker"}, ...lists, slider, more);
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
  panel.append(makePicker([["Run of the texts", "text"]], ["Step of the text", "at"], showTexts,
    make("output", {class: "muted"})), make("pre", {tabindex: "0", "aria-label": "Text"}));
}
