// ---- step.js: what the step is made of, and its stages over time

const PARTS = [["products", "matrix products"], ["attention", "attention"], ["other", "other ops"],
  ["exposed", "waiting for links"], ["bubble", "pipeline bubble"]];
const DOING = {F: "forward", B: "backward", W: "gradients of matrices", N: "gradient norm", U: "update",
  C: "clearing"};
const LABEL = 70, GAP = 54;             // pixels: names of the stages; the place of what is left out

function showStep({plan, step, drawing}) {
  const whole = plan.step_seconds, share = part => step[part] / whole;
  const strip = make("div", {class: "strip", role: "img",
    "aria-label": PARTS.map(([part, name]) => `${name} ${percent(share(part))}`).join(", ")});
  const look = (part, i) => part === "bubble" ? "bubble" : colour(i);
  PARTS.forEach(([part], i) => {
    const segment = make("div", {"data-part": part, "data-share": share(part)});
    segment.style.width = percent(share(part), 3);
    if (part === "bubble") segment.className = "bubble"; else segment.style.background = colour(i);
    strip.append(segment);
  });
  const several = drawing.of_stages > 1, shown = PARTS.filter(([part]) => several || part !== "bubble");
  const names = shown.map(([part, name], i) => [name, look(part, i), percent(share(part))]);
  const hidden = step.hidden > 0 ? `; ${exactTime(step.hidden)} of communication beside the ops` : "";
  setText(noteOf("step"), `${exactTime(whole)} of the busiest stage${hidden}`);
  const box = make("div", {class: "timeline"});
  pictureOf("step").replaceChildren(strip, legendOf(names), box, legendOf(spanNames(drawing)),
    make("p", {class: "muted", text: timelineText(plan, drawing)}));
  box.append(drawTimeline(drawing, box.clientWidth));
}

function spanNames(drawing) {
  const kinds = new Set(drawing.stages.flatMap(row => row.spans.map(([kind]) => kind)));
  const names = Object.entries(DOING).filter(([kind]) => kinds.has(kind)).map(([kind, name]) => [name, kind]);
  return [...names,
    ...(drawing.of_stages > 1 ? [["waiting for another stage", "bubble"]] : [])]
    .map(([name, look]) => [name, look, ""]);
}

function timelineText(plan, drawing) {
  const {of_stages: all, stages, busiest, micros_left_out: left} = drawing;
  const out = [`Stage ${busiest} is the busiest: ${percent(plan.bubble)} of its step is bubble.`];
  if (all > stages.length) out.push(`${stages.length} of ${all} stages are drawn.`);
  if (left) out.push(`${grouped(left)} micro-batches like those beside the gap are left out.`);
  return (all > 1 ? out : out.slice(1)).join(" ");
}

/** Rows of stages: the row is the bubble, and spans of work lie on it. */
function drawTimeline(drawing, width) {
  const {stages, seconds, cut, seconds_left_out: missing, micros_left_out: left} = drawing;
  const height = stages.length > 8 ? 15 : 24, room = Math.max(80, width - LABEL - (missing ? GAP : 0) - 4);
  const x = t => LABEL + t / seconds * room + (missing && t > cut ? GAP : 0);
  const picture = svg("svg", {width, height: stages.length * (height + 3) + 24, role: "img",
    "aria-label": "stages of the pipeline over the time of a step"});
  picture.append(hatching());
  let numbers = 400;                    // micro-batches that are written into their spans, at most
  stages.forEach((row, i) => {
    const top = i * (height + 3), name = drawing.of_stages > 1 ? `stage ${row.stage}` : "one stage";
    const group = svg("g", {"data-stage": row.stage, "data-waits": row.waits});
    group.append(svg("title", {text: `${name}: waits ${exactTime(row.waits)} for other stages`}),
      svg("text", {x: 0, y: top + height / 2, class: "name", text: name}),
      svg("rect", {x: x(0), y: top, width: x(seconds) - x(0), height, class: "waits"}));
    for (const [look, d] of pathsOf(row.spans, x, top, height, drawing)) {
      group.append(svg("path", {d, class: look}));
    }
    for (const [kind, , micro, begin, end] of row.spans) {
      if (x(end) - x(begin) < 18 || !"FB".includes(kind) || numbers-- <= 0) continue;
      group.append(svg("text", {x: (x(begin) + x(end)) / 2, y: top + height / 2, class: "micro",
        text: missing && begin > cut ? micro + left : micro}));
    }
    picture.append(group);
  });
  const bottom = stages.length * (height + 3);
  if (missing) picture.append(gapAt(LABEL + cut / seconds * room, bottom, missing));
  picture.append(...timeAxis(drawing, x, bottom));
  return picture;
}

/** A path of rectangles for each kind of work and parity of chunks; spans over the cut are two. */
function pathsOf(spans, x, top, height, {cut, seconds_left_out: missing}) {
  const paths = new Map();
  for (const [kind, chunk, , begin, end] of spans) {
    const look = kind + (chunk % 2 ? " odd" : "");
    const sides = missing && begin < cut && end > cut ? [[begin, cut], [cut * (1 + 1e-12), end]] : [[begin, end]];
    for (const [from, to] of sides) {
      const wide = x(to) - x(from), thin = wide > 4 ? 0.8 : 0;
      const box = `M${x(from).toFixed(2)} ${top}h${(wide - thin).toFixed(2)}v${height}h${(thin - wide).toFixed(2)}z`;
      paths.set(look, (paths.get(look) ?? "") + box);
    }
  }
  return paths;
}

function hatching() {
  const line = svg("path", {d: "M-1 7L7 -1M5 7L7 5M-1 1L1 -1", class: "hatch"});
  return svg("defs", {}, svg("pattern", {id: "hatch", width: 6, height: 6, patternUnits: "userSpaceOnUse"}, line));
}

function gapAt(left, height, missing) {
  return svg("g", {}, svg("rect", {x: left, y: 0, width: GAP, height, class: "gap"}),
    svg("text", {x: left + GAP / 2, y: height / 2, class: "micro", text: "+" + duration(missing)}));
}

function timeAxis({seconds, cut, seconds_left_out: missing}, x, top) {
  const ticks = linearTicks(0, seconds, 6, "plain").filter(({at}) => at < seconds * 0.93);
  const shown = ticks.map(({at}) => [x(at), exactTick(at + (missing && at > cut ? missing : 0))]);
  shown.push([x(seconds), exactTick(seconds + missing)]);
  return shown.map(([left, text], i) => svg("text", {x: left, y: top + 14, class: "tick", text,
    "text-anchor": i === 0 ? "start" : i === shown.length - 1 ? "end" : "middle"}));
}

const exactTick = v => v === 0 ? "0 s" : v < 1 ? short(1e3 * v) + " ms" : short(v) + " s";
