// Elements are built here and nowhere else. Text goes in through textContent only: nothing of the data is ever parsed.
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attrs, children) {
  for (const [key, value] of Object.entries(attrs || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "on") for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (key === "css") for (const [name, v] of Object.entries(value)) node.style.setProperty(name, v);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  for (const child of children.flat(3)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
const s = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);
const byId = (id) => document.getElementById(id);
const DASHES = ["", "", "7 3", "2 3", "9 3 2 3", "5 2", "1 3", "12 4"];
// A second draw of the base is no policy of its own: it stays grey and dotted.
const isControl = (policy) => (DATA.policies[policy] || {}).role === "control";
const color = (policy) => (isControl(policy) ? "var(--faint)" : `var(--p${policy % 8})`);
const dash = (policy) => (isControl(policy) ? "1 4" : DASHES[policy % 8]);

// 0.614, .0 kept: three digits are what 500 problems can carry.
const rate = (x) => (x === null || x === undefined ? "–" : x.toFixed(3));
const signed = (x) => (x === null || x === undefined ? "–" : `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(3)}`);
const compact = (x) => {
  if (x === null || x === undefined) return "–";
  const a = Math.abs(x);
  const text = a !== 0 && (a < 0.001 || a >= 1e6) ? a.toExponential(1) : a >= 100 ? a.toFixed(0) : String(Number(a.toPrecision(3)));
  return (x < 0 ? "−" : "") + text;
};

// Invisible and direction-changing characters are shown by their code point, so that no response can fake another.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]/;
function plain(text) {
  if (!HIDDEN.test(text)) return [text];
  const parts = [];
  let rest = "";
  for (const ch of text) {
    if (!HIDDEN.test(ch)) { rest += ch; continue; }
    if (rest) parts.push(rest);
    rest = "";
    parts.push(h("span", { class: "ctl" }, "U+" + ch.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")));
    if (parts.length > 2000) return [...parts, h("span", { class: "cut" }, " … more control characters left out")];
  }
  return [...parts, rest];
}

// On paper the wide plots are drawn for its width, so that their text keeps its size.
const PAPER = 680;
window.addEventListener("beforeprint", () => drawn.forEach((redraw) => redraw()));

// Redraw `draw(width)` into `box` now and whenever its width changes.
const drawn = [];
function responsive(box, draw) {
  let last = 0;
  const render = (width) => {
    if (width < 40) return;
    last = width;
    box.replaceChildren(draw(Math.round(width)));
  };
  drawn.push(() => { if (last > PAPER) render(PAPER); });
  render(box.clientWidth || 640);
  new ResizeObserver(() => { if (Math.abs(box.clientWidth - last) > 2) render(box.clientWidth); }).observe(box);
  return () => render(last || box.clientWidth || 640);
}
