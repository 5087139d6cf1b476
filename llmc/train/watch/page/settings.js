// ---- settings.js: what a run was, how long it took, and by which settings runs differ

/** The settings of a run as path -> text. */
function settingsOf(run) {
  const out = new Map();
  const add = (value, path) => {
    if (!isObject(value)) out.set(path, typeof value === "string" ? value : JSON.stringify(value) ?? "");
    else for (const [key, inner] of Object.entries(value)) add(inner, path ? `${path}.${key}` : key);
  };
  if (isObject(run.config)) add(run.config, "");
  return out;
}

const count = (n, what) => n ? `, ${grouped(n)} ${what}${n > 1 ? "s" : ""}` : "";

/** "done: 500 of 500 steps, least validation loss 3.21 at step 450, 2 steps skipped". */
function verdict(run) {
  const loss = least(run.val, "loss"), of = run.config?.train?.steps, kinds = run.marks.map(mark => mark.kind);
  const steps = `${grouped(lastStep(run.train))}${isNumber(of) ? ` of ${grouped(of)}` : ""} steps`;
  const best = isNumber(loss) ? `, least validation loss ${loss.toFixed(4)} at step ${
    grouped(run.val.step[run.val.loss.indexOf(loss)])}` : "";
  const number = kind => kinds.filter(k => k === kind).length;
  return `${stateText(run)}: ${steps}${best}` + count(number("restart"), "restart") + count(number("spike"), "spike") +
    count(number("skipped"), "skipped step");
}

/** Joules of all steps: the mean of the rows that have it, times the steps. */
function energyOf(run) {
  const known = (run.train.joules ?? []).filter(isNumber);
  return known.length ? known.reduce((sum, v) => sum + v, 0) / known.length * lastStep(run.train) : NaN;
}

const FACTS = [
  ["Verdict", verdict],
  ["Time in steps", run => duration(lastOf(run.train, "seconds"))],
  ["Rank hours", run => short(lastOf(run.train, "seconds") / 3600 * run.start?.world)],
  ["Energy", run => isNumber(energyOf(run)) ? `about ${short(energyOf(run) / 3.6e6)} kWh` : "–"],
  ["Tokens", run => short(lastOf(run.train, "tokens"), 4)],
  ["Most memory", run => bytes(lastOf(run.memory, "peak_bytes"))],
  ["Device", run => String(run.start?.device ?? "–")],
];
const MOST_COMPARED = 12;               // runs side by side

/** Facts of the shown runs, and their settings: of one run all, of several those that differ; the rest is folded. */
function showSettings(shown) {
  const panel = byId("settings"), having = tableOrder([...shown]).slice(0, MOST_COMPARED);
  panel.hidden = !having.length;
  const all = having.map(settingsOf), paths = [...new Set(all.flatMap(settings => [...settings.keys()]))];
  const isEqual = path => all.every(settings => settings.get(path) === all[0].get(path));
  const rowOf = (head, texts) => make("tr", {}, make("th", {text: head, scope: "row", class: "left"}),
    ...texts.map(text => make("td", {class: "left", text, title: text})));
  const settingRows = some => some.map(path => rowOf(path, all.map(settings => settings.get(path) ?? "–")));
  const facts = FACTS.map(([head, text]) => [head, having.map(text)])
    .filter(([, texts]) => texts.some(text => text !== "–"));
  const key = JSON.stringify([facts, having.map(run => run.name), all.map(settings => [...settings])]);
  if (panel.dataset.shown === key) return;
  panel.dataset.shown = key;
  const heads = [["", "left"], ...having.map(run => [run.name, "left"])];
  const differ = having.length > 1 ? paths.filter(path => !isEqual(path)) : [];
  const rest = paths.filter(path => !differ.includes(path)), folded = make("details", {class: "rest"});
  folded.open = panel.querySelector("details")?.open ?? false;
  folded.append(make("summary", {text: having.length > 1 ? "Settings that are equal" : "All settings"}),
    makeTable(heads.slice(0, 2), rest.map(path => rowOf(path, [all[0].get(path)]))));
  const more = shown.length - having.length;
  panel.replaceChildren(panel.firstElementChild, make("div", {class: "wide"},
    makeTable(heads, [...facts.map(([head, texts]) => rowOf(head, texts)), ...settingRows(differ)])),
  ...rest.length ? [folded] : [], ...more > 0 ? [make("p", {class: "muted", text: `and ${more} more runs`})] : []);
}
