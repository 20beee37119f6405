// The form: one prompt, sent once for every lane.

class Playground {
  /** `lanes()` are those shown; `onCompare(wanted)` adds or removes the second. */
  constructor(boot, lanes, onCompare) {
    Object.assign(this, { boot, lanes, abort: null });
    this.form = document.getElementById("ask");
    this.fields = Object.fromEntries(
      ["prompt", "system", "max-tokens", "temperature", "seed", "key", "compare", "send", "stop"]
        .map((id) => [id, document.getElementById(id)]),
    );
    const { fields } = this;
    fields["max-tokens"].max = boot.max_model_len;
    fields["max-tokens"].value = Math.min(256, boot.max_model_len);
    fields.temperature.value = boot.temperature ?? 0;
    this.askForKey(boot.needs_key);
    this.form.hidden = false;
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.send();
    });
    this.form.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      this.form.requestSubmit();
    });
    fields.stop.addEventListener("click", () => this.stop());
    fields.compare.addEventListener("change", () => onCompare(fields.compare.checked));
  }

  get running() {
    return this.abort !== null;
  }

  stop() {
    this.abort?.abort();
  }

  askForKey(wanted) {
    this.fields.key.parentElement.hidden = !wanted;
  }

  async send() {
    if (this.running) return;
    const { fields } = this;
    showAlert(fields.prompt.value.trim() ? "" : "Write a prompt first.");
    if (!fields.prompt.value.trim()) {
      fields.prompt.focus();
      return;
    }
    this.abort = new AbortController();
    this.refresh();
    const shared = this.request();
    try {
      await Promise.all(this.lanes().map((lane) => this.play(lane, shared)));
    } finally {
      this.abort = null;
      this.refresh();
    }
  }

  refresh() {
    const { send, stop, compare } = this.fields;
    const focused = [send, stop].includes(document.activeElement);
    send.hidden = this.running;
    stop.hidden = !this.running;
    compare.disabled = this.running;
    if (focused) (this.running ? stop : send).focus();
  }

  /** The body that lanes share. Sampling side by side needs one seed for both. */
  request() {
    const { fields } = this;
    const temperature = Number(fields.temperature.value);
    const messages = [{ role: "user", content: fields.prompt.value }];
    const system = fields.system.value.trim();
    if (system) messages.unshift({ role: "system", content: system });
    let seed = fields.seed.value === "" ? null : Number(fields.seed.value);
    if (seed === null && temperature > 0 && this.lanes().length > 1) {
      seed = Math.floor(Math.random() * 2 ** 31);
    }
    return {
      model: this.boot.model,
      messages,
      max_tokens: Number(fields["max-tokens"].value),
      temperature,
      ...(seed !== null && { seed }),
      stream: true,
      stream_options: { include_usage: true },
      return_trace: true,
    };
  }

  async play(lane, shared) {
    const { signal } = this.abort;
    lane.begin();
    try {
      const body = { ...shared, ...lane.settings.fields };
      const chunks = completion(body, this.fields.key.value, signal);
      for await (const chunk of chunks) lane.receive(chunk);
      lane.end();
    } catch (error) {
      if (!signal.aborted && !(error instanceof Failure)) {
        lane.end(`The page failed: ${error.message}. Reload it and send again.`);
        throw error;
      }
      lane.end(signal.aborted ? "" : error.message, signal.aborted);
      if (error.status === 401) {
        this.askForKey(true);
        this.fields.key.focus();
      }
    }
  }
}
