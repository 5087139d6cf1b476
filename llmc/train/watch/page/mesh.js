// ---- mesh.js: the ranks as a picture

/**
 * Ranks that the others wait for. Each process writes at moments of its own: `age` is how long ago a rank was seen,
 * `seconds` how long it has done the same if nothing changed since. So steps of healthy ranks differ by what lies
 * between their moments, and at any moment some ranks are in a collective and some are not. A rank waits that has
 * stood in its collective for more than `patience` seconds. A rank is late that was seen when others had waited that
 * long, in an earlier step or as long outside of collectives; or that has not been seen for two periods of its file.
 */
function slowestRanks(all, patience) {
  const ranks = all.filter(r => isNumber(r.step)), age = r => r.age ?? 0, stood = r => r.seconds - age(r);
  const period = Math.max(2, all.length / 16), isSilent = r => age(r) > 2 * period + patience;  // log/rank_file.cpp
  const waiting = ranks.filter(r => r.collective && stood(r) > patience && !isSilent(r));
  const step = waiting.reduce((most, r) => Math.max(most, r.step), -1);
  const longest = waiting.reduce((most, r) => r.step === step ? Math.max(most, r.seconds) : most, 0);
  const late = ranks.filter(r => {
    if (r.step > step) return false;
    const isBehind = r.step < step || !r.collective && stood(r) > patience;
    return isSilent(r) || isBehind && longest - age(r) > patience;
  });
  const least = late.reduce((least, r) => Math.min(least, r.step), Infinity);
  return new Set(late.filter(r => r.step === least).map(r => r.rank));
}

/** Seconds in a collective that are no part of healthy steps. */
const patienceOf = run => Math.max(2, 3e-3 * (typicalMs(run.train) || 0));

const NAMED = 64, SHOWN = 4096;         // ranks of a run with words, and as squares whose hints have the words

function makeTile(r, slow, named) {
  const place = Object.entries(r.place ?? {}).map(([axis, index]) => `${axis} ${index}`).join("  ");
  const wait = r.wait || r.collective, since = duration(r.seconds);
  const doing = wait ? `${r.doing}, ${wait}` : String(r.doing ?? "");
  const hint = `rank ${r.rank} (${place}): ${doing} for ${since}` + (slow ? "; the others wait for this rank" : "");
  const kind = slow ? " slowest" : r.collective ? " waits" : "";
  const tile = make("div", {class: "tile" + kind + (named ? "" : " square"), title: hint});
  tile.dataset.rank = r.rank;
  if (named) tile.append(
    make("div", {}, make("b", {text: `rank ${r.rank}` + (slow ? ", slowest" : "")})),
    make("div", {class: "muted", text: place}), make("div", {text: wait || doing}),
    make("div", {text: `step ${grouped(r.step)}, ${since}`}));
  return tile;
}

let ranksAt = -1e9;                        // when the ranks were drawn last: at most once a second

function showRanks() {
  if (performance.now() < ranksAt + 1000) return;
  const panel = byId("ranks"), having = shownRuns().filter(run => run.ranks?.length > 0).sort(byName);
  panel.hidden = !having.length;
  if (!having.length) return;
  ranksAt = performance.now();
  const parts = [panel.firstElementChild];
  for (const run of having.slice(0, 8)) {
    const slow = slowestRanks(run.ranks, patienceOf(run)), hosts = new Map();
    for (const r of run.ranks.slice(0, SHOWN)) {
      if (!hosts.has(r.host)) hosts.set(r.host, []);
      hosts.get(r.host).push(r);
    }
    const boxes = [...hosts].map(([host, ranks]) => {
      const named = run.ranks.length <= NAMED, kind = named ? "tiles" : "squares";
      const tiles = ranks.sort((a, b) => a.rank - b.rank).map(r => makeTile(r, slow.has(r.rank), named));
      return make("div", {class: "host"}, make("h3", {text: String(host ?? "")}), make("div", {class: kind}, ...tiles));
    });
    const late = slow.size ? `, slowest: rank ${[...slow].slice(0, 4).join(", ")}` : "";
    const count = `${run.ranks.length} ranks on ${hosts.size} host${hosts.size > 1 ? "s" : ""}${late}`;
    parts.push(make("div", {class: "picker"}, make("span", {text: run.name}), make("span", {class: "muted", text: count})),
      make("div", {class: "hosts"}, ...boxes));
  }
  if (having.length > 8) parts.push(make("p", {class: "muted", text: `and ${having.length - 8} more runs`}));
  panel.replaceChildren(...parts);
}
