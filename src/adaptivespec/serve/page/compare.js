// Two runs side by side: where their answers part, and their figures.

/** Where two answers part: {first, differing, compared}; first is null while they are the same. */
function difference(a, b) {
  const compared = Math.min(a.tokens.length, b.tokens.length);
  let first = null;
  let differing = 0;
  for (let i = 0; i < compared; i += 1) {
    if (a.tokens[i]?.id === b.tokens[i]?.id) continue;
    first ??= i;
    differing += 1;
  }
  return { first, differing, compared };
}

/** The difference in words. */
function differenceText(a, b, { first, differing, compared }) {
  const said = (run) => `\u201c${visible(run.textOf(run.tokens[first].id))}\u201d`;
  if (compared === 0) return "";
  if (first !== null) {
    return `${start(first)} A has ${said(a)} and B ${said(b)}. `
      + `${differing} of ${compared} positions differ.`;
  }
  const done = a.finish !== null && b.finish !== null;
  if (!done || a.tokens.length === b.tokens.length) {
    return `${done ? "The same" : "The same so far"}: ${plural(compared, "token")}.`;
  }
  const longer = a.tokens.length > b.tokens.length ? "A" : "B";
  return `${start(compared)} ${longer} goes on.`;
}

function start(same) {
  if (same === 0) return "From the first token on they differ:";
  return `${same === 1 ? "The first token is" : `The first ${same} tokens are`} the same; then`;
}

class Versus {
  constructor(section) {
    this.section = section;
    this.text = el("p");
    this.rows = el("tbody");
    const head = ["", "A", "B", "B / A"].map((name) => el("th", { scope: "col" }, name));
    section.replaceChildren(
      el("h2", {}, "Comparison"), this.text,
      el("table", {}, el("thead", {}, el("tr", {}, ...head)), this.rows),
    );
  }

  /** Compare two lanes; with one there is nothing to show. */
  render([one, two]) {
    this.section.hidden = !one || !two || one.run.tokens.length + two.run.tokens.length === 0;
    if (!one || !two) {
      one?.answer.differs(null);
      return;
    }
    const [a, b] = [one.run, two.run];
    const found = difference(a, b);
    const asked = [a.header?.prompt, b.header?.prompt];
    const others = asked[0] && asked[1] && asked[0] !== asked[1] ? "The prompts differ. " : "";
    setText(this.text, others + differenceText(a, b, found));
    one.answer.differs(found.first);
    two.answer.differs(found.first);
    this.rows.replaceChildren(...measures(a, b).map(([name, x, y, digits]) => el(
      "tr", {}, el("th", { scope: "row" }, name),
      el("td", {}, fixed(x, digits)), el("td", {}, fixed(y, digits)),
      el("td", {}, x > 0 ? fixed(y / x) : "\u2013"),
    )));
  }
}

/** Name, A's figure, B's, and digits after the point. */
function measures(a, b) {
  const of = (run) => {
    const steps = run.steps.length;
    return { ...run.sumsAt(steps), steps, rate: run.rate(steps) };
  };
  const [x, y] = [of(a), of(b)];
  return [
    ["tokens/s", x.rate, y.rate, 1],
    ["accept length", x.tokens / x.steps, y.tokens / y.steps, 2],
    ["tokens", a.tokens.length, b.tokens.length, 0],
    ["steps", x.steps, y.steps, 0],
    ["promoted", x.promoted, y.promoted, 0],
    ["regret, nats", x.regret, y.regret, 2],
    ["tree nodes", (x.verified + x.steps) / x.steps, (y.verified + y.steps) / y.steps, 1],
  ];
}
