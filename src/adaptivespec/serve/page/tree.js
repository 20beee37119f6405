// The draft tree of a step: it grows level by level, then verification marks the run and prunes.

const LIVE_MS = 800; // how long a tree of a live stream stays before the latest replaces it
const GROWING = 0.4; // the part of that time in which it grows
const MOST_NODES = 1000; // a browser draws no more of them at ease

class Tree {
  constructor(container, caption, where) {
    Object.assign(this, { container, caption, where, key: null, until: 0, timer: 0 });
    tip.watch(container, (part) => this.describe(Number(part.dataset.i)));
    container.addEventListener("keydown", (event) => this.move(event));
  }

  clear() {
    clearTimeout(this.timer);
    this.key = null;
    this.until = 0;
    this.container.replaceChildren();
    setText(this.caption, "");
    setText(this.where, "");
  }

  /** The latest step of a stream, unless the tree before it has not been seen yet. */
  showLive(run, index) {
    if (performance.now() >= this.until) this.show(run, index, LIVE_MS);
  }

  /** Draw a step; `time` in ms is how long it will stay, and 0 leaves the growing out. */
  show(run, index, time = 0) {
    const step = run.steps[index];
    if (step === undefined) return this.clear();
    if (this.key === step) return;
    clearTimeout(this.timer);
    Object.assign(this, { key: step, run, until: performance.now() + time });
    setText(this.where, `step ${index + 1} of ${run.steps.length}`);
    setText(this.caption, captionOf(step, run));
    const size = step.nodes?.token.length;
    if (!step.nodes || size > MOST_NODES) {
      const reason = step.nodes ? `${size} nodes are too many to draw` : "Recorded without a tree";
      this.container.replaceChildren(el("p", { class: "dim" }, `${reason}.`));
      return;
    }
    const grows = time >= 300 && !calm.matches && size > 1;
    const levels = 1 + Math.max(...step.nodes.depth);
    this.draw(step, grows ? Math.min(90, (GROWING * time) / levels) : 0, levels);
  }

  /** Draw a tree whose levels come `levelMs` after one another; 0 draws it as it ended. */
  draw(step, levelMs, levels) {
    const { clientWidth: width, clientHeight: height } = this.container;
    const layout = layOut(step, this.run, { width: width - 16, height: height - 16 });
    this.layout = layout;
    const size = { width: layout.width, height: layout.height };
    const picture = svg("svg", {
      ...size,
      viewBox: `0 0 ${size.width} ${size.height}`,
      class: layout.row < 20 ? "small" : null,
      role: "group",
      "aria-label": `Draft tree: ${this.caption.textContent}`,
      "data-stage": levelMs ? "growing" : "judged",
    });
    for (const node of layout.nodes) picture.append(this.nodeShape(node, layout, levelMs));
    this.container.replaceChildren(picture);
    this.container.scrollTo(0, 0);
    if (!levelMs) return;
    this.timer = setTimeout(() => { picture.dataset.stage = "judged"; }, levels * levelMs + 60);
  }

  nodeShape(node, { nodes, row }, levelMs) {
    const high = Math.min(22, row - 3);
    const group = svg("g", {
      class: `node ${node.fate}`,
      "data-depth": node.depth,
      "data-i": node.i,
      tabindex: node.i === 0 ? 0 : -1,
      role: "img",
      "aria-label": `${node.fate}: ${visible(this.run.textOf(node.id))}`,
    });
    const parent = nodes[node.parent];
    if (parent) {
      const from = parent.x + parent.width;
      const bend = (from + node.x) / 2;
      group.append(svg("path", {
        d: `M${from} ${parent.y}C${bend} ${parent.y} ${bend} ${node.y} ${node.x} ${node.y}`,
      }));
    }
    group.append(svg("rect", {
      x: node.x, y: node.y - high / 2, width: node.width, height: high, rx: 4,
    }));
    group.append(svg("text", { x: node.x + PADDING, y: node.y }, node.label));
    if (node.fate === "promoted") {
      group.append(svg("circle", { cx: node.x + node.width, cy: node.y - high / 2, r: 3.5 }));
    }
    if (levelMs) group.style.animationDelay = `${Math.round(node.depth * levelMs)}ms`;
    return group;
  }

  /** Title, rows and note of a node's tooltip. */
  describe(i) {
    const { nodes } = this.key;
    const node = this.layout.nodes.find((one) => one.i === i);
    const said = (id) => `${visible(this.run.textOf(id))} (${id})`;
    const title = `${said(node.id)}, ${node.fate}`;
    if (i >= nodes.token.length) {
      const margin = ratio(this.key.margins.at(-1));
      return [title, [["margin p / max p", margin]], "The target's own token: not drafted."];
    }
    const rows = [["target's own after it", said(nodes.target[i])]];
    if (i > 0) {
      const logq = nodes.logq[i];
      const likely = `${fixed(logq)} (q ${ratio(Math.exp(logq))})`;
      rows.unshift(
        ["log q", logq === null ? "none: excluded by the drafter" : likely],
        ["rank", `${nodes.rank[i] + 1} among its siblings`],
        ["margin p / max p", ratio(nodes.margin[i])],
      );
    }
    return [title, rows, i === 0 ? "The last token before this step." : ""];
  }

  /** Arrow keys: to the parent, the first child, the node above or below. */
  move(event) {
    const here = event.target.closest?.("[data-i]");
    const sign = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (!here || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    event.stopPropagation();
    const { nodes } = this.layout;
    const node = nodes.find((one) => one.i === Number(here.dataset.i));
    let next = nodes[node.parent];
    if (event.key === "ArrowRight") {
      next = nodes.filter((one) => one.parent === node.i).sort((a, b) => a.y - b.y)[0];
    } else if (sign) {
      const column = nodes.filter((one) => one.depth === node.depth).sort((a, b) => a.y - b.y);
      next = column[column.indexOf(node) + sign];
    }
    if (next) this.container.querySelector(`[data-i="${next.i}"]`).focus();
  }
}

/** A step in one sentence. */
function captionOf(step, run) {
  const said = (id) => `\u201c${visible(run.textOf(id))}\u201d`;
  const bonus = step.kinds.at(-1) === "bonus" ? said(step.tokens.at(-1)) : null;
  if (step.num_verified === 0) return `Plain step: nothing was drafted; the target said ${bonus}.`;
  const parts = [`${plural(step.num_verified, "drafted node")}, ${step.num_accepted} accepted`];
  step.kinds.forEach((kind, i) => {
    if (kind === "promoted") {
      parts.push(`${said(step.tokens[i])} promoted over ${said(step.strict[i])}`);
    }
  });
  if (bonus) parts.push(`then ${bonus} from the target`);
  return `${parts.join("; ")}.`;
}
