// ---- page.js: controls, events of the server, finer rows on zoom, when to draw

const embedded = JSON.parse(byId("data").textContent);          // the runs of a report; null: the page is live
const live = embedded === null;

// ---- when to draw: at most once a frame; for data no more than a quarter of the time

let frame = 0, cursorFrame = 0, timer = 0, cost = 0, lastDrawn = 0;

function redraw() {
  frame ||= requestAnimationFrame(drawAll);
}

function redrawCursor() {
  cursorFrame ||= requestAnimationFrame(drawCursors);
}

function dataCame() {
  timer ||= setTimeout(redraw, Math.max(0, lastDrawn + Math.max(120, 3 * cost) - performance.now()));
}

function drawAll() {
  const begin = performance.now(), shown = shownRuns();
  clearTimeout(timer);
  frame = timer = 0;
  arrangeCharts();
  const range = horizontalRange(shown);
  for (const chart of charts.values()) {
    if (chart.visible === null) continue;
    describeRuns(chart, shown);
    if (!chart.visible || !chart.plot.clientWidth) continue;
    layOut(chart, shown, range);
    drawChart(chart);
  }
  showLegend();
  showTable();
  showSettings(shown);
  showScores();
  showTexts();
  showRanks();
  showHealth();
  showAround();
  drawCursors();
  lastDrawn = performance.now();
  setTimeout(() => {                                            // after the browser has painted, too
    lastDrawn = performance.now();
    cost = lastDrawn - begin;
  });
}

function drawCursors() {
  cancelAnimationFrame(cursorFrame);
  cursorFrame = 0;
  lightLegend();
  const order = state.cursor ? readingOrder() : new Map();
  for (const chart of charts.values()) {
    if (chart.visible && chart.range) drawCursor(chart, order);
  }
}

/** What stands around the charts: title, folder, parts of the page. */
function showAround() {
  const training = [...runs.values()].filter(run => run.state === "training");
  const loss = training.length === 1 ? lastOf(training[0].train, "loss") : NaN;
  document.title = (isNumber(loss) ? `${loss.toFixed(3)}  ${training[0].name}  ` : "") + "train_gpt";
  setText(byId("folder"), live ? folderText() : [...runs.keys()].join(", "));
  byId("folder").title = folder?.version ?? "";
  byId("empty").hidden = runs.size > 0;
  const none = "No runs yet. A run appears as soon as its metrics.jsonl has a row.";
  setText(byId("empty"), live ? none : "The report holds no run.");
  byId("reset").hidden = !state.zoom && !state.heights.size;
  for (const button of byId("parts").children) button.hidden = byId(button.dataset.part).hidden;
  byId("parts").hidden = [...byId("parts").children].every(button => button.hidden);
  showReferences();
}

function folderText() {
  if (!folder) return "";
  const count = `${folder.folder}: ${folder.watching} run${folder.watching === 1 ? "" : "s"}`;
  return count + (folder.loading ? `, reading ${folder.loading}` : "");
}

// ---- controls

const PARTS = {
  charts: "Charts", table: "Runs", facts: "Summary", tasks: "Scores", texts: "Texts", ranks: "Ranks",
  health: "Health", settings: "Settings",
};

/** After a change of the view. */
function changed() {
  writeAddress();
  showControls();
  redraw();
  askForRows();
}

function showControls() {
  for (const input of byId("axes").querySelectorAll("input")) input.checked = input.value === state.axis;
  byId("logx").checked = state.logx;
  byId("smooth").value = state.smooth;
  byId("marks").checked = state.marks;
  if (byId("filter").value !== state.words) byId("filter").value = state.words;
}

function showReferences() {
  const models = referenceModels(), key = [...models.keys()].join("\n"), place = byId("models");
  if (place.dataset.models !== key) {
    place.dataset.models = key;
    place.replaceChildren(...[...models].map(([model, sources]) => {
      const box = make("input", {type: "checkbox", value: model});
      box.addEventListener("change", () => {
        state.references[box.checked ? "add" : "delete"](model);
        changed();
      });
      return make("label", {title: [...sources].join("\n")}, box, model);
    }));
  }
  for (const box of place.querySelectorAll("input")) box.checked = state.references.has(box.value);
}

