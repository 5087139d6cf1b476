// ---- cursor.js: the crosshair, which reads all curves of all charts; the highlighted run; the box of a zoom

const READ = 8;                         // curves in the table of a chart without the pointer; fewer in a low chart
const ROW = 17;                         // pixels of the table's row
const BEYOND = 4;                       // pixels between the end of a curve and a cursor that is beyond it

/** The nearest point of each curve to the cursor; beyond: whether the curve ends before the cursor or begins after. */
function readings(chart) {
  const {at, chart: here, y} = state.cursor, found = [], cursor = chart.place(at);
  for (const line of chart.lines) {
    const i = nearest(line.x, at), x = chart.place(line.x[i]);
    const until = i === line.x.length - 1 && cursor > x + BEYOND && "until ";
    const beyond = until || i === 0 && cursor < x - BEYOND && "from ";
    const away = here === chart.spec.name && y !== null ? Math.abs(chart.rise(line.main[i]) - y) : 0;
    if (x < EDGE.left - 1 || x > chart.width - EDGE.right + 1) continue;
    found.push({line, i, x, y: chart.rise(line.main[i]), away, beyond});
  }
  return found;
}

/** Runs in the order in which tables list them: the highlighted, then those nearest to the pointer in its chart. */
function readingOrder() {
  const here = charts.get(state.cursor.chart), lit = r => Number(r.line.run.name === state.lit);
  const order = here ? readings(here).sort((a, b) => lit(b) - lit(a) || a.away - b.away).map(r => r.line.run.name)
    : [];
  return new Map([...new Set(order)].map((name, i) => [name, i]));
}

function drawCursor(chart, order) {
  const {width, height} = chart;
  if (!width) return;
  const c = fitCanvas(chart.overlay, width, height);
  clipToPlot(chart, c);
  drawHighlight(chart, c);
  if (chart.drag?.box) {
    const {x0, y0, x1, y1} = chart.drag.box;
    c.fillStyle = variable("--accent"), c.globalAlpha = 0.14;
    c.fillRect(x0, y0, x1 - x0, y1 - y0);
    c.globalAlpha = 1;
  }
  const rows = state.cursor ? readings(chart) : [];
  if (state.cursor) {
    const x = Math.round(chart.place(state.cursor.at)) + 0.5;
    c.strokeStyle = variable("--muted"), c.lineWidth = 1;
    c.beginPath();
    c.moveTo(x, EDGE.top), c.lineTo(x, height - EDGE.bottom);
    c.stroke();
    const dots = rows.filter(r => !r.beyond && (rows.length <= 40 || (order.get(r.line.run.name) ?? READ) < READ));
    for (const {line, x, y} of dots) {
      c.fillStyle = colourOf(line.run), c.strokeStyle = variable("--panel"), c.lineWidth = 1.5;
      c.beginPath();
      c.arc(x, y, 4, 0, 7);
      c.fill(), c.stroke();
    }
  }
  c.restore();
  showTip(chart, rows, order);
}

function drawHighlight(chart, c) {
  const lines = chart.lines.filter(line => line.run.name === state.lit);
  if (!lines.length || new Set(chart.lines.map(line => line.run)).size < 2) return;
  c.fillStyle = variable("--panel"), c.globalAlpha = 0.72;
  c.fillRect(EDGE.left + 1, 0, chart.width, chart.height - EDGE.bottom - 1);
  for (const line of lines) {
    const raw = line.raw ?? drawn(line.x, line.y, chart.place, line.begin, line.end);
    if (line.main !== line.y) drawLine(chart, c, line, raw, line.y, {width: 1, alpha: 0.3});
    drawLine(chart, c, line, line.indices, line.main, {width: 2.4, alpha: 1});
  }
  if (state.marks && !markedRuns(chart).length) drawMarks(chart, c, [lines[0].run]);
}

const nameOf = line => line.run.name + (line.second ? ", dashed" : "");

/**
 * The table beside the crosshair: where it is, and the nearest point of each curve. The chart with the pointer lists
 * all curves, and shows those around the pointer or the highlighted one; the others list the first in the order.
 */
function showTip(chart, rows, order) {
  const {tip, spec} = chart;
  tip.hidden = !rows.length || Boolean(chart.drag?.box);
  if (tip.hidden) return;
  const fit = Math.floor((chart.height - EDGE.bottom - 44) / ROW), all = spec.name === state.cursor.chart;
  const rank = r => order.get(r.line.run.name) ?? order.size, ranked = rows.slice().sort((a, b) => rank(a) - rank(b));
  const listed = ranked.slice(0, all ? rows.length : Math.min(READ, fit)).sort((a, b) => a.y - b.y);
  const table = make("table"), list = make("div", {class: "list"}, table);
  list.style.maxHeight = `${fit * ROW}px`;
  for (const {line, i, beyond} of listed) {
    const swatch = make("span", {class: "swatch"}), smooth = line.main !== line.y && chart.width > 480;
    drawSwatch(swatch, line.run, dashesOf(line));
    const last = beyond ? beyond + AXES[state.axis].write(line.x[i]) : smooth ? WRITE[spec.write](line.y[i]) : "";
    table.append(make("tr", {class: beyond ? "muted" : line.run.name === state.lit ? "lit" : ""}, make("td", {}, swatch),
      make("td", {class: "name", text: nameOf(line)}), make("td", {text: WRITE[spec.write](line.main[i])}),
      make("td", {class: "muted", text: last})));
  }
  const x = chart.place(state.cursor.at), more = rows.length - listed.length;
  const marked = markedRuns(chart), of = marked.length ? marked : [runs.get(state.lit)].filter(Boolean);
  const ofRun = mark => of.length > 1 ? `${mark.run.name}: ` : "";
  const marks = state.marks ? marksOf(chart, of).filter(m => Math.abs(m.x - x) < 5).slice(0, 3) : [];
  tip.replaceChildren(make("div", {class: "muted", text: AXES[state.axis].write(state.cursor.at)}), list,
    ...marks.map(m => make("div", {text: ofRun(m) + (m.text || `${m.kind} at step ${m.step}`)})));
  if (more > 0) tip.append(make("div", {class: "muted", text: `and ${more} more`}));
  if (listed.length > fit) {
    const row = table.children[listed.indexOf(ranked[0])];
    list.scrollTop = row.offsetTop - (list.clientHeight - row.offsetHeight) / 2;
    tip.append(make("div", {class: "muted", text: `${listed.length} curves: up and down shows the others`}));
  }
  const wide = tip.offsetWidth, left = x > chart.width / 2 ? x - 12 - wide : x + 12;
  tip.style.left = `${Math.max(0, Math.min(chart.width - wide, left))}px`;
}

/** What a screen reader says of the crosshair. */
function speak(chart) {
  const write = WRITE[chart.spec.write];
  const said = readings(chart).map(({line, i}) => `${nameOf(line)} ${write(line.y[i])}`);
  setText(byId("spoken"), `${AXES[state.axis].write(state.cursor.at)}: ${said.join(", ")}`);
}
