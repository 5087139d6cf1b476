// ---- format.js: numbers and times as people read them, ticks and scales of axes, colours, elements

const isNumber = Number.isFinite;
const SUFFIXES = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]];
const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

/** Three significant digits with k, M, B or T; powers of ten where neither fits. */
function short(v, digits = 3) {
  if (!isNumber(v)) return "–";
  const size = Math.abs(v);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) {
    return v.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
  }
  const [unit, suffix] = SUFFIXES.find(([unit]) => size >= unit * 0.9995) ?? [1, ""];
  return String(Number((v / unit).toPrecision(digits))) + suffix;
}

const whole = new Intl.NumberFormat("en-US", {maximumFractionDigits: 0});
const grouped = v => isNumber(v) ? whole.format(v) : "–";
const percent = (v, digits = 1) => isNumber(v) ? (100 * v).toFixed(digits) + "%" : "–";
const fixed = (v, digits) => isNumber(v) ? v.toFixed(digits) : "–";

/** Bytes in units of 1,000: "1.23 GB". */
function bytes(v) {
  if (!isNumber(v)) return "–";
  const [unit, name] = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([u]) => v >= u) ?? [1, "B"];
  return Number((v / unit).toPrecision(3)) + " " + name;
}

/** Seconds in the largest unit that leaves at least 1: "3.4 h". */
function duration(v) {
  if (!isNumber(v)) return "–";
  const [name, seconds] = UNITS.find(([, s]) => v >= s) ?? UNITS[3];
  return Number((v / seconds).toPrecision(v / seconds < 100 ? 2 : 3)) + " " + name;
}

/** How a chart or an axis writes its values: with as many digits as people compare. */
const WRITE = {
  loss: v => fixed(v, 4), plain: v => short(v, 4), percent: v => percent(v, 2), rate: v => short(v, 4),
  step: grouped, tokens: v => short(v, 4), time: duration, flops: v => power(v),
  ms: v => short(v, 4) + " ms", joules: v => short(v, 4) + " J", bytes,
};

// ---- ticks

/** The width of a step of 1, 2 or 5 times a power of ten, for about `count` ticks over `range`. */
function niceStep(range, count) {
  const raw = range / Math.max(1, count), power = 10 ** Math.floor(Math.log10(raw));
  return power * ([1, 2, 5].find(m => m * power >= raw) ?? 10);
}

function linearTicks(lo, hi, count, kind) {
  if (!(hi - lo > Math.max(Math.abs(lo), Math.abs(hi)) * 1e-9)) return [{at: hi, text: logText(hi, kind)}];      // steps below the last bit
  if (kind === "time") return timeTicks(lo, hi, count);
  const scale = kind === "percent" ? 100 : 1;
  let step = niceStep((hi - lo) * scale, count);
  if (kind === "step") step = Math.max(1, step);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), large = Math.max(Math.abs(lo), Math.abs(hi));
  const text = v => kind === "flops" ? power(v) : kind === "bytes" ? bytes(v) : kind === "percent" ? v.toFixed(digits) + "%"
    : large < 1e4 && (digits <= 3 || v === 0) ? v.toFixed(v === 0 && digits > 3 ? 0 : digits)
    : short(v, Math.max(2, Math.ceil(Math.log10(large / step)) + 1));
  const ticks = [];
  for (let i = Math.ceil(lo * scale / step - 1e-6); i * step <= hi * scale * (1 + 1e-9) + 1e-300; i++) {
    ticks.push({at: i * step / scale, text: text(i * step)});
  }
  return ticks;
}

function timeTicks(lo, hi, count) {
  const [name, seconds] = UNITS.find(([, s]) => hi - lo >= 2 * s) ?? UNITS[3];
  const steps = {h: [1, 2, 3, 6, 12, 24], d: [1, 2, 5, 7, 14, 28, 56]}[name] ?? [1, 2, 5, 10, 15, 20, 30, 60];
  const range = (hi - lo) / seconds;
  const step = steps.find(s => range / s <= count) ?? niceStep(range, count);
  const ticks = [];
  for (let i = Math.ceil(lo / seconds / step - 1e-6); i * step * seconds <= hi; i++) {
    ticks.push({at: i * step * seconds, text: `${i * step} ${name}`});
  }
  return ticks;
}

