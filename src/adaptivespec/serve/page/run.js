// A generation as it is known so far: header, steps, tokens, and sums over the steps.

const NO_SUMS = {
  tokens: 0, accepted: 0, promoted: 0, regret: 0, verified: 0, draft: 0, verify: 0, host: 0,
};

class Run {
  constructor() {
    this.header = null;
    this.steps = [];
    this.tokens = []; // by output position; holes where nothing is known
    this.texts = new Map();
    this.sums = []; // entry i: over steps 0..i
    this.content = ""; // the answer as the server wrote it
    this.heard = 0; // tokens that came outside of steps, as they were streamed
    this.arrivals = []; // [seconds, tokens known], of live runs
    this.lossless = null;
    this.finish = null;
    this.usage = null;
  }

  static of(trace) {
    const run = new Run();
    run.header = trace.header;
    run.lossless = trace.header.lossless;
    for (const step of trace.steps) run.addStep(step);
    run.content = trace.text ?? "";
    run.finish = "";
    if (run.steps.length === 0 && run.content) {
      // An answer of one token takes no step.
      run.texts.set(-1, run.content);
      run.merge(0, { id: -1, kind: "bonus", step: null });
    }
    return run;
  }

  /** A token's text as the trace gives it; #id where it gives none. */
  textOf(id) {
    return this.texts.get(id) ?? `#${id}`;
  }

  isEnd(id) {
    return this.header?.stop_ids?.includes(id) ?? false;
  }

  addStep(step) {
    for (const [id, text] of Object.entries(step.texts ?? {})) this.texts.set(Number(id), text);
    const index = this.steps.push(step) - 1;
    if (index === 0 && step.position === 1 && step.nodes) {
      // The prefill made the first token: no step holds it, but it is the root of the first tree.
      this.merge(0, { id: step.nodes.token[0], kind: "bonus", step: null });
    }
    step.tokens.forEach((id, i) => this.merge(step.position + i, {
      id,
      kind: step.kinds[i],
      margin: step.margins[i],
      strict: step.strict[i],
      step: index,
      node: step.kinds[i] === "bonus" ? null : step.path[i + 1],
    }));
    this.sums.push(this.sumWith(this.sumsAt(index), step));
  }

  sumWith(before, step) {
    const seconds = step.seconds ?? {};
    return {
      tokens: before.tokens + step.committed,
      accepted: before.accepted + step.num_accepted,
      promoted: before.promoted + step.num_promoted,
      regret: before.regret + step.regret,
      verified: before.verified + step.num_verified,
      draft: before.draft + (seconds.draft ?? 0),
      verify: before.verify + (seconds.verify ?? 0),
      host: before.host + (seconds.host ?? 0),
    };
  }

  /** Sums over the first `count` steps. */
  sumsAt(count) {
    return count > 0 ? this.sums[count - 1] : NO_SUMS;
  }

  /** Tokens as they are streamed beside the steps: in order, and with their log probability. */
  addTokens(tokens) {
    for (const token of tokens) {
      const { id, text, kind, margin, logprob } = token;
      if (!this.texts.has(id)) this.texts.set(id, text);
      this.merge(this.heard, { id, kind, margin, logprob });
      this.heard += 1;
    }
  }

  merge(position, facts) {
    while (this.tokens.length <= position) this.tokens.push(null);
    this.tokens[position] = { ...this.tokens[position], ...facts };
  }

  /** Note when tokens came, if any did. */
  arrive(now) {
    const known = this.tokens.length;
    if (known > (this.arrivals.at(-1)?.[1] ?? 0)) this.arrivals.push([now, known]);
  }

  /** Tokens that exist after `count` steps: before the first there is what the prefill made. */
  tokensAfter(count) {
    if (this.steps.length === 0) return this.tokens.length;
    if (count === 0) return this.steps[0].position;
    const step = this.steps[count - 1];
    return step.position + step.committed;
  }

  /** Tokens per second after the first chunk: as they arrived, or as the steps took. */
  rate(count) {
    if (this.arrivals.length > 0) {
      const [start, first] = this.arrivals[0];
      const [end, last] = this.arrivals[this.arrivals.length - 1];
      return end > start ? (last - first) / (end - start) : NaN;
    }
    const { tokens, draft, verify, host } = this.sumsAt(count);
    return tokens / (draft + verify + host);
  }
}
