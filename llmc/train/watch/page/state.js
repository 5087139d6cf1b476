// ---- state.js: what the controls say; kept in the address, so that a view can be shared

const state = defaults();

function defaults() {
  return {
    axis: "step", logx: false, smooth: 20, marks: true, zoom: null, off: new Set(), references: new Set(),
    logy: new Set(CHARTS.filter(c => c.log).map(c => c.name)), heights: new Map(),
    words: "", pins: new Set(),         // the filter of runs; runs at the top of the table
    sort: "", down: false,              // a column of the table of runs; largest first
    lit: null,                          // name of the highlighted run
    cursor: null,                       // {chart, at, y}: place on the horizontal axis, pixels from the top or null
  };
}

function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1)), d = defaults();
  const list = (key, otherwise) => p.has(key) ? new Set(p.getAll(key).filter(Boolean)) : otherwise;
  const zoom = (p.get("zoom") ?? "").split(":").map(Number);
  Object.assign(state, {
    axis: Object.hasOwn(AXES, p.get("x") ?? "") ? p.get("x") : d.axis,
    logx: p.get("logx") === "1",
    smooth: p.has("smooth") ? Math.min(100, Math.max(0, Number(p.get("smooth")) || 0)) : d.smooth,
    marks: p.get("marks") !== "0",
    zoom: zoom.length === 2 && zoom.every(isNumber) && zoom[0] < zoom[1] ? zoom : null,
    off: list("off", d.off), references: list("ref", d.references), logy: list("logy", d.logy),
    words: p.get("filter") ?? "", pins: list("pin", d.pins), sort: p.get("sort") ?? "", down: p.get("down") === "1",
  });
}

function writeAddress() {
  const p = new URLSearchParams(), d = defaults();
  if (state.axis !== d.axis) p.set("x", state.axis);
  if (state.logx) p.set("logx", "1");
  if (state.smooth !== d.smooth) p.set("smooth", state.smooth);
  if (!state.marks) p.set("marks", "0");
  if (state.zoom) p.set("zoom", state.zoom.map(v => Number(v.toPrecision(8))).join(":"));
  for (const [key, text] of [["filter", state.words], ["sort", state.sort], ["down", state.down ? "1" : ""]]) {
    if (text) p.set(key, text);
  }
  for (const name of state.pins) p.append("pin", name);
  for (const name of state.off) p.append("off", name);
  for (const name of state.references) p.append("ref", name);
  if ([...state.logy].sort().join() !== [...d.logy].sort().join()) {
    for (const name of state.logy.size ? state.logy : [""]) p.append("logy", name);
  }
  const hash = p.toString();
  if (hash !== location.hash.slice(1)) {
    try {
      window.history.replaceState(null, "", hash ? "#" + hash : location.pathname + location.search);
    } catch { /* a page from a file may not set its address everywhere */ }
  }
}

const passesFilter = run => run.name.toLowerCase().includes(state.words.toLowerCase());
const shownRuns = () => [...runs.values()].filter(run => passesFilter(run) && !state.off.has(run.name));

/** The range of the horizontal axis over all shown runs, or the zoom. */
function horizontalRange(shown) {
  let lo = Infinity, hi = -Infinity;
  for (const run of shown) {
    const validated = [0, -1].map(i => run.val.step.at(i)).filter(isNumber).map(s => placeOf(run, state.axis, s));
    const places = trainAxis(run, state.axis), first = places.findIndex(p => isNumber(p) && (p > 0 || !state.logx));
    for (const p of [places[first], places.at(-1), ...validated]) {
      if (isNumber(p) && (p > 0 || !state.logx)) lo = Math.min(lo, p), hi = Math.max(hi, p);
    }
  }
  if (state.zoom && !(state.logx && state.zoom[0] <= 0)) return state.zoom;
  if (state.zoom) return [Math.min(lo, state.zoom[1] / 2), state.zoom[1]];
  if (!(lo <= hi)) return [1, 10];
  if (!state.logx && lo > 0 && lo < hi / 20) lo = 0;
  const margin = lo < hi ? 0 : Math.max(0.5, Math.abs(hi) * 1e-6);
  return [lo - (state.logx ? lo / 2 * Math.sign(margin) : margin), hi + margin];
}