/** Ticks of a logarithmic axis: powers of ten, with 2 and 5 between where there are few. REQUIRES: lo > 0. */
function logTicks(lo, hi, count, kind) {
  const decades = Math.log10(hi / lo);
  if (decades < 0.7) return linearTicks(lo, hi, count * 1.6, kind);
  const every = Math.max(1, Math.ceil(decades / count)), between = decades * 3 <= count + 2 ? [1, 2, 5] : [1];
  const ticks = [];
  for (let p = Math.floor(Math.log10(lo)); 10 ** p <= hi; p++) {
    if (p % every) continue;
    for (const m of between) {
      const at = m * 10 ** p;
      if (at >= lo * 0.9999 && at <= hi * 1.0001) ticks.push({at, text: logText(at, kind)});
    }
  }
  return ticks;
}

const power = v => v === 0 ? "0" : v.toExponential(2).replace(/\.?0*e\+?/, "e");

function logText(v, kind) {
  if (kind === "flops") return power(v);
  if (kind === "time") return duration(v);
  if (kind === "bytes") return bytes(v);
  return kind === "percent" ? short(100 * v) + "%" : short(v);
}

/** A function from values to pixels. REQUIRES: lo > 0 where log. */
function scale(lo, hi, from, to, log) {
  const f = log ? Math.log : v => v, a = f(lo), k = (to - from) / (f(hi) - a || 1);
  return v => from + (f(v) - a) * k;
}

function unscale(lo, hi, from, to, log, pixel) {
  const t = (pixel - from) / (to - from || 1);
  return log ? lo * (hi / lo) ** t : lo + (hi - lo) * t;
}

// ---- colours: Okabe and Ito's palette, adapted to the two backgrounds (jfly.uni-koeln.de/color)

const COLOURS = {
  light: ["#0072b2", "#d55e00", "#009e73", "#b8528f", "#b07d00", "#3d9bd1", "#6a4fa3", "#5c6670"],
  dark: ["#4aa8e8", "#ff8c42", "#2fc99a", "#e48fc0", "#f0b83a", "#8ccdf5", "#ab93e6", "#aab4bd"],
};
const DASHES = [[], [6, 3], [2, 2], [8, 3, 2, 3]];          // the next eight runs have the same colours, dashed
const darkScreen = matchMedia("(prefers-color-scheme: dark)");

const colourOf = run => COLOURS[darkScreen.matches ? "dark" : "light"][run.index % 8];
const dashOf = run => DASHES[Math.floor(run.index / 8) % DASHES.length];

/** Gives an element the colour and the dashes of a line. */
function drawSwatch(element, run, dashes) {
  const colour = colourOf(run), stops = [];
  let at = 0;
  for (const [i, length] of dashes.entries()) {
    stops.push(`${i % 2 ? "transparent" : colour} ${at}px ${at += length}px`);
  }
  element.style.background = stops.length ? `repeating-linear-gradient(90deg, ${stops.join(", ")})` : colour;
}

const variable = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// ---- elements

const byId = id => document.getElementById(id);

/** Makes elements. What comes from runs is set as text or as an attribute, never as HTML. */
const maker = namespace => (tag, {text, ...attributes} = {}, ...children) => {
  const element = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
};
const make = maker("http://www.w3.org/1999/xhtml"), svg = maker("http://www.w3.org/2000/svg");

/** A table. heads: [text, class of the column]; rows: elements tr. */
function makeTable(heads, rows = []) {
  const cells = heads.map(([text, side]) => make("th", {text, scope: "col", class: side}));
  return make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows));
}

/** Writes only what changed: a page with 100 runs touches few elements a second. */
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Removes what stands for names that went. */
function forget(known, isThere, remove) {
  for (const [name, item] of known) {
    if (isThere(name)) continue;
    remove(item);
    known.delete(name);
  }
}

function setData(element, name, value) {
  const text = String(value);
  if (element.dataset[name] !== text) element.dataset[name] = text;
}
