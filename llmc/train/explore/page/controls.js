// ---- controls.js: sliders and choices, each of one setting

const powers = (from, to) => Array.from({length: Math.log2(to / from) + 1}, (_, i) => from * 2 ** i);
const LAYERS = [1, 2, 4, 6, 8, 12, 16, 24, 28, 30, 32, 36, 40, 48, 64, 80, 96, 112, 126, 160, 192, 256];
const WIDTHS = [256, 512, 768, 1024, 1280, 1600, 2048, 2560, 3072, 4096, 5120, 6144, 8192, 12288, 16384];

const CONTROLS = [
  {title: "Model"},
  {key: "model.layers", name: "Layers", steps: LAYERS},
  {key: "model.channels", name: "Width", steps: WIDTHS, unit: ["channel"], set: setWidth},
  {key: "model.context", name: "Context", steps: powers(256, 131072), unit: ["token"]},
  {title: "Batch"},
  {key: "train.batch_tokens", name: "Batch", steps: powers(16384, 2 ** 26), unit: ["token", " a step"]},
  {key: "train.micro_batch", name: "Micro-batch", steps: [0, ...powers(1, 64)], unit: ["sequence"],
   text: v => v === 0 ? "as many as fit" : null},
  {title: "GPUs"},
  {key: "cluster.gpu", name: "Kind", kind: "select"},
  {key: "parallel.ranks", name: "Number", steps: powers(1, 16384), unit: ["GPU"]},
  {title: "Mesh"},
  {key: "parallel.tp", name: "Tensor parallel", steps: powers(1, 64), unit: ["rank"]},
  {key: "parallel.pp", name: "Pipeline", steps: [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64], unit: ["stage"]},
  {key: "parallel.virtual_stages", name: "Interleaved", steps: [1, 2, 3, 4, 5, 6, 8], unit: ["chunk", " a stage"],
   set: setChunks},
  {key: "parallel.zero", name: "ZeRO stage", kind: "radio"},
  {key: "parallel.zero_group", name: "ZeRO within", steps: [0, ...powers(2, 64)], unit: ["rank"],
   text: v => v === 0 ? "all ranks" : null},
  {title: "Memory"},
  {key: "memory.recompute", name: "Recompute", kind: "radio"},
  {key: "memory.offload", name: "Offload to the host", kind: "radio"},
];

/** "1 chunk a stage", "8 ranks" */
const counted = (v, [one, more = ""] = []) => grouped(v) + (one ? ` ${one}${v === 1 ? "" : "s"}${more}` : "");

const setPlainly = key => value => settings.set(key, String(value));

/** A slider over sensible steps; a value between them becomes a step. */
function makeSlider(control) {
  const id = control.key.replace(".", "_"), set = control.set ?? setPlainly(control.key);
  const input = make("input", {type: "range", id, min: 0, step: 1}), shown = make("output", {for: id});
  let steps = control.steps;
  control.show = () => {
    const value = valueOf(control.key);
    steps = control.steps.includes(value) || !isNumber(value) ? control.steps
      : [...control.steps, value].sort((a, b) => a - b);
    input.max = steps.length - 1;
    input.value = steps.indexOf(value);
    const text = control.text?.(value) ?? counted(value, control.unit);
    setText(shown, text);
    input.setAttribute("aria-valuetext", text);
  };
  input.addEventListener("input", () => {
    set(steps[input.value]);
    changed();
  });
  return make("div", {class: "control"}, make("label", {for: id, text: control.name}), shown, input);
}

function makeRadios(control) {
  const choices = start.choices[control.key], buttons = choices.map(value => {
    const input = make("input", {type: "radio", name: control.key, value});
    input.addEventListener("change", () => {
      settings.set(control.key, String(value));
      changed();
    });
    return input;
  });
  control.show = () => {
    for (const button of buttons) button.checked = button.value === String(valueOf(control.key));
  };
  const labels = buttons.map((button, i) => make("label", {}, button, String(choices[i])));
  const choice = make("fieldset", {class: "choice"}, make("legend", {text: control.name}), ...labels);
  return make("div", {class: "control"}, make("span", {text: control.name, "aria-hidden": "true"}), choice);
}

function makeSelect(id, name, options, choose) {
  const select = make("select", {id}, ...options.map(([value, text]) => make("option", {value, text})));
  select.addEventListener("change", () => {
    choose(select.value);
    changed();
  });
  return [select, make("div", {class: "control"}, make("label", {for: id, text: name}), select)];
}

function makeKinds(control) {
  const own = start.own_machine;        // of cluster.file: no setting names it
  const kinds = start.machines.map(m => [m.gpu, `${m.gpu}, ${m.memory_gb} GB`]);
  if (own) kinds.unshift(["", `cluster.file: ${own.gpu || "a machine"}, ${own.memory_gb} GB`]);
  const [select, row] = makeSelect("cluster_gpu", control.name, kinds, gpu => {
    if (gpu) settings.set("cluster.gpu", gpu); else settings.delete("cluster.gpu");
    settings.delete("cluster.memory_gb");
  });
  control.show = () => { select.value = own && !settings.get("cluster.gpu") ? "" : valueOf("cluster.gpu"); };
  return row;
}

function makePresets() {
  const names = start.presets.map(preset => [preset.name, preset.name.replace("_", " ")]);
  const [select, row] = makeSelect("preset", "Preset", [["", "another model"], ...names], name => {
    const preset = start.presets.find(p => p.name === name);
    if (preset) takePreset(preset);
  });
  CONTROLS.push({show: () => {
    const preset = currentPreset();
    select.value = preset?.name ?? "";
    select.title = preset?.about ?? "";
  }});
  return row;
}

function makeControls() {
  const form = byId("controls");
  form.addEventListener("submit", e => e.preventDefault());
  for (const control of [...CONTROLS]) {
    if (control.title) form.append(make("h2", {text: control.title}));
    if (control.title === "Model") form.append(makePresets());
    if (control.title === "Mesh") form.append(makeBest());
    if (control.title) continue;
    const kind = {radio: makeRadios, select: makeKinds}[control.kind] ?? makeSlider;
    form.append(kind(control));
  }
}

// ---- the fastest mesh, by the planner's search

function makeBest() {
  const button = make("button", {type: "button", id: "best", text: "Find the fastest mesh"});
  const said = make("span", {id: "found", role: "status", class: "muted"});
  button.addEventListener("click", async () => {
    button.disabled = true;
    setText(said, "searching …");
    const {object, wrong} = await ask("best.json");
    button.disabled = false;
    setText(said, wrong || (object.plan ? `fastest of ${grouped(object.examined)} plans` : "no plan fits"));
    if (!object?.plan) return;
    for (const [key, value] of Object.entries(object.settings)) settings.set(key, value);
    changed();
  });
  return make("div", {class: "control"}, button, said);
}
