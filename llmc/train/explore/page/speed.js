// ---- speed.js: tokens a second over numbers of GPUs, with the same mesh, batch and ZeRO stage

const AXIS = {left: 56, right: 14, top: 26, bottom: 34, height: 260};

function showSpeed({points, missing}) {
  const box = pictureOf("speed"), width = box.clientWidth;
  if (!points.length) return box.replaceChildren(make("p", {class: "muted", text: missing[0]?.why ?? ""}));
  const {tp, pp} = points[0].mesh;
  setText(noteOf("speed"), `batch, tp = ${tp}, pp = ${pp}, ZeRO and recompute as set; both axes logarithmic`);
  const lost = missing.find(m => m.ranks > points.at(-1).mesh.ranks);
  box.replaceChildren(drawSpeed(points, width), legendOf([["fits", colour(0), ""], ["does not fit", "hollow", ""],
    ["perfect scaling from the fewest that fit", "dashed", ""]]),
    make("p", {class: "muted", text: lost ? `${grouped(lost.ranks)} GPUs: ${lost.why.trim()}` : ""}));
}

function drawSpeed(points, width) {
  const ranks = points.map(p => p.mesh.ranks), speeds = points.map(p => p.tokens_per_second);
  const first = points.find(p => p.fits) ?? points[0], ideal = n => first.tokens_per_second / first.mesh.ranks * n;
  const [lo, hi] = [Math.min(...ranks) / 1.3, Math.max(...ranks) * 1.3];
  const [low, high] = [Math.min(...speeds) / 1.6, Math.max(...speeds, ideal(Math.max(...ranks))) * 1.3];
  const x = scale(lo, hi, AXIS.left, width - AXIS.right, true);
  const y = scale(low, high, AXIS.height - AXIS.bottom, AXIS.top, true);
  const picture = svg("svg", {width, height: AXIS.height, role: "img", "aria-label": "tokens a second over GPUs"});
  for (const {at, text} of logTicks(low, high, 4, "plain")) {
    picture.append(svg("path", {d: `M${AXIS.left} ${y(at)}H${width - AXIS.right}`, class: "grid"}),
      svg("text", {x: AXIS.left - 6, y: y(at), class: "tick side", text}));
  }
  const step = Math.max(1, Math.ceil(points.length * 52 / (width - AXIS.left)));
  points.forEach(({mesh}, i) => {
    if (i % step === 0) picture.append(svg("text", {x: x(mesh.ranks), y: AXIS.height - 18, class: "tick",
      "text-anchor": "middle", text: grouped(mesh.ranks)}));
  });
  picture.append(svg("text", {x: (AXIS.left + width) / 2, y: AXIS.height - 3, class: "tick", text: "GPUs",
    "text-anchor": "middle"}), svg("text", {x: 2, y: 10, class: "tick", text: "tokens/s"}));
  const line = f => points.map((p, i) => `${i ? "L" : "M"}${x(p.mesh.ranks)} ${y(f(p))}`).join("");
  picture.append(svg("path", {d: line(p => ideal(p.mesh.ranks)), class: "ideal"}));
  picture.append(svg("path", {d: line(p => p.tokens_per_second), class: "curve", stroke: colour(0)}));
  for (const p of points) picture.append(pointOf(p, x(p.mesh.ranks), y(p.tokens_per_second)));
  return picture;
}

function pointOf(p, left, top) {
  const own = p.mesh.ranks === valueOf("parallel.ranks");
  const text = `${grouped(p.mesh.ranks)} GPUs: ${grouped(p.tokens_per_second)} tokens/s, mfu ${percent(p.mfu)}, ` +
    `${bytes(p.memory_bytes)}${p.fits ? "" : ", does not fit"}`;
  const circle = svg("circle", {cx: left, cy: top, r: own ? 6 : 4, stroke: colour(0), "stroke-width": 2,
    fill: p.fits ? colour(0) : "var(--panel)", class: own ? "own" : ""}, svg("title", {text}));
  circle.dataset.ranks = p.mesh.ranks;
  circle.dataset.fits = p.fits;
  return circle;
}
