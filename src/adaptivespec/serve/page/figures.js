// Live figures of a run, and the chart of its steps.

const FIGURES = {
  rate: "tokens/s",
  length: "accept length",
  triple: "steps, topk, tokens",
  promoted: "promoted",
  regret: "regret",
  nodes: "tree nodes",
  time: "draft \u00b7 verify \u00b7 host",
  lossless: "lossless",
};

class Figures {
  constructor(container) {
    this.values = new Map();
    for (const [name, label] of Object.entries(FIGURES)) {
      const value = el("dd", {}, "\u2013");
      this.values.set(name, value);
      container.append(el("div", { "data-figure": name }, el("dt", {}, label), value));
    }
    this.values.get("triple").title = "num_steps, topk, num_draft_tokens of the step shown";
  }

  set(name, text) {
    setText(this.values.get(name), text);
  }

  /** Figures over the first `count` steps; `index` is the step whose plan is shown. */
  render(run, count, index) {
    const sums = run.sumsAt(count);
    const kept = run.tokensAfter(count);
    this.set("rate", fixed(run.rate(count), 1));
    this.set("length", fixed(sums.tokens / count));
    this.set("triple", run.steps[index]?.plan.join(", ") ?? "\u2013");
    const none = count === 0 ? "\u2013" : null;
    this.set("promoted", none ?? `${sums.promoted} (${percent(sums.promoted, kept, 1)})`);
    this.set("regret", none ?? `${fixed(sums.regret)} nats`);
    this.set("nodes", fixed((sums.verified + count) / count, 1));
    this.set("lossless", { true: "yes", false: "no" }[run.lossless] ?? "\u2013");
    this.time(sums);
  }

  time({ draft, verify, host }) {
    const total = draft + verify + host;
    const shares = [draft, verify, host].map((part) => Math.round((100 * part) / total));
    this.set("time", total > 0 ? `${shares.join(" \u00b7 ")} %` : "\u2013");
  }
}

const CHART = { width: 600, height: 72, bars: 200 };

/** Tokens committed per step as bars by kind, tree size as a line; many steps share a bar. */
class Chart {
  /** `onSeek(count)`: a click asks for the first `count` steps. */
  constructor(container, onSeek) {
    Object.assign(this, { container, perWidth: 0 });
    container.addEventListener("click", (event) => {
      const { left, width } = container.getBoundingClientRect();
      onSeek(Math.ceil(((event.clientX - left) / width) * this.perWidth));
    });
  }

  render(run, count) {
    const { steps } = run;
    const share = Math.ceil(steps.length / CHART.bars) || 1;
    const bars = [];
    for (let i = 0; i < steps.length; i += share) bars.push(barOf(steps.slice(i, i + share)));
    const most = Math.max(1, ...bars.map((bar) => bar.exact + bar.promoted + bar.bonus));
    const largest = Math.max(1, ...bars.map((bar) => bar.nodes));
    const slots = Math.max(bars.length, run.finish === null ? 24 : 1); // room for what is to come
    const wide = CHART.width / slots;
    this.perWidth = slots * share;
    const paths = { exact: "", promoted: "", bonus: "" };
    let line = "";
    bars.forEach((bar, i) => {
      let y = CHART.height;
      for (const kind of ["exact", "promoted", "bonus"]) {
        const high = (bar[kind] / most) * (CHART.height - 4);
        if (high > 0) paths[kind] += rectangle(i * wide, y - high, wide * 0.8, high);
        y -= high;
      }
      const level = CHART.height - (bar.nodes / largest) * (CHART.height - 4);
      const from = `${(i * wide).toFixed(1)} ${level.toFixed(1)}`;
      line += `${i === 0 ? "M" : "L"}${from}h${wide.toFixed(1)}`;
    });
    const here = (count / share) * wide;
    const told = `Bars: tokens committed per step, at most ${fixed(most, share > 1 ? 1 : 0)}. `
      + `Line: nodes of the tree, at most ${fixed(largest, 0)}.`;
    const picture = svg("svg", {
      viewBox: `0 0 ${CHART.width} ${CHART.height}`,
      preserveAspectRatio: "none",
      role: "img",
      "aria-label": told,
    });
    picture.append(
      ...Object.entries(paths).map(([kind, d]) => svg("path", { class: kind, d })),
      svg("path", { class: "nodes", d: line }),
      svg("path", { class: "here", d: `M${here.toFixed(1)} 0V${CHART.height}` }),
    );
    this.container.replaceChildren(picture, el("p", { class: "hint" }, told));
  }
}

/** Means over some steps: tokens by kind, and nodes of the tree. */
function barOf(steps) {
  const bar = { exact: 0, promoted: 0, bonus: 0, nodes: 0 };
  for (const step of steps) {
    for (const kind of step.kinds) bar[kind] += 1 / steps.length;
    bar.nodes += (step.num_verified + 1) / steps.length;
  }
  return bar;
}

function rectangle(x, y, width, height) {
  const [right, down] = [width.toFixed(1), height.toFixed(1)];
  return `M${x.toFixed(1)} ${y.toFixed(1)}h${right}v${down}h-${right}z`;
}
