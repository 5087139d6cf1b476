// ---- runs.js: what the page knows of the runs
//
// A table is an object of columns, arrays of equal length, NaN where a row lacks a value; "step" increases. The server
// thins: a run object with "reset" replaces all rows.

const runs = new Map();                 // path -> run, in the order in which they came
const TABLES = ["train", "val", "comm", "memory"];
let folder = null;                      // the last "folder" event
let coming = 0;                         // runs so far: a run keeps its colour

function newRun(name) {
  return {
    name, index: coming++, version: 0, state: "quiet", age: 0, heard: performance.now(), config: null, start: null,
    sampled: false, fine: null, ranks: null, ...emptyTables(),
  };
}

function emptyTables() {
  return {...Object.fromEntries(TABLES.map(name => [name, {step: []}])), tasks: Object.create(null),
    scores: Object.create(null), health: [], samples: [], marks: []};
}

/** The first index whose step is at least `step`. */
function lowerBound(steps, step) {
  let lo = 0, hi = steps.length;
  while (lo < hi) {
    const middle = (lo + hi) >> 1;
    if (steps[middle] < step) lo = middle + 1; else hi = middle;
  }
  return lo;
}

function cutTable(table, length) {
  for (const column of Object.values(table)) column.length = length;
}

const LARGEST = 1e140;                  // the ratio of two drawn numbers is finite, and so is an axis

/** A value of a row as charts draw it; NaN: none. */
function drawable(v) {
  if (v === true) return 1;
  if (!isNumber(v)) return NaN;
  return Math.abs(v) < 1 / LARGEST ? 0 : Math.max(-LARGEST, Math.min(LARGEST, v));
}

/** Appends rows. A row of a step that is there already replaces the older one and all after it. */
function appendRows(table, columns) {
  if (!Array.isArray(columns?.step)) return;
  for (const key of Object.keys(columns)) {
    if (Array.isArray(columns[key])) table[key] ??= new Array(table.step.length).fill(NaN);
  }
  const all = Object.entries(table);
  for (const [i, v] of columns.step.entries()) {
    const step = drawable(v);
    if (Number.isNaN(step)) continue;
    if (table.step.at(-1) >= step) cutTable(table, lowerBound(table.step, step));
    for (const [key, column] of all) column.push(drawable(columns[key]?.[i]));
  }
}

const keyOf = item => `${item.step} ${item.kind ?? ""} ${item.text ?? ""}`;

/** Adds objects that have a step to a list, in the order of steps, each once. */
function appendList(list, more) {
  if (!Array.isArray(more) || !more.length) return;
  const known = new Set(list.map(keyOf));
  list.push(...more.filter(item => !known.has(keyOf(item))));
  list.sort((a, b) => a.step - b.step);
}

/** Adds statistics of steps to a list; a row grad_norms {norms: {name: norm}} joins the statistics of its step. */
function addHealth(list, more) {
  for (const {norms, ...row} of Array.isArray(more) ? more : []) {
    if (norms) row["gradient norms"] = Object.entries(norms).map(([name, norm]) => ({name, norm}));
    const known = list.find(item => item.step === row.step);
    if (known) Object.assign(known, row); else list.push(row);
  }
  list.sort((a, b) => a.step - b.step);
  list.splice(0, list.length - 50);
}

/** Adds scores of a task to its rows by step, each step once: training's stand in two files. */
function addScores(rows, columns) {
  for (const [i, step] of (Array.isArray(columns?.step) ? columns.step : []).entries()) {
    if (!isNumber(step) || rows.has(step)) continue;
    rows.set(step, Object.fromEntries(Object.entries(columns).map(([key, column]) => [key, drawable(column[i])])));
  }
}

/** Scores as a table, by step. */
function scoresOf(rows) {
  const ordered = [...rows.values()].sort((a, b) => a.step - b.step);
  const keys = new Set(ordered.flatMap(row => Object.keys(row)));
  return Object.fromEntries([...keys].map(key => [key, ordered.map(row => row[key] ?? NaN)]));
}

/** Takes a run object of the server or of a report. */
function receiveRun(object) {
  let run = runs.get(object.run);
  if (!run) runs.set(object.run, run = newRun(object.run));
  if (object.reset) {
    Object.assign(run, emptyTables(), {fine: null, start: null, ranks: null});
  }
  for (const key of ["state", "age", "config", "start", "sampled", "ranks"]) {
    if (object[key] !== undefined && (object[key] !== null || key === "ranks")) run[key] = object[key];
  }
  run.heard = performance.now();
  run.version++;
  for (const name of TABLES) appendRows(run[name], object[name]);
  for (const [task, columns] of Object.entries(object.tasks ?? {})) {
    addScores(run.tasks[task] ??= new Map(), columns);
    run.scores[task] = scoresOf(run.tasks[task]);
  }
  for (const list of ["samples", "marks"]) appendList(run[list], object[list]);
  addHealth(run.health, object.health);
  return run;
}

/** The last finite value of a column; NaN without one. */
function lastOf(table, key) {
  const column = table[key] ?? [];
  for (let i = column.length - 1; i >= 0; i--) {
    if (isNumber(column[i])) return column[i];
  }
  return NaN;
}

const lastStep = table => table.step.length ? table.step.at(-1) : 0;

/** Milliseconds of a step: the median of the last rows. */
function typicalMs(train) {
  const recent = (train.ms ?? []).slice(-20).filter(isNumber).sort((a, b) => a - b);
  return recent[recent.length >> 1] ?? NaN;
}

/** Seconds until the last step at the pace of the last rows; NaN where the run does not train. */
function secondsLeft(run) {
  const total = run.config?.train?.steps;
  if (run.state !== "training" || !total) return NaN;
  return Math.max(0, total - lastStep(run.train)) * typicalMs(run.train) / 1000;
}

const names = new Intl.Collator("en", {numeric: true});
const byName = (a, b) => names.compare(a.name, b.name);
