// ---- references.js: published results of other models, as dashed lines

// Validation losses. llm.c evaluates OpenAI's checkpoints on its FineWeb validation shard: losses on other text
// are not comparable.
const LLMC = "llm.c, dev/vislog.ipynb: OpenAI's checkpoint on llm.c's FineWeb validation shard";
const LOSSES = [
  {model: "GPT-2 124M", loss: 3.424958, source: LLMC},
  {model: "GPT-2 350M", loss: 3.083089, source: LLMC},
  {model: "GPT-2 774M", loss: 3.000580, source: LLMC},
  {model: "GPT-2 1558M", loss: 2.831273, source: LLMC},
  {model: "llm.c 124M, 10 B tokens", loss: 3.2722,
    source: "scripts/gpt2_124M.json: llm.c's reproduction, on FineWeb"},
];
const GPT3 = "GPT-3, best loss per compute";
const GPT3_SOURCE = "Brown et al. 2020, figure 3.1: L = 2.57 C^-0.048, C in PetaFLOP/s-days, on other text; "
  + "shown where the axis is FLOPs";
const SCORES = JSON.parse(byId("scores").textContent);

/** Loss at FLOPs by GPT-3's lower envelope (formula above). */
const gpt3Loss = flops => 2.57 * (flops / (1e15 * 86400)) ** -0.048;

/** Model -> its sources, for the list of references. Scores only of tasks that some run has. */
function referenceModels() {
  const models = new Map(), add = (model, source) => models.set(model, (models.get(model) ?? new Set()).add(source));
  LOSSES.forEach(r => add(r.model, r.source));
  add(GPT3, GPT3_SOURCE);
  const tasks = new Set([...runs.values()].flatMap(run => Object.keys(run.scores)));
  SCORES.filter(r => tasks.has(r.task)).forEach(r => add(r.model, r.source));
  return models;
}

/** The lines of a chart: {text, at: function of the place on the horizontal axis}. */
function referencesOf(spec, mode, on) {
  const lines = [];
  if (spec.name === "val/loss" || spec.name === "train/loss") {
    for (const r of LOSSES.filter(r => on.has(r.model))) {
      lines.push({text: `${r.model} ${r.loss.toFixed(3)}`, at: () => r.loss});
    }
    if (on.has(GPT3) && mode === "flops") lines.push({text: "GPT-3 envelope", at: gpt3Loss});
  }
  for (const r of SCORES) {
    if (spec.task === undefined || r.task !== spec.task || !on.has(r.model)) continue;
    lines.push({text: `${r.model} ${r.score}% (${r.rule})`, at: () => r.score / 100});
  }
  return lines;
}
