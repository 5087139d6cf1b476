// ---- health.js: statistics of tensors: a map of layers over steps, and a table of one step

const isObject = v => v !== null && typeof v === "object" && !Array.isArray(v);

/** The statistics of an item as path -> number: {"weight": {"rms": 1}} is "weight rms". */
function statistics(item, prefix = "") {
  const out = [];
  for (const [key, value] of Object.entries(item)) {
    if (isObject(value)) out.push(...statistics(value, prefix + key + " "));
    else if (typeof value === "number" || value === null) out.push([prefix + key, value ?? NaN]);
  }
  return out;
}

function statisticText(path, v) {
  const share = /(^| )(zeros|nonfinite)$/.test(path);
  return share ? v === 0 ? "0" : percent(v, v < 0.001 ? 3 : 1) : short(v, 3);
}

function healthTable(title, items) {
  const paths = [...new Set(items.flatMap(item => statistics(item).map(([path]) => path)))];
  const rows = items.map(item => {
    const values = new Map(statistics(item));
    return make("tr", {}, make("td", {class: "left", text: String(item.name ?? "")}), ...paths.map(path => {
      const v = values.get(path), bad = /nonfinite$/.test(path) && v > 0;
      return make("td", {class: bad ? "bad" : "", text: v === undefined ? "" : statisticText(path, v)});
    }));
  });
  const heads = [title, ...paths].map((text, i) => [text, i ? "" : "left"]);
  return make("div", {class: "wide", tabindex: "0", role: "group", "aria-label": `Health: ${title}`},
    makeTable(heads, rows));
}

// ---- the map: of each layer and step the largest statistic among the layer's tensors, or that of one kind

/** "h.3.fcw" is fcw of layer 3; other tensors are a row of their own. */
function layerOf(name) {
  const [, layer, kind] = /^h\.(\d+)\.(.*)$/.exec(name) ?? [];
  return layer === undefined ? [name, ""] : ["layer " + layer, kind];
}

/** List -> statistics and kinds of tensors that its items have. */
function statisticsOf(run) {
  const all = new Map();
  for (const [list, items] of Object.entries(run.health.at(-1))) {
    for (const item of Array.isArray(items) ? items.filter(isObject) : []) {
      for (const [path] of statistics(item)) if (path !== "count") all.set(`${list}: ${path}`, [list, path]);
    }
  }
  return all;
}

/** Layer -> its cells {value, name} by the column of a step; Infinity: not finite. */
function mapRows(run, list, path, kind) {
  const rows = new Map();
  for (const [column, row] of run.health.entries()) {
    for (const item of Array.isArray(row[list]) ? row[list].filter(isObject) : []) {
      const name = String(item.name ?? ""), [layer, part] = layerOf(name);
      const found = statistics(item).find(s => s[0] === path);
      if (!found || (kind && part !== kind)) continue;
      const value = isNumber(found[1]) ? found[1] : Infinity;
      if (!rows.has(layer)) rows.set(layer, new Array(run.health.length));
      if (!(rows.get(layer)[column]?.value >= value)) rows.get(layer)[column] = {value, name};
    }
  }
  return rows;
}

function drawMap(place, run, rows, path, at) {
  const values = [...rows.values()].flat().map(cell => cell?.value).filter(v => v > 0 && v < Infinity);
  const lo = Math.min(...values), hi = Math.max(...values), steps = run.health.map(row => row.step);
  const shade = v => v > 0 ? 6 + 94 * Math.log(v / lo) / (Math.log(hi / lo) || 1) : 0;
  const cells = [...rows].flatMap(([layer, row]) => [make("span", {text: layer}), ...steps.map((step, column) => {
    const cell = row[column], text = cell ? statisticText(path, cell.value) : "nothing";
    const square = make("i", {title: `${cell?.name ?? layer} at step ${grouped(step)}: ${text}`});
    const bad = cell?.value === Infinity || (/nonfinite$/.test(path) && cell?.value > 0);
    const colour = cell && (bad ? "var(--bad)" : `color-mix(in srgb, var(--accent) ${shade(cell.value)}%, var(--grid))`);
    square.style.background = colour ?? "";
    square.classList.toggle("at", column === at);
    square.addEventListener("click", () => {
      chosen.row = column;
      showHealth();
    });
    return square;
  })]);
  const range = values.length ? `${statisticText(path, lo)} (faint) to ${statisticText(path, hi)}` : "no positive value";
  const label = `steps ${grouped(steps[0])} to ${grouped(steps.at(-1))}: ${range}`;
  const map = make("div", {class: "map", role: "img", "aria-label": label}, ...cells);
  map.style.gridTemplateColumns = `max-content repeat(${steps.length}, minmax(5px, 22px))`;
  place.replaceChildren(make("div", {class: "wide"}, map), make("p", {class: "muted", text: label}));
}

// ---- the panel

function makeHealth(panel) {
  const selects = [["Run of the health", "health"], ["Statistic of the map", "statistic"],
    ["Tensors of the map", "kind"]];
  panel.append(makePicker(selects, ["Step of the health", "row"], showHealth, make("span", {class: "muted"})),
    make("div"), make("div"));
}

const LARGEST_OF_ALL = "largest of each layer";

function showHealth() {
  const panel = byId("health"), having = shownRuns().filter(run => run.health.length).sort(byName);
  panel.hidden = !having.length;
  if (!having.length) return;
  if (!panel.querySelector(".picker")) makeHealth(panel);
  const run = having.find(r => r.name === chosen.health) ?? having[0], last = run.health.length - 1;
  const at = Math.min(last, chosen.row ?? last), row = run.health[at];
  const [, picker, map, place] = panel.children, [ofRun, ofStatistic, ofKind, slider] = picker.children;
  const all = statisticsOf(run), statistic = all.has(chosen.statistic) ? chosen.statistic
    : [...all.keys()].find(key => key.endsWith("grad rms")) ?? [...all.keys()][0] ?? "";
  const shown = [run.name, row.step, run.health[0].step, last, statistic, chosen.kind].join("\n");
  Object.assign(slider, {max: last, value: at, hidden: last === 0});
  fillSelect(ofRun, having.map(r => r.name), run.name);
  if (place.dataset.shown === shown) return;
  place.dataset.shown = shown;
  const [list, path] = all.get(statistic) ?? ["", ""];
  const items = Array.isArray(row[list]) ? row[list].filter(isObject) : [];
  const kinds = [LARGEST_OF_ALL, ...new Set(items.map(item => layerOf(String(item.name ?? ""))[1]).filter(Boolean))];
  const kind = kinds.includes(chosen.kind) ? chosen.kind : LARGEST_OF_ALL;
  fillSelect(ofStatistic, [...all.keys()], statistic);
  fillSelect(ofKind, kinds, kind);
  drawMap(map, run, mapRows(run, list, path, kind === LARGEST_OF_ALL ? "" : kind), path, at);
  setText(picker.lastChild, `at step ${grouped(row.step)}`);
  const lists = Object.entries(row).filter(([, v]) => Array.isArray(v) && v.some(isObject));
  place.replaceChildren(...lists.map(([name, items]) => healthTable(name, items.filter(isObject))));
}
