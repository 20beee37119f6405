// Puts the page together: lanes, files, theme and keys.

const boot = JSON.parse(document.getElementById("boot").textContent);
const given = JSON.parse(document.getElementById("trace").textContent);
const place = document.getElementById("lanes");
const empty = document.getElementById("empty");
const versus = new Versus(document.getElementById("versus"));
const lanes = [];
let playground = null;

function showAlert(message) {
  setText(document.getElementById("alert"), message);
}

/** Show so many lanes; a second one begins with the settings of the first. */
function setLanes(count) {
  while (lanes.length > count) lanes.pop().refs.root.remove();
  while (lanes.length < count) {
    const lane = new Lane("AB"[lanes.length], boot, () => versus.render(lanes));
    if (lanes.length > 0) lane.settings?.copy(lanes[0].settings);
    lanes.push(lane);
    place.append(lane.refs.root);
    lane.refresh();
  }
  document.body.classList.toggle("two", count > 1);
  empty.hidden = count > 0;
  if (playground) playground.fields.compare.checked = count > 1;
  for (const lane of lanes) lane.redraw();
  versus.render(lanes);
}

/** Open one trace, or two side by side. */
async function openFiles(files) {
  const chosen = [...files].slice(0, 2);
  if (chosen.length === 0) return;
  if (playground?.running) {
    showAlert("An answer is being written. Stop it first, then open the trace.");
    return;
  }
  showAlert("");
  const traces = [];
  for (const file of chosen) {
    try {
      traces.push(parseTrace(await file.text()));
    } catch (error) {
      const reason = error instanceof TraceFault ? error.message : "It cannot be read.";
      showAlert(`${file.name}: ${reason}`);
      return;
    }
  }
  setLanes(Math.max(lanes.length, traces.length));
  traces.forEach((trace, i) => lanes[i].load(trace));
}

const chooser = document.getElementById("file");
document.getElementById("open").addEventListener("click", () => chooser.click());
chooser.addEventListener("change", async () => {
  await openFiles(chooser.files);
  chooser.value = "";
});
const carriesFiles = (event) => event.dataTransfer?.types.includes("Files");
addEventListener("dragover", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  document.body.classList.add("over");
});
addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) document.body.classList.remove("over");
});
addEventListener("drop", (event) => {
  if (!carriesFiles(event)) return;
  event.preventDefault();
  document.body.classList.remove("over");
  openFiles(event.dataTransfer.files);
});

const theme = document.getElementById("theme");
theme.addEventListener("change", () => {
  document.documentElement.dataset.theme = theme.value;
});

const TYPED_INTO = "input:not([type=range]):not([type=checkbox]), textarea, select";
const moves = {
  " ": (player) => player.toggle(),
  ArrowLeft: (player) => player.step(-1),
  ArrowRight: (player) => player.step(1),
  Home: (player) => player.seek(0),
  End: (player) => player.seek(player.length),
};
addEventListener("keydown", (event) => {
  if (event.key === "Escape") {
    if (tip.owner === null) playground?.stop();
    tip.hide();
  }
  const move = moves[event.key];
  if (!move || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest(TYPED_INTO) || event.target.type === "range") return;
  if (event.key === " " && event.target.closest("button, summary, input")) return;
  const players = lanes.map((lane) => lane.player).filter((player) => player.length > 0);
  if (players.length === 0) return;
  event.preventDefault();
  // Of two lanes, space starts or stops both together.
  const playing = players.some((player) => player.playing);
  for (const player of players) {
    if (event.key !== " " || player.playing === playing) move(player);
  }
});

let resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => lanes.forEach((lane) => lane.redraw()), 150);
});

if (boot) {
  const size = `${boot.max_model_len} tokens of context`;
  setText(document.getElementById("about"), `${boot.model} \u00b7 ${size}`);
  playground = new Playground(boot, () => lanes, (wanted) => setLanes(wanted ? 2 : 1));
  setLanes(1);
} else {
  empty.hidden = false;
}
if (given) {
  setLanes(Math.max(1, lanes.length));
  lanes[0].load({ ...given, note: "" });
}
