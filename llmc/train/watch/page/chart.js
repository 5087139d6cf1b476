// ---- chart.js: a chart: its elements, its layout, its curves on a canvas

const EDGE = {left: 54, right: 14, top: 8, bottom: 36};         // pixels around the plot
const MANY = 24;                // more runs: thin lines without dashes and single rows, columns of 2 pixels
const charts = new Map();                                       // name -> chart
const seen = new IntersectionObserver(entries => {
  for (const e of entries) {
    const chart = charts.get(e.target.dataset.chart);
    if (chart && (chart.visible = e.isIntersecting)) redraw();
  }
}, {rootMargin: "150px"});
const resized = new ResizeObserver(() => redraw());

function makeChart(spec) {
  const log = make("input", {type: "checkbox", "aria-label": `Logarithmic axis of ${spec.title}`});
  const canvas = make("canvas", {"aria-hidden": "true"}), overlay = make("canvas", {"aria-hidden": "true"});
  const tip = make("div", {class: "tip", hidden: ""}), list = make("ul", {class: "unseen"});
  const keys = "Arrow keys move the cursor, plus and minus zoom, Escape resets.";
  const label = {tabindex: "0", role: "group", "aria-label": `${spec.title} ${spec.unit}. ${keys}`};
  const plot = make("div", {class: "plot", ...label}, canvas, overlay, tip);
  const figure = make("figure", {}, make("figcaption", {}, make("b", {text: spec.title}),
    make("span", {class: "unit", text: spec.unit}),
    make("label", {title: "Logarithmic vertical axis"}, log, "log")), plot, list);
  figure.dataset.chart = spec.name;
  const chart = {
    spec, element: figure, log, canvas, overlay, tip, list, plot,
    visible: null, lines: [], items: new Map(), drag: null,        // null: the observer has not looked yet
  };
  log.addEventListener("change", () => {
    state.logy[log.checked ? "add" : "delete"](spec.name);
    state.heights.delete(spec.name);
    changed();
  });
  listen(chart);
  seen.observe(figure);
  resized.observe(plot);
  return chart;
}

/** Makes and removes charts, so that there is one for whatever some run has data for. */
function arrangeCharts() {
  const specs = chartsOfRuns(), names = new Set(specs.map(s => s.name)), place = byId("charts");
  forget(charts, name => names.has(name), ({element, plot}) => {
    seen.unobserve(element);
    resized.unobserve(plot);
    element.remove();
  });
  let before = null;
  for (const spec of specs) {
    if (!charts.has(spec.name)) charts.set(spec.name, makeChart(spec));
    const {element} = charts.get(spec.name), next = before ? before.nextSibling : place.firstChild;
    if (next !== element) place.insertBefore(element, next);
    element.classList.toggle("first", before === null);
    before = element;
  }
}

/** One element for each shown run, for those who hear the page: the last value; points and last step as data. */
function describeRuns(chart, shown) {
  const present = new Set();
  for (const run of shown) {
    const known = chart.items.get(run.name);
    if (known?.version === run.version) {
      present.add(run.name);
      continue;
    }
    const table = tableOf(run, chart.spec), key = chart.spec.keys.find(k => isNumber(lastOf(table, k)));
    if (!key) continue;
    present.add(run.name);
    const item = known?.element ?? make("li", {"data-run": run.name, "data-points": 0});
    if (!known) chart.list.append(item);
    chart.items.set(run.name, {element: item, version: run.version});
    setData(item, "step", lastStep(table));
    setText(item, `${run.name}: ${WRITE[chart.spec.write](lastOf(table, key))} at step ${lastStep(table)}`);
  }
  forget(chart.items, name => present.has(name), ({element}) => element.remove());
}

// ---- drawing

function fitCanvas(canvas, width, height) {
  const isPaper = document.documentElement.classList.contains("print"), ratio = isPaper ? 2 : window.devicePixelRatio || 1;
  const w = Math.round(width * ratio), h = Math.round(height * ratio);
  if (canvas.width !== w || canvas.height !== h) canvas.width = w, canvas.height = h;
  const c = canvas.getContext("2d");
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  c.clearRect(0, 0, width, height);
  c.font = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
  return c;
}

