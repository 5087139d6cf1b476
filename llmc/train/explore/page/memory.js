// ---- memory.js: bars of memory by purpose, one for each ZeRO stage, against the limit of the GPU

const PURPOSES = ["weights", "gradients", "optimizer", "activations", "other"];

function showMemory({plan, zero, machine}) {
  const limit = 1e9 * machine.memory_gb, most = Math.max(limit * 1.04, ...zero.map(z => z.memory_bytes));
  const own = plan.options.zero, dp = plan.mesh.dp, shards = plan.options.zero_group || dp;
  const rows = zero.map((z, level) => memoryRow(z, level, level === own, most, limit));
  const mark = make("div", {class: "limit", title: "limit"});
  mark.style.left = `${100 * limit / most}%`;
  const axis = make("div", {class: "limits"}, make("span", {text: `${machine.gpu}: ${bytes(limit)}`}));
  axis.firstChild.style.insetInlineEnd = `${100 - 100 * limit / most}%`;
  const names = PURPOSES.map((p, i) => [p === "optimizer" ? "optimizer state" : p, colour(i), bytes(plan.memory[p])]);
  const sharded = `ZeRO shards over ${grouped(shards)} data-parallel ranks`;
  setText(noteOf("memory"), "the fullest rank; " +
    (dp > 1 ? sharded : "one data-parallel rank: ZeRO shards nothing"));
  const bars = make("div", {class: "bars"}, axis, ...rows);
  for (const row of rows) row.querySelector(".bar").append(mark.cloneNode());
  pictureOf("memory").replaceChildren(bars, legendOf(names));
}

function memoryRow(plan, level, own, most, limit) {
  const bar = make("div", {class: "bar", role: "img"}), parts = [];
  PURPOSES.forEach((purpose, i) => {
    const part = make("div", {"data-part": purpose, title: `${purpose}: ${bytes(plan.memory[purpose])}`});
    part.style.width = `${100 * plan.memory[purpose] / most}%`;
    part.style.background = colour(i);
    parts.push(`${purpose} ${bytes(plan.memory[purpose])}`);
    bar.append(part);
  });
  const over = plan.memory_bytes > limit;
  bar.setAttribute("aria-label", `ZeRO ${level}: ${parts.join(", ")}`);
  const name = make("span", {class: "name"}, make("b", {text: `ZeRO ${level}`}),
    make("span", {class: "muted", text: `shards ${start.sharded[level]}`}));
  const total = make("span", {class: "total" + (over ? " over" : ""),
    text: `${bytes(plan.memory_bytes)}${over ? ", too much" : ""}`});
  const time = make("span", {class: "time muted", text: `${exactTime(plan.step_seconds)} a step`});
  return make("div", {class: "memory" + (own ? " own" : ""), "data-zero": level}, name, bar, total, time);
}