function makeControls() {
  for (const [axis, {label}] of Object.entries(AXES)) {
    const input = make("input", {type: "radio", name: "axis", value: axis});
    input.addEventListener("change", () => {
      state.axis = axis;
      resetZoom();
    });
    byId("axes").append(make("label", {}, input, label));
  }
  byId("controls").addEventListener("submit", e => e.preventDefault());
  const on = (id, event, act) => byId(id).addEventListener(event, e => {
    act(e.target);
    changed();
  });
  on("logx", "change", box => { state.logx = box.checked; });
  byId("smooth").addEventListener("input", e => {               // the address follows when the slider rests
    state.smooth = Number(e.target.value);
    redraw();
  });
  on("smooth", "change", slider => { state.smooth = Number(slider.value); });
  on("marks", "change", box => { state.marks = box.checked; });
  byId("reset").addEventListener("click", resetZoom);
  on("filter", "input", field => { state.words = field.value; });
  const filtered = () => [...runs.values()].filter(passesFilter).map(run => run.name);
  on("all", "click", () => filtered().forEach(name => state.off.delete(name)));
  on("none", "click", () => filtered().forEach(name => state.off.add(name)));
  for (const [part, text] of Object.entries(PARTS)) {
    const button = make("button", {type: "button", text, "data-part": part});
    button.addEventListener("click", () => byId(part).scrollIntoView());
    byId("parts").append(button);
  }
  document.addEventListener("click", e => {
    for (const open of document.querySelectorAll("#controls details[open]")) if (!open.contains(e.target)) open.open = false;
  });
  window.addEventListener("hashchange", () => {
    readAddress();
    changed();
  });
  darkScreen.addEventListener("change", redraw);
}

// ---- finer rows: asked for where the page has a sample of the rows that a zoom shows

const ROWS = 2000, TOGETHER = 4, PATIENCE = 250;                // rows of an answer, requests at once, ms of quiet
let asking = 0, stopAsking = new AbortController();

function askForRows() {
  clearTimeout(asking);
  stopAsking.abort();
  if (live && state.zoom) asking = setTimeout(fetchRows, PATIENCE);
}

/** The steps to ask for; null where the rows that are there are all that there are. */
function wanted(run) {
  const {step: steps} = run.train;
  if (!run.sampled || steps.length < 2) return null;
  const [from, to] = stepsWithin(run, state.axis, ...state.zoom);
  const have = lowerBound(steps, to + 1) - lowerBound(steps, from);
  if (!(from < to) || have > to - from || (run.fine?.from === from && run.fine.to === to)) return null;
  return {run: run.name, from, to, points: ROWS};
}

async function fetchRows() {
  const {signal} = stopAsking = new AbortController();
  const waiting = shownRuns().map(wanted).filter(Boolean);
  const one = async () => {
    for (let next; (next = waiting.shift()) && !signal.aborted;) {
      try {
        const answer = await fetch(address("rows", next), {signal}), run = runs.get(next.run);
        if (!answer.ok || !run) continue;
        const table = {step: []};
        appendRows(table, (await answer.json()).train);
        if (signal.aborted || !table.step.length) continue;
        run.fine = {from: next.from, to: next.to, table};
        run.version++;
        dataCame();
      } catch { /* a newer zoom, or the server has gone: the coarse rows stay */ }
    }
  };
  await Promise.all(Array.from({length: TOGETHER}, one));
}

// ---- events of the server

let unheard = new Set();                // runs from before the connection was lost, until the server names them again

function connect() {
  const events = new EventSource(address("events"));
  const on = (name, act) => events.addEventListener(name, e => {
    act(JSON.parse(e.data));
    dataCame();
  });
  events.addEventListener("open", () => {
    setText(byId("notice"), "");
    unheard = new Set(runs.keys());
  });
  on("run", object => {
    receiveRun(object);
    unheard.delete(object.run);
  });
  on("gone", ({run}) => runs.delete(run));
  on("folder", now => {
    folder = now;
    if (now.loading > 0 || runs.size - unheard.size < now.watching) return;
    unheard.forEach(name => runs.delete(name));
    unheard.clear();
  });
  events.addEventListener("error", () => {
    setText(byId("notice"), "No connection to the server; trying again …");
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 2000);
  });
}

// ---- printing: the layout of paper, every chart drawn for its width, as a background (some viewers of PDF show no
// canvas)

function print(on) {
  document.documentElement.classList.toggle("print", on);
  for (const chart of charts.values()) chart.visible ||= on;
  for (const folded of document.querySelectorAll("#settings details")) folded.open = on;
  drawAll();
  for (const {plot, canvas} of charts.values()) {
    plot.style.background = on ? `url(${canvas.toDataURL()}) 0 0 / 100% 100%` : "";
  }
}

window.addEventListener("beforeprint", () => print(true));
window.addEventListener("afterprint", () => print(false));

readAddress();
makeControls();
showControls();
if (live) connect(); else embedded.forEach(receiveRun);
if (!live) byId("charts").before(byId("facts"));
if (live) setInterval(dataCame, 5000);                           // ages, and ranks that were drawn too early
redraw();
