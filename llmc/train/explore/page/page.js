// ---- page.js: asks the planner, shows its answers

/** What the server answers on the settings: {object} or {wrong: a line}. */
async function ask(path, parameters = Object.fromEntries(settings)) {
  try {
    const answer = await fetch(address(path, parameters)), text = await answer.text();
    setText(byId("notice"), "");
    return answer.ok ? {object: JSON.parse(text), wrong: ""} : {object: null, wrong: text.trim()};
  } catch {
    setText(byId("notice"), "No connection to the server.");
    return {object: null, wrong: "No connection to the server: start it again by ./train_gpt --explore."};
  }
}

/** Asks for the newest settings; while an answer is under way, further changes wait for it. */
function asker(path, show) {
  let running = false, again = false;
  const run = async () => {
    again = running;
    if (running) return;
    running = true;
    do {
      again = false;
      const answer = await ask(path);
      if (!again) show(answer);
    } while (again);
    running = false;
  };
  return run;
}

let detail = null, speed = null;        // the newest answers

const askDetail = asker("detail.json", ({object, wrong}) => {
  if (object) detail = object;
  showWrong(wrong);
  showDetail();
});

const askSpeed = asker("speed.json", ({object}) => {
  if (object) speed = object;
  showCurve();
});

function showWrong(wrong) {
  byId("wrong").hidden = !wrong;
  setText(byId("wrong"), wrong);
  byId("results").classList.toggle("old", Boolean(wrong));
  byId("results").classList.toggle("none", !detail);
  byId("command").parentElement.hidden = Boolean(wrong);
  byId("whole").parentElement.hidden = !detail;
}

function showDetail() {
  if (!detail) return;
  showFigures(detail);
  showMemory(detail);
  showStep(detail);
  setText(byId("command"), detail.command);
  setText(byId("whole"), detail.config_text);
}

function showCurve() {
  if (speed) showSpeed(speed);
}

/** "$0.66", "$16,791", "$13.5M" */
function price(dollars) {
  if (dollars < 100) return "$" + dollars.toFixed(2);
  return "$" + (dollars < 1e6 ? grouped(dollars) : short(dollars));
}

const energy = kwh => kwh < 1e6 ? short(kwh) + " kWh" : short(kwh / 1e6) + " GWh";

function showFigures({plan, machine, run, config}) {
  const peak = config.run.precision === "bf16" ? machine.bf16_tflops : machine.fp32_tflops;
  const limit = 1e9 * machine.memory_gb, {dp, tp, pp, ranks} = plan.mesh;
  const fits = plan.fits ? "" : "does not fit";
  const figures = [
    ["Tokens/s", grouped(plan.tokens_per_second), `${grouped(plan.tokens_per_second / ranks)} a GPU`],
    ["Step", exactTime(plan.step_seconds), `micro-batch ${grouped(plan.options.micro_batch)}`],
    ["mfu", percent(plan.mfu), `of ${grouped(peak)} TFLOP/s`],
    ["Memory", bytes(plan.memory_bytes), fits || `of ${bytes(limit)}`, fits && "bad"],
    ["Bubble", percent(plan.bubble), `links: ${percent(plan.communication_exposed)}`],
    ["Run", duration(run.seconds), `${short(run.steps)} steps`],
    ["Price", run.dollars > 0 ? price(run.dollars) : "–", run.kwh > 0 ? energy(run.kwh) : ""],
  ];
  byId("figures").replaceChildren(...figures.map(([name, value, more, look]) => make("div", look ? {class: look} : {},
    make("dt", {text: name}), make("dd", {text: value}), make("dd", {class: "muted", text: more}))));
  setText(byId("model"), `${grouped(plan.params)} parameters on ${grouped(ranks)} x ${machine.gpu}: ` +
    `dp ${grouped(dp)}, tp ${tp}, pp ${pp}`);
  document.title = `${short(plan.params)} on ${grouped(ranks)} ${machine.gpu}`;
}

/** After a change of the settings. */
function changed() {
  writeAddress();
  for (const control of CONTROLS) control.show?.();
  setText(byId("settings"), JSON.stringify(asConfig(), null, 2));
  askDetail();
  askSpeed();
}

function redraw() {
  showDetail();
  showCurve();
}

function makeCopies() {
  for (const box of document.querySelectorAll(".copied")) {
    const button = box.querySelector("button");
    button.addEventListener("click", async () => {
      await navigator.clipboard?.writeText(box.querySelector("pre").textContent);
      setText(button, "Copied");
      setTimeout(() => setText(button, "Copy"), 1500);
    });
  }
}

const first = await ask("start.json", {});
if (first.object) {
  start = first.object;
  readAddress();
  makeControls();
  makeCopies();
  darkScreen.addEventListener("change", redraw);
  new ResizeObserver(redraw).observe(byId("results"));
  changed();
} else {
  showWrong(first.wrong);
}
