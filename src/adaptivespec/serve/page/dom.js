// Elements, numbers and the text of tokens. Data enters the page as text only, never as markup.

const SVG = "http://www.w3.org/2000/svg";

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** An element: attributes of value null or false are left out, children may be texts. */
function el(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/** Write text only where it changes, which spares the browser a layout. */
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** The elements of a template that carry data-ref, by that name; `root` is the template's own. */
function stamp(id) {
  const root = document.getElementById(id).content.firstElementChild.cloneNode(true);
  const refs = { root };
  for (const node of root.querySelectorAll("[data-ref]")) refs[node.dataset.ref] = node;
  return refs;
}

const MARKS = { " ": "\u00b7", "\n": "\u21b5", "\t": "\u21e5", "\r": "\u240d" };
// Control characters, and those that reorder or hide the text around them.
const UNSEEN = /[\u0000-\u001f \u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

/** A token's text with its white space and unseen characters made visible. */
function visible(text) {
  if (text === "") return "\u2205";
  return text.replace(UNSEEN, (char) => {
    const code = char.codePointAt(0);
    return MARKS[char] ?? `<${code.toString(16).toUpperCase().padStart(2, "0")}>`;
  });
}

/** At most `size` characters, the last being an ellipsis where some are left out. */
function clip(text, size) {
  const chars = Array.from(text);
  return chars.length <= size ? text : `${chars.slice(0, size - 1).join("")}\u2026`;
}

/** A number with some digits after the point, a dash for none. */
function fixed(value, digits = 2) {
  return Number.isFinite(value) ? value.toFixed(digits) : "\u2013";
}

function percent(part, whole, digits = 0) {
  return whole > 0 ? `${((100 * part) / whole).toFixed(digits)} %` : "\u2013";
}

function plural(count, word) {
  return `${count} ${word}${count === 1 ? "" : "s"}`;
}

/** p / max p: plain where it can be read, else in powers of ten. */
function ratio(value) {
  if (!Number.isFinite(value)) return "\u2013";
  return value === 0 || value >= 0.001 ? fixed(value, value === 1 ? 0 : 3) : value.toExponential(1);
}

function nats(margin) {
  return margin > 0 ? Math.abs(Math.log(margin)) : Infinity;
}

const calm = matchMedia("(prefers-reduced-motion: reduce)");
