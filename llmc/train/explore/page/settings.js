// ---- settings.js: the state: settings by the config's own keys, kept in the address, so that it can be shared

let start = null;                       // what the server says of its config, GPUs and presets
const settings = new Map();             // key -> text, as on the command line

/** The settings of the address, and what they need besides; an address without settings is that of the first state. */
function readAddress() {
  const stated = [...new URLSearchParams(location.search)].filter(([key]) => key !== "token");
  settings.clear();
  for (const [key, value] of Object.entries(stated.length ? start.needed : start.first)) settings.set(key, value);
  for (const [key, value] of stated) settings.set(key, value);
}

function writeAddress() {
  window.history.replaceState(null, "", address("", Object.fromEntries(settings)));
}

/** The value of a key: of the state, else of the program's config. */
function valueOf(key) {
  const [section, name] = key.split(".");
  return settings.has(key) ? plainValue(settings.get(key)) : start.config[section]?.[name];
}

/** A text of the command line as a JSON value. */
function plainValue(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** The state as a config file: sections with their keys. */
function asConfig() {
  const config = {};
  for (const [key, text] of [...settings].sort()) {
    const [section, name] = key.split(".");
    (config[section] ??= {})[name] = plainValue(text);
  }
  return config;
}

// ---- presets

const isOfPreset = key => key.startsWith("model.") || key.startsWith("train.") || key === "optimizer.kind";

/** The preset with this model; undefined: no preset has it. */
function currentPreset() {
  const ofModel = key => key.startsWith("model.");
  return start.presets.find(({settings: theirs}) => {
    const value = key => key in theirs ? plainValue(theirs[key]) : start.config.model[key.slice(6)];
    const keys = [...settings.keys(), ...Object.keys(theirs)].filter(ofModel);
    return keys.every(key => String(value(key)) === String(valueOf(key)));
  });
}

function takePreset(preset) {
  for (const key of [...settings.keys()]) if (isOfPreset(key)) settings.delete(key);
  const all = {"model.vocab": "50257", "train.batch_tokens": "524288", ...preset.settings};
  for (const [key, value] of Object.entries(all)) settings.set(key, value);
}

// ---- settings that go together

/** Another width: heads of the same size, and a feed-forward layer of the same shape. */
function setWidth(channels) {
  const before = valueOf("model.channels"), heads = valueOf("model.heads"), ffn = valueOf("model.ffn_channels");
  const size = [128, 96, 80, 64].find(s => s * heads === before && channels % s === 0) ?? 64;
  const shared = valueOf("model.kv_heads");
  settings.set("model.channels", String(channels));
  settings.set("model.heads", String(channels / size));
  if (shared) settings.set("model.kv_heads", String(greatestDivisor(channels / size, shared)));
  if (ffn) settings.set("model.ffn_channels", String(256 * Math.max(1, Math.round(ffn * channels / before / 256))));
}

const greatestDivisor = (n, most) => n % most === 0 ? most : greatestDivisor(n, most - 1);

/** Several chunks of layers a stage are the interleaved schedule. */
function setChunks(chunks) {
  settings.set("parallel.virtual_stages", String(chunks));
  settings.set("parallel.schedule", chunks > 1 ? "interleaved" : "1f1b");
}
