// Scales and axes shared by the plots.
const linear = (d0, d1, r0, r1) => (x) => r0 + ((x - d0) / (d1 - d0 || 1)) * (r1 - r0);

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw || 1));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((v) => v >= raw - 1e-12);
  const out = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) out.push(Math.abs(v) < step * 1e-6 ? 0 : v);
  return out;
}

function powers(max, room) {
  const top = Math.floor(Math.log2(max));
  const step = Math.max(1, Math.ceil((top + 1) / room));
  const out = [];
  for (let e = 0; e <= top; e += step) out.push(2 ** e);
  if (out[out.length - 1] !== max && Math.log2(max / out[out.length - 1]) > 0.6 * step) out.push(max);
  return out;
}

const finite = (x) => x !== null && x !== undefined && Number.isFinite(x);

function linePath(xs, ys, X, Y) {
  let path = "", pen = false;
  for (let i = 0; i < xs.length; i++) {
    if (!finite(ys[i])) { pen = false; continue; }
    path += `${pen ? "L" : "M"}${X(xs[i]).toFixed(1)} ${Y(ys[i]).toFixed(1)}`;
    pen = true;
  }
  return path;
}

function bandPath(xs, lows, highs, X, Y) {
  const keep = xs.map((_, i) => i).filter((i) => finite(lows[i]) && finite(highs[i]));
  if (!keep.length) return "";
  const up = keep.map((i) => `${X(xs[i]).toFixed(1)} ${Y(highs[i]).toFixed(1)}`);
  const down = keep.map((i) => `${X(xs[i]).toFixed(1)} ${Y(lows[i]).toFixed(1)}`).reverse();
  return `M${up.join("L")}L${down.join("L")}Z`;
}

// Push labels apart so that none covers another; `items` have y, sorted in place.
function spread(items, gap, low, high) {
  items.sort((a, b) => a.y - b.y);
  for (let i = 1; i < items.length; i++) items[i].y = Math.max(items[i].y, items[i - 1].y + gap);
  let limit = high;
  for (let i = items.length - 1; i >= 0; i--) { items[i].y = Math.min(items[i].y, limit); limit = items[i].y - gap; }
  if (items.length && items[0].y < low) items.forEach((it, i) => { it.y = Math.max(it.y, low + i * gap); });
}

// Width in pixels of a bold label.
const ruler = document.createElement("canvas").getContext("2d");
function wide(text) {
  ruler.font = `600 12px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}
const clip = (text, n) => (text.length > n ? text.slice(0, n - 1) + "…" : text);
