// ---- draw.js: what the drawings share

const colour = i => COLOURS[darkScreen.matches ? "dark" : "light"][i];
const pictureOf = id => byId(id).querySelector(".picture");
const noteOf = id => byId(id).querySelector(".unit");

/** Seconds with four digits: "63.46 ms", "12.05 s". */
function exactTime(v) {
  if (!isNumber(v)) return "–";
  if (v >= 1000) return grouped(v) + " s";
  return v < 1 ? (1e3 * v).toPrecision(4) + " ms" : v.toPrecision(4) + " s";
}

/** Names with swatches. entries: [name, colour or class, text behind the name] */
function legendOf(entries) {
  return make("ul", {class: "legend"}, ...entries.map(([name, look, text]) => {
    const swatch = make("i", {class: "swatch" + (look.startsWith("#") ? "" : " " + look)});
    if (look.startsWith("#")) swatch.style.background = look;
    return make("li", {}, swatch, make("span", {text: name}), make("span", {class: "muted", text}));
  }));
}
