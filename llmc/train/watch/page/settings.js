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
    count(number("rollback"), "rollback") +
    count(number("skipped"), "skipped step");
}

/** Joules of all steps: the mean of the rows that have it, times the steps. */
function energyOf(run) {
  const known = (run.train.joules ?? []).filter(isNumber);
  return known.length ? known.reduce((sum, v) => sum + v, 0) / known.length * lastStep(run.train) : NaN;
}

const rankHours = run => lastOf(run.train, "seconds") / 3600 * run.start?.world;
const dollarsOf = run => rankHours(run) * run.config?.cluster?.dollars_per_hour;

const FACTS = [
  ["Verdict", verdict],
  ["Time in steps", run => duration(lastOf(run.train, "seconds"))],
  ["Rank hours", run => short(rankHours(run))],
  ["Cost", run => dollarsOf(run) > 0 ? `$${short(dollarsOf(run))} by cluster.dollars_per_hour` : "–"],
  ["Energy", run => isNumber(energyOf(run)) ? `about ${short(energyOf(run) / 3.6e6)} kWh` : "–"],
  ["Tokens", run => short(lastOf(run.train, "tokens"), 4)],
  ["Most memory", run => bytes(lastOf(run.memory, "peak_bytes"))],
  ["Device", run => String(run.start?.device ?? "–")],
];
const MOST_COMPARED = 12;               // runs side by side

/** Facts of the shown runs, and what differs between their settings; folded, what does not. */
function showSettings(shown) {
  const having = tableOrder([...shown]).slice(0, MOST_COMPARED), all = having.map(settingsOf);
  const paths = [...new Set(all.flatMap(settings => [...settings.keys()]))];
  const isEqual = path => all.every(settings => settings.get(path) === all[0].get(path));
  const differ = paths.filter(path => !isEqual(path)), equal = paths.filter(isEqual);
  const facts = FACTS.map(([head, text]) => [head, having.map(text)])
    .filter(([, texts]) => texts.some(text => text !== "–"));
  const rows = [...facts, ...differ.map(path => [path, all.map(settings => settings.get(path) ?? "–")])];
  const key = JSON.stringify([rows, having.map(run => run.name), equal.map(path => all[0].get(path))]);
  const panel = byId("facts"), folded = byId("settings").querySelector("details");
  if (panel.dataset.shown === key) return;
  panel.dataset.shown = key;
  panel.hidden = !having.length;
  byId("settings").hidden = !equal.length;
  setText(folded.firstChild, having.length > 1 ? "Equal in all runs" : "All");
  const rowOf = (head, texts) => make("tr", {}, make("th", {text: head, scope: "row", class: "left"}),
    ...texts.map(text => make("td", {class: "left", text, title: text})));
  const more = shown.length - having.length, heads = ["", ...having.map(run => run.name)].map(text => [text, "left"]);
  panel.lastChild.replaceChildren(makeTable(heads, rows.map(([head, texts]) => rowOf(head, texts))),
    ...more > 0 ? [make("p", {class: "muted", text: `and ${more} more runs`})] : []);
  folded.replaceChildren(folded.firstChild,
    makeTable([["", "left"], ["", "left"]], equal.map(path => rowOf(path, [all[0].get(path)]))));
}
