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

const setOf = texts => new Set(texts.filter(Boolean)), sorted = set => [...set].sort();

// Members of the state in the address: name, key, from its texts (and the default), to texts. A set without
// elements that differs from the default is one empty text.
const IN_ADDRESS = [
  ["axis", "x", ([text], axis) => Object.hasOwn(AXES, text) ? text : axis, axis => [axis]],
  ["logx", "logx", ([text]) => text === "1", on => [Number(on)]],
  ["smooth", "smooth", ([text]) => Math.min(100, Math.max(0, Number(text) || 0)), percent => [percent]],
  ["marks", "marks", ([text]) => text !== "0", on => [Number(on)]],
  ["zoom", "zoom", ([text]) => zoomOf(text.split(":").map(Number)),
    zoom => zoom ? [zoom.map(v => Number(v.toPrecision(8))).join(":")] : []],
  ["words", "filter", ([text]) => text, words => [words]], ["sort", "sort", ([text]) => text, column => [column]],
  ["down", "down", ([text]) => text === "1", on => [Number(on)]],
  ["pins", "pin", setOf, sorted], ["off", "off", setOf, sorted], ["references", "ref", setOf, sorted],
  ["logy", "logy", setOf, sorted],
];

const zoomOf = zoom => zoom.length === 2 && zoom.every(isNumber) && zoom[0] < zoom[1] ? zoom : null;

function readAddress() {
  const p = new URLSearchParams(location.hash.slice(1)), d = defaults();
  for (const [name, key, read] of IN_ADDRESS) state[name] = p.has(key) ? read(p.getAll(key), d[name]) : d[name];
}

function writeAddress() {
  const p = new URLSearchParams(), d = defaults();
  for (const [name, key, , write] of IN_ADDRESS) {
    const texts = write(state[name]);
    if (texts.join() === write(d[name]).join()) continue;
    for (const text of texts.length ? texts : [""]) p.append(key, text);
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
