// Trace files: what `--trace` writes (a header, then a line per step), and {"header", "steps"}.

class TraceFault extends Error {}

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
const isCount = (value) => Number.isInteger(value) && value >= 0;
const MAKE_ONE = "`adaptivespec generate -p TEXT --trace FILE` writes one.";

/**
 * The trace that a file's text holds: header, steps, and `note`, what was left out of it.
 * Throws TraceFault, whose message names the line.
 */
function parseTrace(text) {
  if (text.trim() === "") throw new TraceFault(`The file is empty. ${MAKE_ONE}`);
  const whole = parsed(text);
  if (isObject(whole) && !("adaptivespec_trace" in whole)) return fromExport(whole);
  const lines = text.replace(/\r?\n$/, "").split("\n");
  const ended = /\n$/.test(text);
  const header = checkedHeader(parsed(lines[0]), "Line 1");
  const steps = [];
  let note = "";
  lines.slice(1).forEach((line, i) => {
    const step = parsed(line);
    if (step === undefined && i + 2 === lines.length && !ended) {
      note = "The last line was cut short and is left out.";
      return;
    }
    steps.push(checkedStep(step, steps.at(-1), `Line ${i + 2}`));
  });
  return { header, steps, note };
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** {"header", "steps"}, alone or as the trace of the first choice of a response. */
function fromExport(whole) {
  const trace = whole.choices?.[0]?.trace ?? whole;
  if (!isObject(trace.header) || !Array.isArray(trace.steps)) {
    const wanted = 'the header of a trace nor {"header", "steps"}';
    throw new TraceFault(`Line 1 is neither ${wanted}. ${MAKE_ONE}`);
  }
  const header = checkedHeader(trace.header, "header");
  const steps = [];
  trace.steps.forEach((step, i) => steps.push(checkedStep(step, steps.at(-1), `steps[${i}]`)));
  const said = whole.choices?.[0]?.message?.content ?? trace.text;
  return { header, steps, text: typeof said === "string" ? said : "", note: "" };
}

function checkedHeader(header, where) {
  if (!isObject(header) || !("adaptivespec_trace" in header)) {
    throw new TraceFault(`${where} is not the header of a trace. ${MAKE_ONE}`);
  }
  if (header.adaptivespec_trace !== 1) {
    const version = JSON.stringify(header.adaptivespec_trace);
    throw new TraceFault(`${where}: the format's version is ${version}, and this page reads 1.`);
  }
  return header;
}

function checkedStep(step, before, where) {
  const fault = step === undefined ? "is not JSON" : stepFault(step, before);
  if (fault) throw new TraceFault(`${where} ${fault}.`);
  return step;
}

/** What is wrong with a step, "" for nothing. */
function stepFault(step, before) {
  if (!isObject(step)) return "is not a step";
  for (const name of ["position", "committed", "num_verified", "num_accepted", "num_promoted"]) {
    if (!isCount(step[name])) return `has no whole number ${name}`;
  }
  for (const name of ["tokens", "kinds", "margins", "strict"]) {
    if (!Array.isArray(step[name])) return `has no list ${name}`;
    if (step[name].length !== step.committed) {
      return `commits ${plural(step.committed, "token")}, and ${name} has ${step[name].length}`;
    }
  }
  const unknown = step.kinds.find((kind) => !["exact", "promoted", "bonus"].includes(kind));
  if (unknown !== undefined) return `has a token of unknown kind ${JSON.stringify(unknown)}`;
  if (!Number.isFinite(step.regret)) return "has no number regret";
  if (!Array.isArray(step.plan) || step.plan.length !== 3) return "has no plan of three numbers";
  // What the prefill made is the first token; steps follow one another from there.
  const due = before === undefined ? 1 : before.position + before.committed;
  if (step.position !== due) return `begins at position ${step.position}, and not at ${due}`;
  if (step.texts !== undefined && !isObject(step.texts)) return "has texts that are no object";
  return step.nodes == null ? "" : nodesFault(step);
}

function nodesFault({ nodes, path }) {
  const size = nodes.token?.length ?? 0;
  if (size === 0) return "has a tree without nodes";
  for (const name of ["token", "parent", "depth", "logq", "rank", "target", "margin"]) {
    if (!Array.isArray(nodes[name])) return `has no list nodes.${name}`;
    if (nodes[name].length !== size) {
      return `has ${size} nodes, and nodes.${name} has ${nodes[name].length} entries`;
    }
  }
  const stray = nodes.parent.findIndex((parent, i) => (
    i === 0 ? parent !== -1 : !isCount(parent) || parent >= i
  ));
  if (stray >= 0) return `has a node ${stray} whose parent is ${nodes.parent[stray]}`;
  const follows = (node, i) => (i === 0 ? node === 0 : nodes.parent[node] === path[i - 1]);
  if (!Array.isArray(path) || path.length === 0 || !path.every(follows)) {
    return "has a path that does not lead down its tree from the root";
  }
  return "";
}

/** The text of a trace file. */
function traceText(run) {
  return [run.header, ...run.steps].map((line) => `${JSON.stringify(line)}\n`).join("");
}

function saveTrace(run) {
  const address = URL.createObjectURL(new Blob([traceText(run)], { type: "application/jsonl" }));
  const link = el("a", { href: address, download: "trace.jsonl" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
