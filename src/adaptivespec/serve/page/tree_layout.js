// Where the nodes of a draft tree stand: a column per depth, a row per leaf, the run on top.

const LETTER = 7.25; // width of a letter of the tree's font at 12 px
const GAP = 20;
const PADDING = 7;

/** Why a node is in the picture: root, exact, promoted, bonus or rejected, by node id. */
function fates(step) {
  const found = new Array(step.nodes.token.length).fill("rejected");
  step.path.forEach((node, i) => {
    found[node] = i === 0 ? "root" : step.kinds[i - 1];
  });
  return found;
}

/**
 * Nodes {i, id, parent, depth, fate, label, x, y, width} in drawing order, with the picture's width
 * and height. The bonus, which was not drafted, is a node as well: i = the number of nodes.
 */
function layOut(step, run, room) {
  const { token, parent, depth, rank } = step.nodes;
  const fate = fates(step);
  const nodes = token.map((id, i) => (
    { i, id, parent: parent[i], depth: depth[i], fate: fate[i] }
  ));
  if (step.kinds.at(-1) === "bonus") {
    const last = step.path.at(-1);
    const id = step.tokens.at(-1);
    nodes.push({ i: token.length, id, parent: last, depth: depth[last] + 1, fate: "bonus" });
  }
  const order = (node) => (node.fate === "rejected" ? 1 + (rank[node.i] ?? 0) : 0);
  const children = nodes.map(() => []);
  for (const node of nodes.slice(1)) children[node.parent].push(node);
  for (const family of children) family.sort((a, b) => order(a) - order(b) || a.i - b.i);
  const rows = placeRows(nodes, children);
  const height = Math.min(30, Math.max(17, room.height / rows));
  const width = placeColumns(nodes, run, room.width);
  for (const node of nodes) node.y = (node.row + 0.5) * height;
  return { nodes, width, height: rows * height, row: height };
}

/** Give every leaf a row, and every other node that of its first child; the number of rows. */
function placeRows(nodes, children) {
  let next = 0;
  const waiting = [nodes[0]];
  while (waiting.length > 0) {
    const node = waiting.pop();
    const first = node.parent < 0 || children[node.parent][0] === node;
    node.row = first ? (nodes[node.parent]?.row ?? next) : next;
    const family = children[node.i];
    if (family.length === 0) next = Math.max(next, node.row + 1);
    for (let i = family.length - 1; i >= 0; i -= 1) waiting.push(family[i]);
  }
  return next;
}

/** Label the nodes and give them columns, with shorter labels where room is scarce; the width. */
function placeColumns(nodes, run, room) {
  for (const size of [14, 10, 7, 5]) {
    const widths = [];
    for (const node of nodes) {
      node.label = clip(visible(run.textOf(node.id)), size);
      node.width = Array.from(node.label).length * LETTER + 2 * PADDING;
      widths[node.depth] = Math.max(widths[node.depth] ?? 0, node.width);
    }
    const total = widths.reduce((sum, width) => sum + width + GAP, 0) - GAP + 4;
    if (total > room && size > 5) continue;
    const starts = [2];
    widths.forEach((width, i) => starts.push(starts[i] + width + GAP));
    for (const node of nodes) node.x = starts[node.depth];
    return total;
  }
  return 0;
}