/** Places, ranges and points of all curves of a chart. A run that did not change keeps its points. */
function layOut(chart, shown, range) {
  const width = chart.plot.clientWidth, height = chart.plot.clientHeight;
  const {spec} = chart, logy = state.logy.has(spec.name), [lo, hi] = range;
  const right = width - EDGE.right, place = scale(lo, hi, EDGE.left, right, state.logx);
  const half = spec.rows && state.smooth > 0 ? (state.smooth / 100) ** 2 * 80 : 0;
  const many = shown.length > MANY, view = [width, lo, hi, state.axis, state.logx, logy, half, many].join();
  const kept = chart.view === view ? chart.kept : new Map(), next = new Map();
  for (const run of shown) {
    const old = kept?.get(run), {version} = run;
    const same = old?.version === version;
    next.set(run, same ? old : {version, lines: linesOf(run, spec, {place, range, half, logy, many})});
  }
  const lines = [...next.values()].flatMap(entry => entry.lines);
  const references = referencesOf(spec, state.axis, state.references);
  const heights = state.heights.get(spec.name) ?? heightsOf(lines, references, spec, logy, range);
  const rise = scale(...heights, height - EDGE.bottom, EDGE.top, logy);
  Object.assign(chart, {view, kept: next, lines, references, width, height, range, place, logy, heights, rise, many});
}

/** The range of the vertical axis. A calm chart leaves the first 2.5% of its width out, where a loss falls from ln V,
 *  if points remain; of many runs the means count alone. References are within. */
function heightsOf(lines, references, spec, logy, [lo, hi]) {
  const begin = spec.calm && !state.logx ? lo + (hi - lo) / 40 : lo, values = [], early = [];
  for (const line of lines) {
    for (const i of line.indices) (line.x[i] < begin ? early : values).push(line.main[i]);
    for (const i of line.raw ?? []) (line.x[i] < begin ? early : values).push(line.y[i]);
  }
  const range = valueRange(values.length > 2 * lines.length ? values : values.concat(early), spec.calm, logy);
  for (const v of references.map(r => r.at(hi))) {
    if (isNumber(v)) range[0] = Math.min(range[0], v * 0.99), range[1] = Math.max(range[1], v * 1.01);
  }
  return range;
}

/** The curves of a run: main is drawn at indices; behind a mean the single rows at raw, of many runs null. */
function linesOf(run, spec, {place, range: [lo, hi], half, logy, many}) {
  return curvesOf(run, spec, state.axis, state.logx, logy).map(curve => {
    const begin = Math.max(0, lowerBound(curve.x, lo) - 1);
    const end = Math.min(curve.x.length, lowerBound(curve.x, hi) + 1);
    const main = half && curve.y.length > 2 ? smoothed(curve.x, curve.y, place, half) : curve.y;
    const raw = main === curve.y || many ? null : drawn(curve.x, curve.y, place, begin, end);
    return {...curve, main, raw, begin, end, indices: drawn(curve.x, main, place, begin, end, many ? 2 : 1)};
  });
}

/** Nothing is drawn outside of the axes, until restore(). */
function clipToPlot({width, height}, c) {
  c.save();
  c.beginPath();
  c.rect(EDGE.left, EDGE.top - 4, width - EDGE.right - EDGE.left + 4, height - EDGE.bottom - EDGE.top + 5);
  c.clip();
}

function drawChart(chart) {
  const {width, height} = chart, c = fitCanvas(chart.canvas, width, height);
  const right = width - EDGE.right, low = height - EDGE.bottom;
  if (width < 80) return;
  drawAxes(chart, c, right, low);
  clipToPlot(chart, c);
  drawReferences(chart, c, right);
  c.lineJoin = chart.many ? "bevel" : "round";
  for (const line of chart.lines) {
    if (line.raw) drawLine(chart, c, line, line.raw, line.y, {width: 1, alpha: 0.22});
  }
  const pen = chart.many ? {width: 1.1, alpha: 0.75, solid: true} : {width: 1.7, alpha: 1};
  for (const line of chart.lines) drawLine(chart, c, line, line.indices, line.main, pen);
  c.restore();
  nameReferences(chart, c, right);
  if (state.marks) drawMarks(chart, c, markedRuns(chart));
  const points = new Map();
  for (const {run, raw, indices} of chart.lines) {
    points.set(run.name, (points.get(run.name) ?? 0) + (raw ?? indices).length);
  }
  for (const [name, {element}] of chart.items) setData(element, "points", points.get(name) ?? 0);
  chart.log.checked = chart.logy;
}

const dashesOf = line => line.second ? [4, 3] : dashOf(line.run);

function drawLine(chart, c, line, indices, values, {width, alpha, solid}) {
  c.strokeStyle = c.fillStyle = colourOf(line.run);
  c.globalAlpha = alpha;
  c.lineWidth = width;
  c.setLineDash(solid && !line.second ? [] : dashesOf(line));
  c.beginPath();
  for (const i of indices) c.lineTo(chart.place(line.x[i]), chart.rise(values[i]));
  c.stroke();
  c.setLineDash([]);
  if (indices.length <= 40 && values === line.main) {
    for (const i of indices) {
      c.beginPath();
      c.arc(chart.place(line.x[i]), chart.rise(values[i]), 2.4, 0, 7);
      c.fill();
    }
  }
  c.globalAlpha = 1;
}

