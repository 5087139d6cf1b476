// ---- scores.js: the table of scores: the last of each run, and published ones

const withError = (value, error) =>
  !isNumber(value) ? "" : percent(value) + (isNumber(error) ? ` \u00b1 ${(100 * error).toFixed(1)}` : "");

const SCORE_COLUMNS = [
  ["Task", "left"], ["Model", "left"], ["Step", ""], ["Documents", ""], ["Accuracy", ""], ["Normalized", ""],
  ["Chance", ""],
];

/** A row of a run: the figures of its last scoring of the task. */
function scoreCells(run, task) {
  const last = key => lastOf(run.scores[task], key);
  return [task, run.name, grouped(last("step")), grouped(last("documents")),
    withError(last("accuracy"), last("stderr")), withError(last("accuracy_norm"), last("stderr_norm")),
    percent(last("chance"))];
}

/** Scores by a sum of log probabilities, or greedy, are accuracies; by length they are normalized. */
function publishedCells({task, model, rule, score}) {
  const plain = rule === "sum" || rule === "greedy", text = `${score}%`;
  return [task, model, "", "", plain ? text : "", plain ? "" : text, ""];
}

function showScores() {
  const panel = byId("tasks"), having = shownRuns().filter(run => Object.keys(run.scores).length).sort(byName);
  panel.hidden = !having.length;
  if (!having.length) return;
  const tasks = [...new Set(having.flatMap(run => Object.keys(run.scores)))].sort(), rows = [];
  for (const task of tasks) {
    for (const run of having.filter(run => run.scores[task])) {
      rows.push({cells: scoreCells(run, task), run: run.name});
    }
    for (const r of SCORES.filter(r => r.task === task)) {
      rows.push({cells: publishedCells(r), hint: `${r.rule}: ${r.source}`});
    }
  }
  const text = JSON.stringify(rows), place = panel.querySelector(".wide");
  if (place.dataset.shown === text) return;
  place.dataset.shown = text;
  const body = rows.map(({cells, run, hint}) =>
    make("tr", run === undefined ? {class: "muted", title: hint} : {"data-run": run},
      ...cells.map((text, i) => make("td", {text, class: SCORE_COLUMNS[i][1]}))));
  place.replaceChildren(makeTable(SCORE_COLUMNS, body));
}
