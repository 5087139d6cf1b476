// ---- axes.js: the horizontal axis: steps, tokens, time, FLOPs

const AXES = {
  step: {label: "Step", name: "step", write: v => "step " + grouped(v)},
  tokens: {label: "Tokens", name: "tokens", write: v => short(v, 4) + " tokens"},
  time: {label: "Time", name: "time in training steps", write: duration},
  flops: {label: "FLOPs", name: "FLOPs", write: v => power(v) + " FLOPs"},
};

/** FLOPs a token: as the run's own mfu counts them, else 6 N + 6 L C T; NaN where neither is known. */
function flopsPerToken(run) {
  const peak = run.start?.peak_tflops, {mfu, tokens_per_s: rate} = run.train;
  for (let i = run.train.step.length - 1; peak > 0 && mfu && rate && i >= 0; i--) {
    if (mfu[i] > 0 && rate[i] > 0) return mfu[i] * peak * 1e12 / rate[i];
  }
  const {layers, channels, context} = run.config?.model ?? {};
  return 6 * (run.start?.params ?? NaN) + (layers && channels && context ? 6 * layers * channels * context : 0);
}

/** The column with its gaps filled on straight lines over the steps; before the first value it begins at 0. */
function filled(steps, column) {
  const out = new Array(steps.length);
  let step = 0, value = 0;
  for (let i = 0, begin = 0; i < steps.length; i++) {
    if (!isNumber(column?.[i])) continue;
    for (let j = begin; j <= i; j++) {
      out[j] = steps[i] > step ? value + (column[i] - value) * (steps[j] - step) / (steps[i] - step) : column[i];
    }
    step = steps[i], value = column[i], begin = i + 1;
  }
  const slope = step > 0 ? value / step : NaN;
  for (let i = steps.length - 1; i >= 0 && out[i] === undefined; i--) out[i] = slope * steps[i];
  return out;
}

/** The train rows, with the finer rows of a zoom in place of the coarse ones. */
function trainTable(run) {
  if (!run.fine) return run.train;
  if (run.merged?.version === run.version) return run.merged.table;
  const {from, to, table: fine} = run.fine, coarse = run.train, table = {};
  const before = lowerBound(coarse.step, from), after = lowerBound(coarse.step, to + 1);
  const missing = new Array(fine.step.length).fill(NaN);
  for (const [key, column] of Object.entries(coarse)) {
    table[key] = column.slice(0, before).concat(fine[key] ?? missing, column.slice(after));
  }
  run.merged = {version: run.version, table};
  return table;
}

/** Places of the train rows on the axis `mode`; kept until the run changes. */
function trainAxis(run, mode) {
  if (run.axes?.version !== run.version) run.axes = {version: run.version};
  return run.axes[mode] ??= makeAxis(run, mode);
}

function makeAxis(run, mode) {
  const table = trainTable(run);
  if (mode === "step") return table.step;
  if (mode === "time") return filled(table.step, table.seconds);
  const tokens = filled(table.step, table.tokens);
  if (mode === "tokens") return tokens;
  const flops = flopsPerToken(run);
  return tokens.map(t => t * flops);
}

/** The place of a step, on a line between its neighbours. */
function placeOf(run, mode, step) {
  if (mode === "step") return step;
  const {step: steps} = trainTable(run), places = trainAxis(run, mode), n = steps.length;
  if (!n) return step === 0 ? 0 : NaN;
  const i = lowerBound(steps, step);
  if (i === n) return steps[n - 1] > 0 ? places[n - 1] * step / steps[n - 1] : NaN;
  const [s, p] = i ? [steps[i - 1], places[i - 1]] : [0, 0];
  return steps[i] > s ? p + (places[i] - p) * (step - s) / (steps[i] - s) : places[i];
}

/** The steps of a run that lie in [lo, hi] of the axis; one more on either side. */
function stepsWithin(run, mode, lo, hi) {
  const {step: steps} = trainTable(run), places = trainAxis(run, mode);
  const begin = Math.max(0, lowerBound(places, lo) - 1), end = Math.min(steps.length - 1, lowerBound(places, hi));
  return [steps[begin], steps[end]];
}
