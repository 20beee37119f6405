// Characters that several tokens make together: each alone reads as U+FFFD.

const BROKEN = "\ufffd";

/**
 * What tokens read as within the answer, by position: the last part of a character carries it, and
 * the parts before it are empty. Only what the answer's text settles is in it.
 */
function joined(run) {
  const found = new Map();
  const parts = run.tokens.map((token) => (
    token === null || run.isEnd(token.id) ? "" : run.textOf(token.id)
  ));
  let at = 0;
  for (let i = 0; i < parts.length; i += 1) {
    if (!parts[i].includes(BROKEN)) {
      if (!run.content.startsWith(parts[i], at)) return found;
      at += parts[i].length;
      continue;
    }
    let last = i;
    while (parts[last + 1]?.includes(BROKEN)) last += 1;
    const next = parts.slice(last + 1).find((text) => text !== "");
    const over = run.finish === null ? -1 : run.content.length;
    const end = next === undefined ? over : run.content.indexOf(next, at + 1);
    if (end < 0) return found;
    for (let j = i; j < last; j += 1) found.set(j, "");
    found.set(last, run.content.slice(at, end));
    at = end;
    i = last;
  }
  return found;
}
