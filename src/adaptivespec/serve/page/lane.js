// A lane shows one run: answer, tree, figures, chart and transport, live or played back.

const CHART_MS = 250; // a chart of a growing run is redrawn no more often than that

class Lane {
  /** `onChange()`: what is shown has changed. */
  constructor(name, boot, onChange) {
    const refs = stamp("lane");
    Object.assign(this, { name, refs, onChange, run: new Run(), pinned: null, frame: 0, drawn: 0 });
    refs.root.setAttribute("aria-label", `Lane ${name}`);
    setText(refs.name, name);
    this.settings = boot ? new Settings(refs, boot) : null;
    if (!boot) refs.settings.remove();
    this.answer = new Answer(refs.answer, (step) => this.pin(step));
    this.tree = new Tree(refs.tree, refs.caption, refs.where);
    this.figures = new Figures(refs.figures);
    this.chart = new Chart(refs.chart, (count) => this.player.seek(count));
    this.player = new Player(refs, (time) => this.moved(time));
    refs.save.addEventListener("click", () => saveTrace(this.run));
  }

  /** Begin a run that will grow. */
  begin() {
    this.take(new Run(), true);
    this.state("waiting for the first token");
  }

  /** Show a trace from its end, ready to be played. */
  load(trace) {
    this.take(Run.of(trace), false);
    this.describeSource(trace.header, trace.prompt ?? trace.header.prompt);
    this.alert(trace.note);
    this.moved(0);
  }

  take(run, live) {
    this.run = run;
    this.pinned = null;
    tip.hide();
    this.answer.clear();
    this.tree.clear();
    this.player.load(run, live);
    this.alert("");
    this.state("");
    this.refs.source.hidden = true;
    this.refresh();
  }

  describeSource(header, prompt) {
    const parts = [header.model, header.rule, header.policy];
    if (header.temperature > 0) parts.push(`temperature ${header.temperature}`);
    const { source } = this.refs;
    const badge = el("b", { class: "badge" }, this.name);
    source.replaceChildren(badge, parts.filter(Boolean).join(" \u00b7 "));
    if (prompt) source.append(el("q", {}, prompt));
    source.hidden = false;
  }

  /** Take in one event of a stream. */
  receive(chunk) {
    const { run } = this;
    const choice = chunk.choices?.[0];
    if (typeof chunk.lossless === "boolean") run.lossless = chunk.lossless;
    if (chunk.usage) run.usage = chunk.usage;
    if (choice) {
      run.content += choice.delta?.content ?? "";
      if (choice.trace?.header) run.header = choice.trace.header;
      for (const step of choice.trace?.steps ?? []) run.addStep(step);
      run.addTokens(choice.tokens ?? []);
      if (choice.finish_reason) run.finish = choice.finish_reason;
      run.arrive(performance.now() / 1000);
    }
    this.refresh();
  }

  /** The stream is over: `message` says why where it did not end by itself. */
  end(message = "", stopped = false) {
    const { run } = this;
    run.finish = stopped ? "stopped" : (run.finish ?? "incomplete");
    this.alert(message);
    this.state(this.ending(stopped || message !== ""));
    this.refresh();
    if (this.player.live) this.tree.show(run, run.steps.length - 1, LIVE_MS);
  }

  ending(early) {
    const words = early ? {} : { stop: "ended", length: "cut at max tokens" };
    const { finish, tokens } = this.run;
    return `${words[finish] ?? finish} after ${plural(tokens.length, "token")}`;
  }

  alert(message) {
    setText(this.refs.alert, message ?? "");
  }

  state(words) {
    setText(this.refs.state, words);
  }

  /** Show the tree of one step without moving the cursor. */
  pin(step) {
    this.player.pause();
    this.player.live = false;
    this.pinned = step;
    this.tree.show(this.run, step, 900);
    this.refresh();
  }

  moved(time) {
    this.pinned = null;
    this.tree.show(this.run, this.player.cursor - 1, time);
    this.refresh();
  }

  /** Fit the tree to the room there is now. */
  redraw() {
    const { key } = this.tree;
    if (key === null) return;
    this.tree.key = null;
    this.tree.show(this.run, this.run.steps.indexOf(key));
  }

  /** Draw with the next frame, however often this is called before it. */
  refresh() {
    this.frame ||= requestAnimationFrame((now) => {
      this.frame = 0;
      this.draw(now);
      this.onChange();
    });
  }

  draw(now) {
    const { run, player, refs } = this;
    player.grow();
    const { live, cursor } = player;
    const index = this.pinned ?? cursor - 1;
    this.answer.render(run, live ? run.tokens.length : run.tokensAfter(cursor));
    this.answer.mend();
    this.answer.mark(live ? null : index);
    this.figures.render(run, cursor, index);
    if (live && run.finish === null) {
      if (run.tokens.length > 0) this.state("streaming");
      this.tree.showLive(run, cursor - 1);
    }
    refs.timeline.hidden = run.steps.length === 0;
    refs.save.disabled = run.header === null || run.steps.length === 0;
    if (run.steps.length > 0 && (run.finish !== null || now - this.drawn > CHART_MS)) {
      this.drawn = now;
      this.chart.render(run, cursor);
    }
  }
}