function drawAxes(chart, c, right, low) {
  const {spec, range, heights, logy} = chart;
  const columns = Math.max(2, Math.floor((right - EDGE.left) / 70));
  const rows = Math.max(3, Math.floor((low - EDGE.top) / 34));
  const across = (state.logx ? logTicks : linearTicks)(...range, columns, state.axis);
  const up = (logy ? logTicks : linearTicks)(...heights, rows, spec.write);
  c.lineWidth = 1;
  c.strokeStyle = variable("--grid");
  c.beginPath();
  for (const {at} of up) {
    const y = Math.round(chart.rise(at)) + 0.5;
    if (y > EDGE.top - 1 && y < low) c.moveTo(EDGE.left, y), c.lineTo(right, y);
  }
  c.stroke();
  c.strokeStyle = variable("--line");
  c.beginPath();
  c.moveTo(EDGE.left, low + 0.5), c.lineTo(right, low + 0.5);
  for (const {at} of across) {
    const x = Math.round(chart.place(at)) + 0.5;
    c.moveTo(x, low), c.lineTo(x, low + 4);
  }
  c.stroke();
  c.fillStyle = variable("--muted");
  c.textAlign = "right", c.textBaseline = "middle";
  for (const {at, text} of up) {
    const y = chart.rise(at);
    if (y > EDGE.top - 3 && y < low + 3) c.fillText(text, EDGE.left - 8, y);
  }
  c.textAlign = "center", c.textBaseline = "top";
  for (const {at, text} of across) {
    const x = chart.place(at), half = c.measureText(text).width / 2;
    c.fillText(text, Math.min(x, chart.width - half - 1), low + 7);
  }
  c.textAlign = "right";
  c.fillText(AXES[state.axis].name, right, low + 21);
}

function drawReferences(chart, c, right) {
  c.strokeStyle = variable("--muted");
  c.lineWidth = 1;
  for (const {at} of chart.references) {
    c.setLineDash([5, 4]);
    c.beginPath();
    for (let x = EDGE.left; x <= right; x += 4) {
      const y = chart.rise(at(unscale(...chart.range, EDGE.left, right, state.logx, x)));
      if (isNumber(y)) c.lineTo(x, y);
    }
    c.stroke();
    c.setLineDash([]);
  }
}

/** The names of the references, over the curves: below the line where there is no room above. */
function nameReferences(chart, c, right) {
  c.fillStyle = variable("--muted"), c.strokeStyle = variable("--panel"), c.lineWidth = 3;
  c.textAlign = "right", c.textBaseline = "alphabetic";
  for (const {text, at} of chart.references) {
    const line = chart.rise(at(chart.range[1])), y = line < EDGE.top + 14 ? line + 13 : line - 4;
    c.strokeText(text, right, y);
    c.fillText(text, right, y);
  }
}

/** The runs of a chart whose marks are drawn with the curves; of more than 4 none: the highlight has its own. */
function markedRuns(chart) {
  const of = [...new Set(chart.lines.map(line => line.run))];
  return of.length <= 4 ? of : [];
}

/** Restarts, skipped steps, spikes, rollbacks and checkpoints of runs, with their place on the axis, as far as in view. */
function marksOf(chart, of) {
  const placed = (run, mark) => ({...mark, run, x: chart.place(placeOf(run, state.axis, mark.step))});
  return of.flatMap(run => run.marks.map(mark => placed(run, mark)))
    .filter(m => m.x >= EDGE.left - 1 && m.x <= chart.width - EDGE.right + 1);
}

// From the foot of the mark. The others are filled; a restart also has a line to the top.
const SHAPES = {
  checkpoint: "M0-4L3 0L0 4L-3 0", skipped: "M-3-9L3-3M3-9L-3-3", spike: "M-4-11L0-19L4-11",
  rollback: "M-5-15L1-20V-17H5V-13H1V-10",
};

function drawMarks(chart, c, of) {
  const low = chart.height - EDGE.bottom;
  for (const {x, kind, run} of marksOf(chart, of)) {
    const restart = `M0${EDGE.top + 6 - low}L-4${EDGE.top - 1 - low}H4`, path = new Path2D(SHAPES[kind] ?? restart);
    c.fillStyle = c.strokeStyle = ["skipped", "spike", "rollback"].includes(kind) ? variable("--bad") : colourOf(run);
    c.save();
    c.translate(x, low);
    c.lineWidth = 1.4;
    if (kind === "skipped") c.stroke(path); else c.fill(path);
    if (!SHAPES[kind]) {
      c.globalAlpha = 0.55, c.lineWidth = 1;
      c.setLineDash([2, 3]);
      c.stroke(new Path2D(`M0${EDGE.top - low}V0`));
    }
    c.restore();
  }
}
