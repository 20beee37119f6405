// The answer's text, a span per token, coloured by kind.

const KINDS = {
  exact: "exact: drafted, and the target's own choice",
  promoted: "promoted: accepted in place of the target's choice",
  bonus: "bonus: the target's own, after the last accepted draft",
};

class Answer {
  constructor(container, onPick) {
    Object.assign(this, { container, onPick });
    this.clear();
    tip.watch(container, (part) => this.describe(Number(part.dataset.i)));
    container.addEventListener("click", (event) => this.pick(event));
    container.addEventListener("keydown", (event) => this.move(event));
  }

  clear() {
    this.spans = [];
    this.shown = 0;
    this.marked = null;
    this.parting = null;
    this.broken = false; // whether parts of characters are among the tokens
    this.container.replaceChildren();
  }

  /** Show the first `count` tokens of the run. */
  render(run, count) {
    this.run = run;
    const box = this.container;
    const follows = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    const fresh = document.createDocumentFragment();
    for (let i = this.spans.length; i < run.tokens.length; i += 1) {
      const span = this.span(run.tokens[i], i);
      this.spans.push(span);
      fresh.append(span);
    }
    box.append(fresh);
    const known = this.spans.length;
    for (let i = Math.min(this.shown, count); i < Math.max(this.shown, known); i += 1) {
      this.spans[i].classList.toggle("future", i >= count);
    }
    this.shown = count;
    if (follows) box.scrollTop = box.scrollHeight;
  }

  span(token, i) {
    if (token === null) return el("span", { class: "t", "data-i": i, tabindex: -1 }, "\u2026");
    const ends = this.run.isEnd(token.id);
    this.broken ||= this.run.textOf(token.id).includes(BROKEN);
    const text = this.run.textOf(token.id);
    const whole = ends || text === "" ? visible(text) : text;
    // The space before a word stands outside of the coloured part: at the end of a line it would
    // leave a stub of colour there.
    const space = /^ (?=\S)/.test(whole) ? " " : "";
    return el("span", {
      class: `t ${token.kind}${ends ? " end" : ""}${/^\n+$/.test(text) ? " break" : ""}`,
      "data-i": i,
      tabindex: i === 0 ? 0 : -1,
    }, space || null, el("span", { class: "c" }, whole.slice(space.length)));
  }

  /** Put characters together where the answer's text says what tokens make of them. */
  mend() {
    if (!this.broken) return;
    for (const [i, text] of joined(this.run)) {
      const span = this.spans[i];
      const space = span.firstChild.nodeType === Node.TEXT_NODE ? span.firstChild : null;
      if (space) space.remove();
      setText(span.querySelector(".c"), text);
    }
  }

  /** Frame the tokens of one step; null frames none. */
  mark(index) {
    if (index === this.marked) return;
    this.marked = index;
    for (const old of this.container.querySelectorAll(".now")) old.classList.remove("now");
    const step = this.run?.steps[index];
    if (step === undefined) return;
    for (let i = 0; i < step.committed; i += 1) {
      this.spans[step.position + i]?.classList.add("now");
    }
  }

  /** Mark the token where this answer parts from another; null marks none. */
  differs(index) {
    if (index === this.parting) return;
    this.container.querySelector(".differs")?.classList.remove("differs");
    this.spans[index]?.classList.add("differs");
    this.parting = this.spans[index] ? index : null; // its span may be drawn later
  }

  /** Title, rows and note of a token's tooltip. */
  describe(i) {
    const token = this.run.tokens[i];
    if (token === null) return ["unknown", [], "The trace does not hold this token."];
    const said = (id) => `${visible(this.run.textOf(id))} (${id})`;
    const rows = [];
    if (token.margin !== undefined) {
      const regret = `${fixed(nats(token.margin))} nats`;
      rows.push(["margin p / max p", ratio(token.margin)], ["regret", regret]);
    }
    if (token.strict !== undefined) {
      rows.push(["strict", token.strict === token.id ? "the same" : said(token.strict)]);
    }
    if (Number.isFinite(token.logprob)) rows.push(["log p", fixed(token.logprob)]);
    if (Number.isInteger(token.step)) rows.push(["step", String(token.step + 1)]);
    const first = token.step === null ? "The first token, made by reading the prompt." : "";
    return [said(token.id), rows, first || KINDS[token.kind]];
  }

  pick(event) {
    const part = event.target.closest("[data-i]");
    const step = part && this.run.tokens[Number(part.dataset.i)]?.step;
    if (Number.isInteger(step)) this.onPick(step);
  }

  move(event) {
    const here = event.target.closest("[data-i]");
    if (!here) return;
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (event.key === "Enter") this.pick(event);
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const next = this.spans[Number(here.dataset.i) + by];
    if (!next || next.classList.contains("future")) return;
    here.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
