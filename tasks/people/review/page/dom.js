// Nodes from text. Whatever a student, an educator or a model wrote reaches the page here, and only as text.

// Control characters, directional overrides, invisible tags and half surrogate pairs: shown, not obeyed.
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u200b\u2060\u202a-\u202e\u2066-\u2069\ufeff\p{Cs}\u{e0000}-\u{e007f}]/gu;

export const $ = id => document.getElementById(id);

export function visible(text) {
  return text.replace(UNSEEN, found => `⟨U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// Attributes are plain values, functions are listeners; children are nodes or text. False and null are left out.
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else if (value !== false && value != null) node.setAttribute(name, value === true ? "" : visible(String(value)));
  }
  node.append(...nodes(children));
  return node;
}

// A node's children anew.
export function fill(node, ...children) { node.replaceChildren(...nodes(children)); }

function nodes(children) {
  const kept = children.flat(Infinity).filter(child => child != null && child !== false && child !== "");
  return kept.map(child => child instanceof Node ? child : visible(String(child)));
}

let said;
export function say(text) {                        // emptied first, so that the same words are read out again
  clearTimeout(said);
  $("say").textContent = "";
  said = setTimeout(() => {
    $("say").textContent = visible(text);
    said = setTimeout(() => $("say").textContent = "", 6000);
  }, 40);
}
