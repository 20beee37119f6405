// The transport of a run: which of its steps are shown, and playing them back.

class Player {
  /** `onMove(time)`: the cursor moved, and the step will stay for `time` ms. */
  constructor(refs, onMove) {
    Object.assign(this, { refs, onMove, cursor: 0, run: null, frame: 0, live: false });
    refs.back.addEventListener("click", () => this.step(-1));
    refs.forward.addEventListener("click", () => this.step(1));
    refs.play.addEventListener("click", () => this.toggle());
    refs.scrub.addEventListener("input", () => this.seek(Number(refs.scrub.value)));
  }

  get length() {
    return this.run?.steps.length ?? 0;
  }

  get playing() {
    return this.frame !== 0;
  }

  /** Take a run; a live one is followed at its end until the user moves. */
  load(run, live) {
    this.pause();
    Object.assign(this, { run, live, cursor: run.steps.length });
    this.refresh();
  }

  /** The run has grown. */
  grow() {
    if (this.live) this.cursor = this.length;
    this.refresh();
  }

  /** Go to a step; a run that still grows is followed again from its end. */
  seek(cursor, time = 0) {
    this.pause();
    this.live = this.run !== null && this.run.finish === null && cursor >= this.length;
    this.go(cursor, time);
  }

  step(by) {
    this.seek(this.cursor + by, by > 0 ? 900 : 0);
  }

  go(cursor, time) {
    this.cursor = Math.min(Math.max(0, cursor), this.length);
    this.refresh();
    this.onMove(time);
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    this.refresh();
  }

  play() {
    if (this.length === 0) return;
    this.live = false;
    if (this.cursor >= this.length) this.go(0, 0);
    let due = performance.now() + this.interval(this.cursor);
    const tick = (now) => {
      let next = this.cursor;
      while (now >= due && next < this.length) {
        next += 1;
        due += this.interval(next);
      }
      if (next !== this.cursor) this.go(next, this.interval(next));
      this.frame = next < this.length ? requestAnimationFrame(tick) : 0;
      if (this.frame === 0) this.refresh();
    };
    this.frame = requestAnimationFrame(tick);
    this.refresh();
  }

  /** Milliseconds before the step at `cursor` is shown. */
  interval(cursor) {
    const speed = Number(this.refs.speed.value);
    if (speed > 0) return 1000 / speed;
    const { draft = 0, verify = 0, host = 0 } = this.run.steps[cursor]?.seconds ?? {};
    return Math.max(1, 1000 * (draft + verify + host));
  }

  refresh() {
    const { scrub, play, back, forward, counter } = this.refs;
    scrub.max = this.length;
    scrub.value = this.cursor;
    scrub.setAttribute("aria-valuetext", `step ${this.cursor} of ${this.length}`);
    setText(play, this.playing ? "Pause" : "Play");
    play.disabled = this.length === 0;
    back.disabled = this.cursor === 0;
    forward.disabled = this.cursor === this.length;
    setText(counter, `${this.cursor} / ${this.length}`);
  }
}
