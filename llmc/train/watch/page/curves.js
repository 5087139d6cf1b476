// ---- curves.js: which charts there are, their curves, smoothing, thinning

const FIGURES = JSON.parse(byId("figures").textContent);        // train/report/figures.json

// Of rows of figures.json. source: a table of the run, train where absent. keys: columns, the second one dashed.
// write: how values read. rows: values of single rows, of which smoothing draws a mean. calm: the vertical axis leaves
// the first drop out. log: begins logarithmic.
const CHARTS = FIGURES.filter(f => f.chart).sort((a, b) => a.chart.place - b.chart.place)
  .map(({of, key, tag, chart}) =>
    ({name: tag, source: of === "train" ? undefined : of, keys: [key, chart.dashed ?? []].flat(), ...chart}));
const FIRST = 1 + CHARTS.findLastIndex(c => c.source === "val");          // charts above those of tasks
const KNOWN = new Set(["seconds", "skipped", ...FIGURES.filter(f => f.of === "train").map(f => f.key)]);

/** Charts that some run has data for: the known ones, tasks after validation, then columns of newer versions. */
function chartsOfRuns() {
  const all = [...runs.values()], tasks = new Set(), others = new Set();
  for (const run of all) {
    Object.keys(run.scores).forEach(t => tasks.add(t));
    Object.keys(run.train).filter(k => !KNOWN.has(k)).forEach(k => others.add(k));
  }
  const specs = CHARTS.slice(0, FIRST);
  for (const task of [...tasks].sort()) {
    const two = all.some(run => run.scores[task]?.accuracy_norm);
    specs.push({name: "tasks/" + task, task, title: task, unit: two ? "accuracy, normalized; dashed: not" : "accuracy",
      keys: ["accuracy_norm", "accuracy"], write: "percent"});
  }
  specs.push(...CHARTS.slice(FIRST));
  for (const key of [...others].sort()) {
    specs.push({name: "train/" + key, title: key, unit: "", keys: [key], write: "plain", rows: true});
  }
  const points = new Map(specs.map(spec => [spec, Math.max(0, ...all.map(run => pointsOf(run, spec)))]));
  return specs.filter(spec => points.get(spec)).sort((a, b) => (points.get(a) === 1) - (points.get(b) === 1));
}

/** Values of a run in a chart: 0, 1, or 2 for more. */
function pointsOf(run, spec) {
  const table = tableOf(run, spec);
  return Math.max(...spec.keys.map(key => {
    const column = table[key] ?? [], first = column.findIndex(isNumber);
    return first < 0 ? 0 : column.findLastIndex(isNumber) > first ? 2 : 1;
  }));
}

const NOTHING = {step: []};

function tableOf(run, spec) {
  if (spec.task !== undefined) return run.scores[spec.task] ?? NOTHING;
  return spec.source ? run[spec.source] : trainTable(run);
}

/** The curves of a run in a chart: places and values, without rows that lack the value or that no logarithm has. */
function curvesOf(run, spec, mode, logx, logy) {
  const table = tableOf(run, spec), places = spec.source || spec.task !== undefined
    ? table.step.map(s => placeOf(run, mode, s)) : trainAxis(run, mode);
  const curves = [];
  for (const [second, key] of spec.keys.entries()) {
    const column = table[key], x = [], y = [], steps = [];
    for (let i = 0; column && i < column.length; i++) {
      const at = places[i], v = column[i];
      if (!isNumber(v) || !isNumber(at) || (logx && at <= 0) || (logy && v <= 0)) continue;
      x.push(at), y.push(v), steps.push(table.step[i]);
    }
    if (x.length) curves.push({run, x, y, steps, second: second > 0 && curves.length > 0});
  }
  return curves;
}

/** An average whose weight halves every `half` pixels: each value counts for the pixels since the value before it,
 *  and the sum of the weights divides, so that the start is not drawn to 0. */
function smoothed(x, y, place, half) {
  const out = new Array(y.length);
  let sum = 0, weight = 0;
  for (let i = 0; i < y.length; i++) {
    const gap = i ? place(x[i]) - place(x[i - 1]) : y.length > 1 ? place(x[1]) - place(x[0]) : 1;
    const decay = 2 ** (-Math.max(gap, 1e-6) / half);
    sum = sum * decay + (1 - decay) * y[i];
    weight = weight * decay + (1 - decay);
    out[i] = sum / weight;
  }
  return out;
}

/** Indices of the points to draw: of each column of pixels the first, the smallest, the largest and the last. */
function drawn(x, y, place, begin, end, width = 1) {
  const out = [];
  let column = NaN, first = 0, lo = 0, hi = 0;
  const flush = last => {
    const middle = lo < hi ? [lo, hi] : [hi, lo];
    for (const i of [first, ...middle, last]) if (out.at(-1) !== i) out.push(i);
  };
  for (let i = begin; i < end; i++) {
    const at = Math.floor(place(x[i]) / width);
    if (at !== column) {
      if (i > begin) flush(i - 1);
      column = at, first = lo = hi = i;
    }
    if (y[i] < y[lo]) lo = i;
    if (y[i] > y[hi]) hi = i;
  }
  if (end > begin) flush(end - 1);
  return out;
}

/** Index of the point of a curve that is nearest to a place. */
function nearest(x, at) {
  const i = lowerBound(x, at);
  if (i === 0) return 0;
  return i === x.length || at - x[i - 1] < x[i] - at ? i - 1 : i;
}

/** The range of the vertical axis; `calm` leaves the highest 1.5% out where they would flatten the rest. */
function valueRange(values, calm, log) {
  if (!values.length) return log ? [0.1, 1] : [0, 1];
  let lo = Infinity, hi = -Infinity;
  for (const v of values) lo = Math.min(lo, v), hi = Math.max(hi, v);
  const every = Math.ceil(values.length / 3000);
  const some = Float64Array.from(values.filter((_, i) => i % every === 0)).sort();
  const usual = some[Math.floor((some.length - 1) * 0.985)];
  if (calm && !log && values.length >= 40 && hi - lo > 1.6 * (usual - lo) && usual > lo) hi = usual + 0.15 * (usual - lo);
  const same = hi - lo <= Math.abs(hi) * 1e-6;                 // a constant, but for the rounding of means
  if (log) return same ? [lo / 1.5, hi * 1.5] : [lo / (hi / lo) ** 0.04, hi * (hi / lo) ** 0.04];
  const margin = same ? Math.abs(hi) * 0.05 || 1 : (hi - lo) * 0.05;
  return [lo >= 0 && lo < margin * 2 ? 0 : lo - margin, hi + margin];
}
