// ---- pointer.js: pointer and keyboard on a chart: crosshair, zoom, highlight

const CLICK = 5, BOX = 34;              // pixels: less is no drag; a box that is higher zooms the vertical axis, too

function listen(chart) {
  const {plot} = chart;
  plot.addEventListener("pointermove", e => movePointer(chart, e));
  plot.addEventListener("pointerleave", e => {
    if (!chart.drag && e.pointerType === "mouse") clearCursor();       // after a touch the crosshair stays
  });
  plot.addEventListener("pointerdown", e => {
    if (e.button !== 0) return;
    const [x, y] = inPlot(chart, e);
    chart.drag = {x, y, box: null};
    if (e.pointerType === "mouse") plot.setPointerCapture(e.pointerId);
    movePointer(chart, e);
  });
  plot.addEventListener("pointerup", e => endDrag(chart, e));
  plot.addEventListener("pointercancel", () => {
    chart.drag = null;
    clearCursor();
  });
  plot.addEventListener("dblclick", resetZoom);
  plot.addEventListener("keydown", e => {
    if (pressKey(chart, e)) e.preventDefault();
  });
  plot.addEventListener("blur", clearCursor);
}

/** The pointer's place in the plot, in pixels. */
function inPlot(chart, e) {
  const box = chart.plot.getBoundingClientRect(), clamp = (v, lo, hi) => Math.min(hi, Math.max(lo, v));
  return [clamp(e.clientX - box.left, EDGE.left, chart.width - EDGE.right),
    clamp(e.clientY - box.top, EDGE.top, chart.height - EDGE.bottom)];
}

const valueAt = (chart, x) => unscale(...chart.range, EDGE.left, chart.width - EDGE.right, state.logx, x);
const heightAt = (chart, y) => unscale(...chart.heights, chart.height - EDGE.bottom, EDGE.top, chart.logy, y);

function movePointer(chart, e) {
  if (!chart.range) return;
  const [x, y] = inPlot(chart, e), {drag} = chart;
  state.cursor = {chart: chart.spec.name, at: valueAt(chart, x), y};
  if (drag && Math.abs(x - drag.x) > CLICK) {
    const tall = Math.abs(y - drag.y) > BOX;
    drag.box = {x0: Math.min(x, drag.x), x1: Math.max(x, drag.x), tall,
      y0: tall ? Math.min(y, drag.y) : EDGE.top, y1: tall ? Math.max(y, drag.y) : chart.height - EDGE.bottom};
  } else if (!drag) {
    const near = readings(chart).sort((a, b) => a.away - b.away)[0];
    light(near && near.away < 14 ? near.line.run.name : null);
  }
  redrawCursor();
}

function endDrag(chart) {
  const box = chart.drag?.box;
  chart.drag = null;
  if (!box) return;
  const zoom = [valueAt(chart, box.x0), valueAt(chart, box.x1)];
  if (zoom[1] - zoom[0] > Math.abs(zoom[1]) * 1e-7) state.zoom = zoom;
  if (box.tall) state.heights.set(chart.spec.name, [heightAt(chart, box.y1), heightAt(chart, box.y0)]);
  changed();
}

function clearCursor() {
  state.cursor = null;
  light(null);
  redrawCursor();
}

function resetZoom() {
  state.zoom = null;
  state.heights.clear();
  for (const run of runs.values()) {
    if (run.fine) run.fine = null, run.version++;
  }
  changed();
}

/** Highlights a run in all charts and in the legend; null: none. */
function light(name) {
  if (state.lit === name) return;
  state.lit = name;
  redrawCursor();
}

// ---- keyboard

function pressKey(chart, e) {
  if (!chart.range || e.ctrlKey || e.metaKey || e.altKey) return false;
  const keys = {ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity};
  if (e.key in keys) return moveCursor(chart, keys[e.key] * (e.shiftKey ? 10 : 1));
  if (e.key === "ArrowUp" || e.key === "ArrowDown") return nextRun(e.key === "ArrowUp" ? -1 : 1);
  if (e.key === "+" || e.key === "=") return zoomBy(chart, 0.5);
  if (e.key === "-") return zoomBy(chart, 2);
  if (e.key !== "Escape") return false;
  clearCursor();
  resetZoom();
  return true;
}

/** Moves the crosshair by hundredths of the width. */
function moveCursor(chart, hundredths) {
  const left = EDGE.left, right = chart.width - EDGE.right;
  const from = state.cursor ? chart.place(state.cursor.at) : (left + right) / 2;
  const x = Math.min(right, Math.max(left, from + hundredths * (right - left) / 100));
  state.cursor = {chart: chart.spec.name, at: valueAt(chart, x), y: null};
  speak(chart);
  redrawCursor();
  return true;
}

function nextRun(by) {
  const names = shownRuns().sort(byName).map(run => run.name), i = names.indexOf(state.lit);
  light(names[(i + by + names.length) % names.length] ?? null);
  return true;
}

/** Zooms by a factor around the crosshair; outwards no further than all there is. */
function zoomBy(chart, factor) {
  const left = EDGE.left, right = chart.width - EDGE.right;
  const middle = state.cursor ? Math.min(right, Math.max(left, chart.place(state.cursor.at))) : (left + right) / 2;
  const ends = [left, right].map(x => valueAt(chart, middle + (x - middle) * factor));
  const before = state.zoom;
  state.zoom = null;
  const all = horizontalRange(shownRuns()), zoom = [Math.max(all[0], ends[0]), Math.min(all[1], ends[1])];
  const whole = zoom[0] <= all[0] && zoom[1] >= all[1];
  state.zoom = zoom[1] - zoom[0] < Math.abs(zoom[1]) * 1e-7 ? before : whole ? null : zoom;
  changed();
  return true;
}
